"""A server for unit tests, `tether devserver`: it needs no Redis and no module, and starts at once.

@pytest.fixture
def locks():
    with DevServer() as server, Locks(server.url) as locks:
        yield locks
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
from typing import Any

import redis

from ._request import Key

READY_WITHIN_S = 10


class DevServer:
    """`with` it: an empty server of the test's own, on a free port of this machine.

    Locks, temporary keys and watches are the module's own. Of the other commands it has some: see
    `without a server` in clients/protocol/conform/README.md.
    """

    def __init__(self, program: str | None = None) -> None:
        """Name the command line `tether`; unless given, TETHER_PROGRAM, or `tether` on PATH."""
        self._program = program or os.environ.get("TETHER_PROGRAM") or "tether"

    def __enter__(self) -> DevServer:
        """Start it.

        FileNotFoundError: there is no such program. RuntimeError: it does not say that it is ready.
        """
        words = [self._program, "devserver", "--port", "0"]
        try:
            self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        except OSError as error:
            what = f"{error.strerror}: put `tether` on PATH, or set TETHER_PROGRAM to its path"
            raise type(error)(error.errno, what, self._program) from error
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A thread, since a read has no time limit on some systems, and a child of the program may
        # keep the pipe open when the program is gone.
        threading.Thread(target=_read_line, args=(self._process, lines), daemon=True).start()
        try:
            line = lines.get(timeout=READY_WITHIN_S)
        except queue.Empty:
            line = f"it says nothing for {READY_WITHIN_S} s"
        if not line.startswith("ready on port "):
            self._stop()
            raise RuntimeError(f"{self._program} devserver does not start: {line}")
        self.port = int(line.split()[-1])
        self._client: Any = redis.Redis(port=self.port)
        return self

    def __exit__(self, *error: object) -> None:
        """Kill it."""
        self._client.close()
        self._stop()

    def _stop(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def url(self) -> str:
        """For `Locks`, of threads and of asyncio."""
        return f"redis://127.0.0.1:{self.port}"

    def run(self, *words: Any) -> Any:
        """Give a command, and return its reply."""
        return self._client.execute_command(*words)

    def lose(self, name: Key, reason: str = "deleted") -> None:
        """Let all holders of this lock lose it, as `deleted`, `expired` or `evicted`."""
        self.run("DEV", "LOSE", name, reason)

    def drop(self) -> None:
        """End all other connections."""
        self.run("DEV", "DROP")

    def silent(self, seconds: float) -> None:
        """Read and answer nothing for so long."""
        self.run("DEV", "SILENT", round(seconds * 1000))

    def refuse(self, code: str) -> None:
        """Refuse writes (`NOREPLICAS`, `MISCONF`, `OOM`), or by another code every command."""
        self.run("DEV", "REFUSE", code)

    def accept(self) -> None:
        """Refuse nothing any more."""
        self.run("DEV", "ACCEPT")

    def advance(self, seconds: float) -> None:
        """Let so much time pass on the server at once: leases, waits and graces end."""
        self.run("DEV", "ADVANCE", round(seconds * 1000))


def _read_line(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        lines.put(process.stdout.readline())

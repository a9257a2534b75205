"""A server of each test module's own, with the module tether loaded."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import redis

import tether_locks.asyncio as aio
from tether_locks import Locks
from tether_locks._client import Client

# Generous: tests run on machines that are busy with others.
DEADLINE_S = 30.0
# A test that takes longer hangs. pyproject.toml has each thread's place said before.
TEST_WITHIN_S = 600.0


class Server:
    """A server process; its settings are the arguments."""

    def __init__(self, *settings: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        self.socket = str(pathlib.Path(self._folder.name, "s"))
        program, module = os.environ["TETHER_SERVER"], os.environ["TETHER_MODULE"]
        self._words = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._words += ["--unixsocket", self.socket, "--dir", self._folder.name]
        self._words += ["--loadmodule", module, *settings]
        self.client: Any = redis.Redis(port=self.port)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, "the server did not start"
        with contextlib.suppress(redis.ConnectionError, redis.exceptions.BusyLoadingError):
            return bool(self.client.ping())
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def run(self, *words: Any) -> Any:
        return self.client.execute_command(*words)

    def await_replica(self) -> None:
        """Wait until a replica has all that was written.

        WAIT counts from the last write of its own connection.
        """
        self.run("SET", "written", 1)
        assert self.run("WAIT", 1, int(DEADLINE_S * 1000)) == 1

    def gauge(self, name: str) -> int:
        return int(self.client.info("tether")["tether_" + name])

    def held(self, key: str) -> bool:
        return bool(self.client.exists(key))

    def waiting(self, number: int) -> None:
        eventually(lambda: self.gauge("waiters") == number)

    def free(self) -> None:
        """See that nobody holds anything or waits, soon."""
        eventually(lambda: (self.gauge("holds"), self.gauge("waiters")) == (0, 0))

    def forgive_silence(self) -> None:
        """Let a machine that is busy with others take long: whoever connects now loses nothing."""
        self.run("CONFIG", "SET", "tether.peer-timeout", int(4 * DEADLINE_S * 1000))

    def kill_clients(self) -> None:
        self.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    @contextlib.contextmanager
    def silent(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def crash(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.client.close()
        self.crash()
        self._folder.cleanup()


def client_of(locks: aio.Locks) -> Client:
    """Return that of its only loop, with the connection."""
    (client,) = locks._clients.values()
    assert isinstance(client, Client)
    return client


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def eventually(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


@contextlib.contextmanager
def a_child_without(*sockets: socket.socket) -> Iterator[None]:
    """Fork a child that lives on with all that this process has open, but for these."""
    child = os.fork()
    if child == 0:
        for each in sockets:
            each.close()
        time.sleep(DEADLINE_S)
        os._exit(0)
    try:
        yield
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@contextlib.contextmanager
def bounded(within_s: float) -> Iterator[None]:
    """Fail what the main thread does for longer, wherever it waits."""

    def fail(*_: object) -> None:
        pytest.fail(f"it takes longer than {within_s:g} s")

    def watch() -> None:
        next_s = within_s
        while not is_over.wait(next_s):
            signal.pthread_kill(main, signal.SIGUSR1)
            # Once more for its end, which may hang too; or for code that swallowed it.
            next_s = DEADLINE_S

    main, is_over = threading.get_ident(), threading.Event()
    before = signal.signal(signal.SIGUSR1, fail)
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        signal.signal(signal.SIGUSR1, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Let a test that hangs fail, so that the others run."""
    if "TETHER_STEPS" in os.environ:
        return (yield)
    with bounded(TEST_WITHIN_S):
        return (yield)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """The server that most tests share, with nobody on it."""
    shared_server.kill_clients()
    shared_server.client.flushall()
    shared_server.client.config_set("tether.peer-timeout", 10000)
    shared_server.free()
    return shared_server


@pytest.fixture
def locks(server: Server) -> Iterator[Locks]:
    """A client of it."""
    with Locks(server.url) as locks:
        yield locks
    server.free()


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int) -> None:
    """Report the sum in cargo's form, which .ci/run adds up."""
    passed, failed, errors = (
        len(terminalreporter.stats.get(kind, [])) for kind in ("passed", "failed", "error")
    )
    # A run that was interrupted has failed too.
    failed = failed + errors or int(exitstatus != 0)
    word = "FAILED" if failed else "ok"
    terminalreporter.write_line(f"test result: {word}. {passed} passed; {failed} failed")

"""Draws the pictures of docs/ from real runs, as SVG.

    python3 tests/runbook/draw.py SERVER MODULE [--check]

docs/holder-dies.svg: a holder is killed, with `SET NX PX` and with tether. docs/failover.svg: a queue, whose master is killed. With
--check nothing is written: it fails if a run gives another picture than the one that is there, apart from its numbers.
"""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from resp import Connection, eventually

DOCS = Path(__file__).parent.parent.parent / "docs"
SERVER, MODULE = (os.path.abspath(path) for path in sys.argv[1:3])

# ---- what is run ----


class Server:
    def __init__(self, *lines: str):
        self.folder = tempfile.TemporaryDirectory(prefix="picture-")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.folder.name}",
            'save ""',
            "repl-diskless-sync-delay 0",
            f"loadmodule {MODULE}",
            *lines,
        )
        conf = Path(self.folder.name) / "redis.conf"
        conf.write_text("\n".join(lines) + "\n")
        self.process = subprocess.Popen([SERVER, conf], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        # Whatever goes wrong in a picture, nothing is left running.
        atexit.register(self.kill)
        eventually("a server that answers", self.answers)

    def answers(self) -> bool:
        try:
            return Connection(self.port).run("PING") == "PONG"
        except (OSError, AssertionError):
            return False

    def kill(self):
        self.process.kill()
        self.process.wait()

    def connect(self) -> Connection:
        return Connection(self.port)


class Holder:
    """A process with a connection that takes the lock, to be killed."""

    def __init__(self, server: Server, command: str):
        program = "\n".join(
            (
                "import socket, sys, time",
                "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))",
                "s.sendall(sys.argv[2].encode())",
                "s.recv(99)",
                "print('held', flush=True)",
                "time.sleep(600)",
            )
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(server.port), command + "\r\n"],
            stdout=subprocess.PIPE,
        )
        atexit.register(self.kill)
        assert self.process.stdout and self.process.stdout.readline()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Lanes:
    """Bars by lane, with their times since the beginning."""

    def __init__(self):
        self.begin = time.monotonic()
        self.bars: list[tuple[str, str, float, float, str]] = []
        self.marks: list[tuple[float, str]] = []

    def now(self) -> float:
        return time.monotonic() - self.begin

    def bar(self, lane: str, kind: str, start: float, end: float, text: str = ""):
        self.bars.append((lane, kind, start, end, text))

    def mark(self, text: str) -> float:
        at = self.now()
        self.marks.append((at, text))
        return at


def with_a_time_limit(server: Server) -> tuple[Lanes, float]:
    """The lock as without a module: 10 seconds, and the waiter asks four times a second."""
    holder = Holder(server, "SET report ann NX PX 10000")
    lanes = Lanes()
    waiter = server.connect()
    asked = lanes.now()
    time.sleep(2)
    holder.kill()
    killed = lanes.mark("kill -9")
    while waiter.run("SET report bob NX PX 10000") != "OK":
        time.sleep(0.25)
    granted = lanes.now()
    lanes.bar("ann", "held", 0, killed, "holds")
    lanes.bar("ann", "dead", killed, granted, "dead, and the lock is taken")
    lanes.bar("bob", "waits", asked, granted, "polls")
    lanes.bar("bob", "held", granted, granted + 2, "holds")
    return lanes, granted - killed


def with_tether(server: Server) -> Lanes:
    holder = Holder(server, "LOCK.ACQUIRE report")
    lanes = Lanes()
    waiter = server.connect()
    waiter.send("LOCK.ACQUIRE report WAIT 0")
    asked = lanes.now()
    eventually("a waiter", lambda: "tether_waiters:1" in server.connect().run("INFO tether"))
    time.sleep(max(0.0, 2 - lanes.now()))
    killed = lanes.mark("kill -9")
    holder.kill()
    assert isinstance(waiter.reply(), int)
    granted = lanes.now()
    lanes.bar("ann", "held", 0, killed, "holds")
    lanes.bar("bob", "waits", asked, granted, "waits in line")
    lanes.bar("bob", "held", granted, granted + 2, "holds")
    return lanes


def through_a_failover() -> Lanes:
    """Ann holds with a session; bob and cy wait. The master is killed, its replica promoted, and all go on there."""
    master, replica = Server(), Server()
    replica.connect().run(f"REPLICAOF 127.0.0.1 {master.port}")
    lanes = Lanes()
    ann, bob, cy = (master.connect() for _ in range(3))
    secret = ann.run("SESSION.START")
    token = ann.run("LOCK.ACQUIRE report")
    held = lanes.now()
    bob.run("LOCK.ACQUIRE report WAIT 0 PUSH")
    cy.run("LOCK.ACQUIRE report WAIT 0 PUSH")
    asked = lanes.now()
    eventually("the replica", lambda: ann.run("WAIT 1 1000") == 1)
    time.sleep(1)
    master.kill()
    killed = lanes.mark("the master is killed")
    time.sleep(1)
    replica.connect().run("REPLICAOF NO ONE")
    promoted = lanes.mark("its replica is promoted")
    ann, bob, cy = (replica.connect() for _ in range(3))
    ann.run(f"SESSION.RESUME {secret[0] if isinstance(secret, list) else secret}")
    assert str(token) in str(ann.run("LOCK.MINE")), "ann does not hold it any more"
    resumed = lanes.now()
    assert bob.run("LOCK.ACQUIRE report WAIT 0 PUSH") is None
    assert cy.run("LOCK.ACQUIRE report WAIT 0 PUSH") is None
    again = lanes.now()
    time.sleep(1)
    ann.run("LOCK.RELEASE report")
    first = int(bob.push()[2])
    to_bob = lanes.mark("ann releases")
    time.sleep(1)
    bob.stream.close()
    bob.file.close()
    second = int(cy.push()[2])
    to_cy = lanes.mark("bob is killed")
    assert token < first < second, "tokens do not rise"
    end = to_cy + 1
    lanes.bar("master", "server", 0, killed, "master")
    lanes.bar("replica", "replica", 0, promoted, "replica")
    lanes.bar("replica", "server", promoted, end, "master")
    lanes.bar("ann", "held", held, to_bob, "holds, by a session: the same token")
    lanes.bar("bob", "waits", asked, killed, "first in line")
    lanes.bar("bob", "waits", again, to_bob, "first in line")
    lanes.bar("bob", "held", to_bob, to_cy, "holds")
    lanes.bar("cy", "waits", asked, killed, "second")
    lanes.bar("cy", "waits", again, to_cy, "second, then first")
    lanes.bar("cy", "held", to_cy, end, "holds")
    assert resumed >= promoted
    return lanes


# ---- how it is drawn ----

LEFT, WIDTH, LANE, BAR = 90, 760, 34, 22
COLOURS = {
    "held": "#2b7a4b",
    "waits": "#c9d6ea",
    "dead": "#d9b3b3",
    "server": "#44546a",
    "replica": "#a9b4c2",
}
DARK = {"held", "server"}


def text(x: float, y: float, words: str, fill: str = "#222", anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" fill="{fill}" text-anchor="{anchor}">{words}</text>'


def drawn(lanes: Lanes, top: int, seconds: float) -> tuple[list[str], int]:
    """The elements of these lanes, and where they end."""
    names = list(dict.fromkeys(bar[0] for bar in lanes.bars))
    at = lambda moment: LEFT + WIDTH * moment / seconds
    bottom = top + LANE * len(names)
    elements = []
    for name in names:
        elements.append(text(LEFT - 12, top + LANE * names.index(name) + 16, name, anchor="end"))
    for lane, kind, start, end, words in lanes.bars:
        y = top + LANE * names.index(lane)
        elements.append(
            f'<rect x="{at(start):.1f}" y="{y}" width="{max(at(end) - at(start), 1):.1f}" height="{BAR}" fill="{COLOURS[kind]}"/>'
        )
        elements.append(text(at(start) + 6, y + 16, words, "#fff" if kind in DARK else "#222"))
    for count, (moment, words) in enumerate(lanes.marks):
        y = bottom + 12 + 16 * (count % 2)
        elements.append(
            f'<line x1="{at(moment):.1f}" y1="{top - 6}" x2="{at(moment):.1f}" y2="{y - 10}" stroke="#a33" stroke-dasharray="3 3"/>'
        )
        elements.append(text(at(moment), y + 2, f"{words}, {moment:.1f} s", "#a33", "middle"))
    return elements, bottom + 40


def picture(title: str, parts: list[tuple[str, Lanes]]) -> str:
    seconds = max(end for _, lanes in parts for *_, end, _ in lanes.bars)
    elements, top = [text(LEFT, 24, title)], 60
    for words, lanes in parts:
        if words:
            elements.append(text(LEFT, top - 12, words))
        drawing, top = drawn(lanes, top, seconds)
        elements += drawing
        top += 24
    height = top - 20
    size = f"{LEFT + WIDTH + 30} {height}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="13">'
    return (
        "\n".join(
            [
                head,
                f'<rect width="{LEFT + WIDTH + 30}" height="{height}" fill="#fff"/>',
                *elements,
                "</svg>",
            ]
        )
        + "\n"
    )


def pictures() -> dict[str, str]:
    server = Server()
    limited, late = with_a_time_limit(server)
    server.connect().run("DEL report")
    ours = with_tether(server)
    parts = [
        (
            f"SET report ann NX PX 10000: bob has the lock {late:.1f} s after the kill, when the time limit is over",
            limited,
        ),
        (
            "LOCK.ACQUIRE report: bob has the lock as soon as the connection of the killed process closes",
            ours,
        ),
    ]
    return {
        "holder-dies.svg": picture("A holder is killed", parts),
        "failover.svg": picture("A queue through a failover", [("", through_a_failover())]),
    }


def main() -> int:
    different = 0
    for name, drawing in pictures().items():
        file = DOCS / name
        if "--check" not in sys.argv:
            file.write_text(drawing)
            continue
        structure = lambda svg: re.sub(r"-?\d+(\.\d+)?", "0", svg)
        if structure(file.read_text()) != structure(drawing):
            different += 1
            print(f"docs/{name} is not what a run gives: make pictures")
    word = "FAILED" if different else "ok"
    print(f"test result: {word}. {2 - different} passed; {different} failed")
    return 1 if different else 0


sys.exit(main())

"""Faults at random around holders in processes of their own: at no time do two believe to hold.

TETHER_STEPS faults in each of two places: one server with its files, behind links that are cut; and
a master with a replica, of which one after the other is the master.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import redis

from .campaign_worker import GRACE_S
from .conftest import Server, eventually

LANES, WORKERS = 4, 3
# The server's side of a link that was cut ends by then, as by its peer-timeout.
GONE_AFTER_S = 10.0


class Link:
    """A wire to a server, which can be reset, or swallow what is sent from then on."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}"
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._cut: set[socket.socket] = set()
        self.is_cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # It is closed.
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._server.port))
                except OSError:
                    near.close()
                    continue
                self._pairs.append((near, far))
                if self.is_cut:
                    self._cut |= {near, far}
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source not in self._cut:
                    target.sendall(data)
        if source in self._cut:
            time.sleep(GONE_AFTER_S)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self.is_cut = True
        for pair in self._pairs:
            self._cut |= set(pair)

    def mend(self) -> None:
        """For connections from now on: what was sent on the others is lost."""
        self.is_cut = False

    def reset(self) -> None:
        for pair in self._pairs:
            for each in pair:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()
        self.reset()


class Lane:
    """One lock, and the processes that want it."""

    def __init__(self, number: int, folder: pathlib.Path, urls: list[list[str]], acks: int) -> None:
        self.name = f"lane{number}"
        self.notes = folder / self.name
        self.notes.touch()
        self._acks = acks
        self._urls = urls
        self.workers = [self._begin(at) for at in range(len(urls))]

    def _begin(self, at: int) -> subprocess.Popen[bytes]:
        words = [",".join(self._urls[at]), self.name, str(self.notes), str(self._acks)]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.campaign_worker", *words],
            cwd=pathlib.Path(__file__).parents[1],
        )

    def kill(self, at: int) -> None:
        self.workers[at].kill()
        self.workers[at].wait()
        self.workers[at] = self._begin(at)

    def terms(self) -> dict[int, tuple[float, float]]:
        """Of each token, the first and the last time at which somebody believed in it."""
        found: dict[int, tuple[float, float]] = {}
        for line in self.notes.read_text().splitlines():
            word, time_ = line.split()
            token, at = int(word), float(time_)
            first, last = found.get(token, (at, at))
            found[token] = (min(first, at), max(last, at))
        return found


def overlaps(terms: dict[int, tuple[float, float]]) -> int:
    """How many of them began before one with a smaller token was over."""
    number, over = 0, 0.0
    for _, (first, last) in sorted(terms.items()):
        number += first <= over
        over = max(over, last)
    return number


def test_an_overlap_is_counted() -> None:
    assert overlaps({1: (0.1, 1.0), 2: (1.1, 2.0), 3: (2.1, 3.0)}) == 0
    assert overlaps({1: (0.1, 1.0), 2: (0.9, 2.0), 3: (2.1, 3.0)}) == 1
    assert overlaps({1: (0.1, 9.0), 2: (1.1, 2.0), 3: (2.1, 3.0)}) == 2


def campaign(lanes: list[Lane], faults: dict[str, Callable[[random.Random], None]]) -> None:
    """Strike, and see that all goes on in the end."""
    steps = int(os.environ.get("TETHER_STEPS", "12"))
    dice = random.Random(int(os.environ.get("TETHER_SEED", "1")))
    struck: Counter[str] = Counter()
    try:
        for lane in lanes:
            eventually(lambda lane=lane: bool(lane.terms()))  # type: ignore[misc]
        for number in range(steps):
            kind = list(faults)[number % len(faults)]
            faults[kind](dice)
            struck[kind] += 1
            time.sleep(dice.uniform(0, 1))
        before = [max(lane.terms()) for lane in lanes]
        for lane, token in zip(lanes, before):
            eventually(lambda lane=lane, token=token: max(lane.terms()) > token)  # type: ignore[misc]
    finally:
        for lane in lanes:
            for worker in lane.workers:
                worker.kill()
                worker.wait()
    grants = sum(len(lane.terms()) for lane in lanes)
    number = sum(overlaps(lane.terms()) for lane in lanes)
    print(f"{sum(struck.values())} faults {dict(struck)}: {grants} grants, {number} overlaps")
    assert number == 0


def worker_faults(lanes: list[Lane]) -> dict[str, Callable[[random.Random], None]]:
    def kill(dice: random.Random) -> None:
        dice.choice(lanes).kill(dice.randrange(WORKERS))

    def stop(dice: random.Random) -> None:
        worker = dice.choice(dice.choice(lanes).workers)
        worker.send_signal(signal.SIGSTOP)
        time.sleep(dice.choice([0.2, 1.5 * GRACE_S]))
        worker.send_signal(signal.SIGCONT)

    return {"SIGKILL": kill, "SIGSTOP": stop}


def test_at_one_server(tmp_path: pathlib.Path) -> None:
    server = Server("--appendonly", "yes", "--appendfsync", "always")
    links = [[Link(server) for _ in range(WORKERS)] for _ in range(LANES)]
    lanes = [
        Lane(number, tmp_path, [[link.url] for link in links[number]], 0) for number in range(LANES)
    ]

    def cut(dice: random.Random) -> None:
        link = dice.choice(dice.choice(links))
        link.cut()
        time.sleep(dice.choice([0.2, 1.5 * GRACE_S]))
        link.mend()

    def reset(dice: random.Random) -> None:
        for link in dice.choice(links):
            link.reset()

    def silence(dice: random.Random) -> None:
        with server.silent():
            time.sleep(dice.choice([0.2, 1.5 * GRACE_S]))

    def restart(dice: random.Random) -> None:
        server.crash()
        time.sleep(dice.uniform(0, 1))
        server.start()

    try:
        more = {"cut": cut, "reset": reset, "server stopped": silence, "restart": restart}
        campaign(lanes, {**worker_faults(lanes), **more})
    finally:
        for link in (each for of_lane in links for each in of_lane):
            link.close()
        server.stop()


def test_at_a_master_with_a_replica(tmp_path: pathlib.Path) -> None:
    """Each grant is acknowledged by the replica, so a failover forgets none."""
    settings = ("--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0")
    pair = [Server(*settings), Server(*settings)]
    pair[1].run("REPLICAOF", "127.0.0.1", pair[0].port)

    def is_in_step() -> bool:
        with contextlib.suppress(redis.RedisError):
            pair[0].run("SET", "written", 1)
            return bool(pair[0].run("WAIT", 1, 1000) == 1)
        return False

    eventually(is_in_step)
    urls = [each.url for each in pair]
    lanes = [Lane(number, tmp_path, [urls] * WORKERS, 1) for number in range(LANES)]

    def failover(dice: random.Random) -> None:
        """By the command: the two change places, and nothing is lost."""
        eventually(is_in_step)
        pair[0].run("FAILOVER", "TO", "127.0.0.1", pair[1].port)
        eventually(lambda: pair[1].run("ROLE")[0] == b"master")
        pair.reverse()
        eventually(is_in_step)

    def crash(dice: random.Random) -> None:
        """The master dies; the replica is promoted, and the former master follows it."""
        eventually(is_in_step)
        dead, heir = pair
        dead.crash()
        heir.run("REPLICAOF", "NO", "ONE")
        dead._words = [*dead._words, "--replicaof", f"127.0.0.1 {heir.port}"]
        dead.start()
        dead._words = dead._words[:-2]
        pair.reverse()
        eventually(is_in_step)

    try:
        campaign(lanes, {**worker_faults(lanes), "FAILOVER": failover, "crash": crash})
    finally:
        for each in pair:
            each.stop()

"""Locks by SET NX of other packages, each with its own code; as a program, a worker that takes one.

    python -m tests.old_locks KIND PORT FOLDER KEY

`KIND` is one of OLD, or `ours`, which takes KEY. It takes the lock again and again, until it is
killed. In FOLDER it notes each time (`count.KIND`), and each time at which another process was
inside (`log`). That is seen by a POSIX lock on the file `inside`: when a process dies, the kernel
frees such locks before it ends the connections (those of flock after that).
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import pathlib
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pottery
import redis
import redis_lock
import sherlock

from tether_locks import Locks, Lost

# Longer than anybody holds; who is killed holds it for so long.
TTL_S = 3


class Old(NamedTuple):
    """What the key is called, and what takes the lock and gives it back.

    `acquire` waits for nothing, and returns what `release` takes, or None.
    """

    key: str
    acquire: Callable[[Any, int], Any]
    release: Callable[[Any], object]


def by_methods(make: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    def acquire(server: redis.Redis, ttl: int) -> Any:
        lock = make(server, ttl)
        return lock if lock.acquire(blocking=False) else None

    return acquire


def release(lock: Any) -> None:
    lock.release()


OLD = {
    "redis-py": Old(
        "old", by_methods(lambda server, ttl: server.lock("old", timeout=ttl)), release
    ),
    "python-redis-lock": Old(
        "lock:old",
        by_methods(lambda server, ttl: redis_lock.Lock(server, "old", expire=ttl)),
        release,
    ),
    "pottery": Old(
        "redlock:old",
        by_methods(
            lambda server, ttl: pottery.Redlock(
                key="old", masters={server}, auto_release_time=float(ttl)
            )
        ),
        release,
    ),
    "sherlock": Old(
        "old",
        by_methods(lambda server, ttl: sherlock.RedisLock("old", client=server, expire=ttl)),
        release,
    ),
}


def main(kind: str, port: int, folder: pathlib.Path, key: str) -> None:
    logging.disable()  # They say each time that it is taken.
    inside = (folder / "inside").open("w")
    log = os.open(folder / "log", os.O_WRONLY | os.O_APPEND)
    count = os.open(folder / f"count.{kind}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    server = redis.Redis(port=port)
    lock = Locks(f"redis://127.0.0.1:{port}").lock(key, compat="setnx")
    old = OLD.get(kind)

    def note(**fields: Any) -> None:
        os.write(log, json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def work() -> None:
        try:
            fcntl.lockf(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note(overlap=time.monotonic())
            return
        time.sleep(random.uniform(0, 0.0005))
        fcntl.lockf(inside, fcntl.LOCK_UN)
        os.write(count, b".")

    while True:
        before = time.monotonic()
        if old is None:
            try:
                with lock:
                    work()
            except Lost as lost:
                note(late=[before, time.monotonic()], why=lost.reason)
        else:
            held = old.acquire(server, TTL_S)
            if held is not None:
                work()
                # A time limit that ran out protects nothing, with any lock of this sort.
                if time.monotonic() - before > TTL_S * 0.8:
                    note(late=[before, time.monotonic()], why="time limit")
                try:
                    old.release(held)
                except Exception as error:
                    note(late=[before, time.monotonic()], why=type(error).__name__)
        time.sleep(random.uniform(0, 0.003))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4])

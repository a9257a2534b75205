"""A program whose threads are gevent's greenlets."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .conftest import DEADLINE_S, Server

PROGRAM = """
from gevent import monkey
monkey.patch_all()
import gevent
import redis
import sys
from tether_locks import Locks, Lost

server = redis.Redis.from_url(sys.argv[1])

def waiting(number):
    while server.info("tether")["tether_waiters"] != number:
        gevent.sleep(0.01)

def work(lock):
    global inside, turns
    for _ in range(10):
        with lock as held:
            inside += 1
            assert inside == 1
            gevent.sleep(0.001)
            inside -= 1
            turns += 1
            held.check()

inside = turns = 0
with Locks(sys.argv[1], grace=20) as locks:
    gevent.joinall([gevent.spawn(work, locks.lock("a")) for _ in range(8)], raise_error=True)
    print("turns:", turns)
    with locks.lock("a") as held:
        greenlet = gevent.spawn(lambda: locks.lock("a").acquire())
        waiting(1)
        greenlet.kill()
        waiting(0)
        print("a greenlet that was killed left the queue")
        server.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        held.check_server()
        print("the session goes on")
    try:
        with locks.lock("a") as held:
            server.delete("a")
            print(held.until_lost())
    except Lost:
        pass
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="asyncio has no running loop in a greenlet")
def test_greenlets_are_threads_if_they_are_patched_first(server: Server) -> None:
    words = [sys.executable, "-c", PROGRAM, server.url]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=2 * DEADLINE_S, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "turns: 80",
        "a greenlet that was killed left the queue",
        "the session goes on",
        "deleted",
    ]
    server.free()

"""`lock(compat="setnx")`: beside clients that take the same key by SET NX, the real ones too."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pottery
import pytest
import redis

from tether_locks import CrossSlot, Deadlock, Locks, Lost, Refused, Taken

from .conftest import DEADLINE_S, Server, eventually
from .old_locks import OLD, Old


def test_requests_of_one_client_wait_for_each_other(server: Server, locks: Locks) -> None:
    lock = locks.lock("a", compat="setnx")
    inside, values = [], set()

    def work(number: int) -> None:
        with lock:
            inside.append(number)
            assert len(inside) == 1
            values.add(server.client.get("a"))
            inside.remove(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(40)))
    assert len(values) == 40
    assert all(2**62 <= int(value) < 2**63 for value in values)
    with lock:
        with pytest.raises(Deadlock), lock:
            pass
        with ThreadPoolExecutor(1) as pool:
            for wait in (0, 0.05):
                other = locks.lock("a", wait=wait, compat="setnx")
                with pytest.raises(Taken):
                    pool.submit(other.acquire).result(DEADLINE_S)
    assert not server.held("a")


def test_what_it_cannot_be_is_refused(server: Server, locks: Locks) -> None:
    for options in ({"shared": True}, {"lease": 1}, {"at_least": 1}):
        with pytest.raises(ValueError, match="SET NX"):
            locks.lock("a", compat="setnx", **options)
    with pytest.raises(ValueError, match="SET NX"):
        locks.owner("job").lock("a", compat="setnx")
    with pytest.raises(ValueError, match="redlock"):
        locks.lock("a", compat="redlock")
    with Locks(server.url, cluster=True) as others, pytest.raises(CrossSlot, match="hash tag"):
        others.lock("a", compat="setnx").acquire()


def overwritten(server: Server) -> None:
    server.client.set("a", "theirs", xx=True)


@pytest.mark.parametrize(
    ("reason", "act"),
    [
        ("overwritten", overwritten),
        ("overwritten", lambda server: server.client.set("a", "theirs", px=60_000)),
        ("overwritten", lambda server: server.client.execute_command("GETSET", "a", "1")),
        ("overwritten", lambda server: server.client.append("a", "1")),
        ("deleted", lambda server: server.client.delete("a")),
        ("expired", lambda server: server.client.pexpire("a", 1)),
    ],
)
def test_who_ends_it_without_comparing_is_noticed(
    server: Server, locks: Locks, reason: str, act: Callable[[Server], object]
) -> None:
    with pytest.raises(Lost, match=reason), locks.lock("a", compat="setnx") as held:
        act(server)
        held.until_lost()
    assert not server.held("a")


def test_a_write_during_a_break_is_noticed_afterwards(server: Server) -> None:
    with Locks(server.url, grace=60) as locks:
        kept = locks.lock("b", compat="setnx").acquire()
        with pytest.raises(Lost, match="overwritten"), locks.lock("a", compat="setnx") as held:
            server.kill_clients()
            overwritten(server)
            held.until_lost()
        kept.check_server()
        kept.release()


def test_a_user_who_may_not_watch_is_refused(server: Server) -> None:
    server.run("ACL", "SETUSER", "ann", "on", ">word", "~*", "+@all", "-watchtp")
    try:
        url = server.url.replace("redis://", "redis://ann:word@")
        with Locks(url) as locks:
            with locks.lock("b"):  # Now there is a connection.
                pass
            with pytest.raises(Refused) as refusal:
                locks.lock("a", compat="setnx").acquire()
            assert refusal.value.code == "NOPERM"
            eventually(lambda: not server.held("a"))
    finally:
        server.run("ACL", "DELUSER", "ann")


# ---- the clients of the table in docs/comparison.md ----


@pytest.fixture(params=OLD)
def old(request: pytest.FixtureRequest) -> Old:
    one: Old = OLD[request.param]
    return one


def test_each_excludes_the_other(server: Server, locks: Locks, old: Old) -> None:
    ours = locks.lock(old.key, wait=0, compat="setnx")
    waits = locks.lock(old.key, compat="setnx")
    held = old.acquire(server.client, 60)
    assert held is not None
    with pytest.raises(Taken):
        ours.acquire()
    with ThreadPoolExecutor(1) as pool:
        acquired = pool.submit(waits.acquire)
        server.waiting(1)
        assert old.acquire(server.client, 60) is None
        old.release(held)
        mine = acquired.result(DEADLINE_S)
        assert old.acquire(server.client, 60) is None
        mine.release()
    again = old.acquire(server.client, 60)
    assert again is not None
    old.release(again)
    assert not server.held(old.key)


def test_a_release_that_comes_too_late_ends_nothing_of_ours(
    server: Server, locks: Locks, old: Old
) -> None:
    late = old.acquire(server.client, 60)
    with ThreadPoolExecutor(1) as pool:
        acquired = pool.submit(locks.lock(old.key, compat="setnx").acquire)
        server.waiting(1)
        server.client.pexpire(old.key, 1)  # As if its time had run out.
        held = acquired.result(DEADLINE_S)
        with contextlib.suppress(Exception):  # Most of them say that it is not theirs.
            old.release(late)
        held.check_server()
        held.release()


def test_a_command_that_compares_and_deletes_is_as_good(server: Server, locks: Locks) -> None:
    server.client.set("a", "theirs", nx=True)
    try:
        assert server.run("DELEX", "a", "IFEQ", "theirs") == 1
    except redis.ResponseError:
        pytest.skip("this server has no DELEX")
    with locks.lock("a", compat="setnx") as held:
        assert server.run("DELEX", "a", "IFEQ", "theirs") == 0
        held.check_server()


def test_several_masters_are_another_lock(server: Server, locks: Locks) -> None:
    masters = [server, Server(), Server()]

    def old(of: list[Server]) -> pottery.Redlock:
        return pottery.Redlock(key="old", masters={each.client for each in of})

    try:
        with locks.lock("redlock:old", compat="setnx"):
            assert not old(masters[:1]).acquire(blocking=False)
            assert old(masters).acquire(blocking=False)
    finally:
        for each in masters[1:]:
            each.stop()


def test_no_two_are_inside_whoever_is_killed(
    server: Server, old: Old, tmp_path: pathlib.Path, request: pytest.FixtureRequest
) -> None:
    """TETHER_STEPS acquisitions by five processes, of which one is killed every now and then."""
    steps = int(os.environ.get("TETHER_STEPS", "300"))
    kind = request.node.callspec.params["old"]
    dice = random.Random(int(os.environ.get("TETHER_SEED", "1")))
    (tmp_path / "log").touch()

    def count(of: str) -> int:
        path = tmp_path / f"count.{of}"
        return path.stat().st_size if path.exists() else 0

    def begin(which: str) -> subprocess.Popen[bytes]:
        words = ["-m", "tests.old_locks", which, str(server.port), str(tmp_path), old.key]
        return subprocess.Popen([sys.executable, *words], cwd=pathlib.Path(__file__).parents[1])

    kinds = ["ours", "ours", kind, kind, kind]
    workers = [begin(which) for which in kinds]
    kills, next_kill = 0, 0
    try:
        last, since = -1, time.monotonic()
        while min(count("ours"), count(kind)) < steps / 10 or (count("ours") + count(kind) < steps):
            done = count("ours") + count(kind)
            if done != last:
                last, since = done, time.monotonic()
            assert time.monotonic() - since < 10 * DEADLINE_S, "nobody comes in any longer"
            if done > next_kill:
                next_kill = done + dice.randrange(1, 2 + max(20, steps // 100))
                at = dice.randrange(len(workers))
                workers[at].kill()
                workers[at].wait()
                workers[at] = begin(kinds[at])
                kills += 1
            time.sleep(dice.uniform(0, 0.02))
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    notes = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    late = [note["late"] for note in notes if "late" in note]
    overlaps = [
        note["overlap"]
        for note in notes
        if "overlap" in note and not any(a <= note["overlap"] <= b for a, b in late)
    ]
    print(
        f"{kind}: {count('ours')} of ours, {count(kind)} of theirs, {kills} kills,"
        f" {len(late)} holds beyond their time or lost, {len(overlaps)} overlaps"
    )
    assert overlaps == []


def test_who_polls_comes_last_while_ours_queue(server: Server, locks: Locks) -> None:
    stop = threading.Event()
    turns = []

    def work(locks: Locks) -> None:
        lock = locks.lock("old", compat="setnx")
        while not stop.is_set():
            with lock:
                eventually(lambda: stop.is_set() or server.gauge("waiters") == 1)
                turns.append(threading.get_ident())

    # A client of each, since requests of one client wait in the client.
    with Locks(server.url) as others, ThreadPoolExecutor(2) as pool:
        both = [pool.submit(work, each) for each in (locks, others)]
        eventually(lambda: len(turns) >= 2)
        until, polls = len(turns) + 200, 0
        while len(turns) < until:
            assert OLD["redis-py"].acquire(server.client, 60) is None
            polls += 1
        stop.set()
        for each in both:
            each.result(DEADLINE_S)
    assert len(set(turns)) == 2
    assert polls > 0

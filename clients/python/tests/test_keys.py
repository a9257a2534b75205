"""Temporary keys, watches, presence, elections; named owners; what a session adds; the log."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis.asyncio

import tether_locks.asyncio as aio
from tether_locks import (
    Change,
    Closed,
    CrossSlot,
    Deadlock,
    Held,
    Leader,
    LockError,
    Locks,
    Lost,
    Member,
    NoModule,
    NoPush,
    Refused,
    Stale,
    Taken,
    Unfit,
)

from .conftest import DEADLINE_S, Server, eventually

Story = Callable[[aio.Locks], Coroutine[Any, Any, None]]


def tell(server: Server, story: Story, **options: Any) -> None:
    async def whole() -> None:
        async with aio.Locks(server.url, **options) as locks:
            await asyncio.wait_for(story(locks), DEADLINE_S)

    asyncio.run(whole())
    server.free()


# ---- temporary keys ----


def test_a_temporary_key_lives_as_long_as_it_is_held(server: Server, locks: Locks) -> None:
    with locks.temporary_key("worker:1", "10.0.0.1") as held:
        assert server.client.get("worker:1") == b"10.0.0.1"
        held.check_server()
        with pytest.raises(Taken), Locks(server.url) as others:
            others.temporary_key("worker:1", "other").acquire()
    assert not server.held("worker:1")
    # The server makes names that are ordered.
    text = locks.temporary_key("job:", b"\xff", sequence=True)
    with text as one, locks.temporary_key(b"job:", "", sequence=True) as two:
        assert one.name == f"job:{one.token:016}"
        assert two.name == b"job:%016d" % two.token
        assert server.client.get(one.name) == b"\xff"
    with pytest.raises(Lost, match="deleted"), locks.temporary_key("worker:1", "x") as held:
        server.run("DEL", "worker:1")
        held.until_lost()


def test_one_waits_for_a_temporary_key_of_another(server: Server, locks: Locks) -> None:
    with Locks(server.url) as others, ThreadPoolExecutor(1) as pool:
        held = others.temporary_key("a", "one").acquire()
        waits = pool.submit(lambda: locks.temporary_key("a", "two", wait=None).acquire())
        server.waiting(1)
        held.release()
        following = waits.result(DEADLINE_S)
        assert server.client.get("a") == b"two"
        following.release()


# ---- watches ----


def test_a_key_is_watched(server: Server, locks: Locks) -> None:
    changes = locks.watch("a", "b")
    assert {next(changes), next(changes)} == {Change("a", "missing"), Change("b", "missing")}
    server.run("SET", "b", 1)
    assert next(changes) == Change("b", "added")
    server.kill_clients()
    server.run("DEL", "b")
    server.run("SET", "a", 1)
    # Over the break only the difference is told.
    assert {next(changes), next(changes)} == {Change("a", "added"), Change("b", "deleted")}
    changes.close()  # type: ignore[attr-defined]
    server.run("DEL", "a")
    with pytest.raises(ValueError, match="name"):
        next(locks.watch())


def test_a_watch_ends_with_its_locks_and_when_its_reader_goes(server: Server) -> None:
    async def story(locks: aio.Locks) -> None:
        async for change in locks.watch(b"a"):
            assert change == Change(b"a", "missing")
            break
        changes = locks.watch("a")
        assert (await changes.__anext__()).state == "missing"
        waits = asyncio.ensure_future(changes.__anext__())
        await asyncio.sleep(0)
        await locks.close()
        with pytest.raises(Closed):
            await waits

    tell(server, story)


def test_who_is_there_is_watched(server: Server, locks: Locks) -> None:
    with Locks(server.url) as others:
        one = others.temporary_key("p:1", "one").acquire()
        members = locks.presence("p:")
        assert next(members) == Member("p:1", "add", one.token, b"one", None)
        two = others.temporary_key("p:2", "two").acquire()
        assert next(members) == Member("p:2", "add", two.token, b"two", None)
        server.run("SET", "p:2", "more", "XX", "KEEPTTL")
        assert next(members)[1:4] == ("set", two.token, b"more")
        one.release()
        assert next(members) == Member("p:1", "del", None, None, "released")
        others.close()
        assert next(members)[:3] == ("p:2", "del", None)


# ---- elections ----


def test_a_leader_says_where_it_is_to_those_who_follow(server: Server, locks: Locks) -> None:
    leaders = locks.observe("lead")
    assert next(leaders) is None
    with Locks(server.url) as ann, Locks(server.url) as bob, ThreadPoolExecutor(1) as pool:
        terms = ann.elect("lead", "host-1")
        term = next(terms)
        assert next(leaders) == Leader(term.token, b"host-1")
        following = pool.submit(next, bob.elect("lead", value="host-2"))
        server.waiting(1)
        with term as held:
            held.check()
        assert next(leaders) == Leader(following.result(DEADLINE_S).token, b"host-2")
    assert next(leaders) is None


def test_leaders_take_turns_in_a_program_of_tasks(server: Server) -> None:
    async def story(locks: aio.Locks) -> None:
        led: list[str] = []

        async def stand(client: aio.Locks, name: str) -> None:
            async for term in client.elect("lead", name):
                async with term:
                    led.append(name)
                if len(led) >= 6:
                    return

        async with aio.Locks(server.url) as others:
            await asyncio.gather(stand(locks, "one"), stand(others, "two"))
        assert led[:6] in (["one", "two"] * 3, ["two", "one"] * 3)

    tell(server, story)


# ---- owners ----


def test_an_owner_with_a_name_excludes_itself_or_enters_again(server: Server, locks: Locks) -> None:
    job = locks.owner("job")
    with job.lock("a") as held:
        assert b"job" in str(server.run("LOCK.INFO", "a")).encode()
        with pytest.raises(Deadlock), job.lock("a"):
            pass
        with pytest.raises(Taken), job.lock("a", wait=0):
            pass
    again = locks.owner(b"job", reentrant=True)
    with again.lock("a") as one, again.lock("a") as two:
        assert one.token == two.token > held.token
        two.release()
        one.check_server()
        assert (one.lost, two.lost) == (None, "released")
    permit = again.semaphore("s", of=2)
    with pytest.raises(Lost), permit as one, contextlib.suppress(Lost), permit as two:
        server.run("DEL", "s")
        assert (one.until_lost(), two.until_lost()) == ("deleted", "deleted")
    with pytest.raises(ValueError, match="dot"):
        locks.owner(".1")


def test_a_hold_may_be_handed_to_another_task(server: Server) -> None:
    """The owner is the request, and neither the task nor the thread."""

    async def story(locks: aio.Locks) -> None:
        held = await asyncio.ensure_future(locks.lock("a").acquire())
        more = [await locks.semaphore("s", of=3).acquire() for _ in range(3)]
        for each in (held, *more):
            await asyncio.ensure_future(each.release())

    tell(server, story)


# ---- sessions ----


def test_a_lock_stays_taken_for_as_long_as_was_said(server: Server) -> None:
    with Locks(server.url, grace=20) as locks, Locks(server.url) as others:
        began = time.monotonic()
        with locks.lock("a", at_least=1.5) as held:
            pass
        assert held.lost == "released"
        with pytest.raises(Taken):
            others.lock("a", wait=0).acquire()
        others.lock("a", wait=DEADLINE_S).acquire()
        assert time.monotonic() - began >= 1.5
        # The thread itself is no exception, and waits for no deadlock.
        with locks.lock("b", at_least=1.5) as held:
            began = time.monotonic()
        with pytest.raises(Taken):
            locks.lock("b", wait=0).acquire()
        with locks.lock("b") as again:
            assert time.monotonic() - began >= 1.4
            assert again.token > held.token
    needs_grace: list[dict[str, Any]] = [{"at_least": 1.0}, {"acks": 1}]
    for words in needs_grace:
        with Locks(server.url) as locks, pytest.raises(Unfit):
            locks.lock("a", **words).acquire()


def test_replicas_acknowledge_a_grant() -> None:
    server = Server()
    replica = Server("--replicaof", "127.0.0.1", str(server.port))
    try:
        server.await_replica()
        with Locks(server.url, grace=20) as locks:
            with locks.lock("a", acks=1, ack_timeout=5) as held:
                held.check_server()
            replica.crash()
            eventually(lambda: server.client.info("replication")["connected_slaves"] == 0)
            with pytest.raises(Refused) as refusal:
                locks.lock("a", acks=1, wait=0).acquire()
            assert refusal.value.code == "NOACKS"
    finally:
        replica.stop()
        server.stop()


# ---- data elsewhere ----


def test_data_of_another_server_refuses_tokens_that_are_smaller(
    server: Server, locks: Locks
) -> None:
    other = Server()  # Any server: its module is not used.
    script = "return redis.call('SET', KEYS[1], ARGV[1])"

    def write(held: Held, value: str) -> Any:
        return held.run_on(
            other.client, script, fence="report:fence", keys=["report"], args=[value]
        )

    try:
        with locks.lock("report") as held:
            assert write(held, "one") == b"OK"
            assert write(held, "two") == b"OK"
            other.run("SCRIPT", "FLUSH")
            late, token = held, held.token
        with locks.lock("report") as held:
            write(held, "three")
            # The former holder has not heard that it is none.
            held.token, token = token, held.token
            with pytest.raises(Stale, match="is not current"):
                write(held, "four")
            held.token = token
            # Text of another length is another number: 9 is less than 10.
            other.run("SET", "report:fence", "9" * (len(str(token)) - 1))
            write(held, "five")
            other.run("REPLICAOF", "127.0.0.1", "1")
            with pytest.raises(redis.exceptions.ReadOnlyError):
                write(held, "six")
        assert other.client.get("report") == b"five"
        assert other.client.ttl("report:fence") == -1
        with pytest.raises(Lost, match="released"):
            write(late, "seven")

        async def story(locks: aio.Locks) -> None:
            client: Any = redis.asyncio.Redis(port=other.port)
            async with locks.lock("report") as held:
                assert await held.run_on(client, "return ARGV[1]", fence="f", args=["x"]) == b"x"
                held.token -= 1
                with pytest.raises(Stale):
                    await held.run_on(client, "return 1", fence="f")
            await client.connection_pool.disconnect()

        other.run("REPLICAOF", "NO", "ONE")
        tell(server, story)
    finally:
        other.stop()


def test_what_the_server_of_the_data_forgets_the_fence_forgets_too(locks: Locks) -> None:
    data, replica = Server(), Server()
    script = "return redis.call('SET', KEYS[1], ARGV[1])"

    def write(held: Held, on: Server = data) -> Any:
        return held.run_on(on.client, script, fence="fence", keys=["body"], args=["x"])

    def refuses(held: Held, on: Server = data) -> bool:
        try:
            return bool(write(held, on) != b"OK")
        except Stale:
            return True

    try:
        former, present = locks.lock("a").acquire(), locks.lock("b").acquire()
        assert former.token < present.token
        write(present)
        assert refuses(former)
        data.client.flushall()
        assert not refuses(former)
        write(present)
        assert refuses(former)
        # A replica without the last write is promoted.
        replica.run("REPLICAOF", "127.0.0.1", data.port)
        data.await_replica()
        replica.run("REPLICAOF", "NO", "ONE")
        later = locks.lock("c").acquire()
        write(later)
        assert refuses(present)
        assert not refuses(present, on=replica)
        assert refuses(former, on=replica)
        for held in (former, present, later):
            held.release()
    finally:
        data.stop()
        replica.stop()


def test_a_fence_may_be_evicted_unless_the_policy_spares_keys_without_a_time_to_live(
    locks: Locks,
) -> None:
    data = Server()

    def fill() -> None:
        with data.client.pipeline(transaction=False) as pipeline:
            for number in range(4000):
                pipeline.set(f"k{number}", "v" * 1000, ex=1000)
            pipeline.execute()

    try:
        used = int(data.client.info("memory")["used_memory"])
        data.client.config_set("maxmemory", used + 1_000_000)
        with locks.lock("a") as held:
            for policy, is_spared in (("volatile-random", True), ("allkeys-random", False)):
                data.client.config_set("maxmemory-policy", policy)
                fences = [f"fence{number}" for number in range(100)]
                for fence in fences:
                    held.run_on(data.client, "return 1", fence=fence)
                fill()
                assert (data.client.exists(*fences) == len(fences)) is is_spared
    finally:
        data.stop()


def test_a_new_lock_server_without_files_has_greater_tokens_if_its_clock_is_not_behind(
    server: Server, locks: Locks
) -> None:
    data, former = Server(), Server()
    try:
        with Locks(former.url) as old, old.lock("a") as held:
            first, second = held.token, former.client.time()[0]
        former.crash()
        eventually(lambda: time.time() > second + 1)  # Tokens begin with the second of the start.
        former.start()
        with Locks(former.url) as new, new.lock("a") as held:
            assert held.token > first
            held.run_on(data.client, "return 1", fence="fence")
            # One whose clock is behind begins with less.
            data.client.set("fence", held.token + 1)
            with pytest.raises(Stale):
                held.run_on(data.client, "return 1", fence="fence")
            data.client.delete("fence")
            assert held.run_on(data.client, "return 1", fence="fence") == 1
    finally:
        former.stop()
        data.stop()


# ---- errors, names and the log ----


def test_a_server_without_the_module_or_without_pushes_is_said_to_be_one(server: Server) -> None:
    plain = Server("--tether.private-functions", "never")
    try:
        with Locks(plain.url) as locks, pytest.raises(NoPush, match="tether qualify"):
            locks.lock("a").acquire()
        plain.run("ACL", "SETUSER", "default", "-lock.server")
        with Locks(plain.url) as locks, pytest.raises(Refused) as refusal:
            locks.lock("a").acquire()
        assert not isinstance(refusal.value, (NoModule, NoPush))
        assert isinstance(refusal.value, LockError)
    finally:
        plain.stop()


def test_the_name_of_the_connection_is_the_callers_to_choose(server: Server) -> None:
    with Locks(server.url, name="billing nightly") as locks, locks.lock("a"):
        assert "billing_nightly" in {each["name"] for each in server.client.client_list()}
    with Locks(server.url, cluster=True) as locks, pytest.raises(CrossSlot):
        locks.all("a", "b").acquire()
    with pytest.raises(TypeError, match="sokcet"):
        Locks(server.url, sokcet_timeout=1)


def test_what_happens_is_logged_and_no_password_is(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tether_locks")
    server.run("ACL", "SETUSER", "ann", "on", ">seCRETword", "~*", "+@all")
    try:
        url = server.url.replace("redis://", "redis://ann:seCRETword@")
        with Locks(url) as locks, pytest.raises(Lost), locks.lock("report") as held:
            server.run("DEL", "report")
            held.until_lost()
        with Locks(url.replace("CRET", "CRETS")) as locks, pytest.raises(Refused):
            locks.lock("report").acquire()
    finally:
        server.run("ACL", "DELUSER", "ann")
    assert "lost lock 'report': deleted" in caplog.text
    assert "connected to" in caplog.text
    assert "seCRET" not in caplog.text

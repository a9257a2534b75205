"""Servers that stop, restart, are away, are demoted, or refuse for a moment, under both clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import tether_locks.asyncio as aio
from tether_locks import Locks, Lost, Refused, Taken, Unreachable
from tether_locks._connect import Places

from .conftest import DEADLINE_S, Server, eventually, free_port

# With and without a session.
BOTH: list[dict[str, Any]] = [{}, {"grace": 20}]


@pytest.fixture
def own() -> Iterator[Server]:
    """A server that a test may ruin."""
    server = Server()
    yield server
    server.stop()


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


# ---- waits ----


@pytest.mark.parametrize("options", BOTH)
def test_who_waits_goes_on_when_the_server_is_restarted(
    own: Server, options: dict[str, Any]
) -> None:
    with Locks(own.url, **options) as locks, ThreadPoolExecutor(2) as pool:
        client = own.client.client()
        client.execute_command("LOCK.ACQUIRE", "a")
        for_ever = pool.submit(lambda: locks.lock("a").acquire().token)
        bounded = pool.submit(lambda: locks.lock("b", wait=DEADLINE_S).acquire().token)
        assert bounded.result() > 0
        another = pool.submit(lambda: locks.lock("a", wait=DEADLINE_S).acquire().token)
        own.waiting(2)
        client.close()
        own.crash()
        own.start()
        # One of them is granted what nobody holds any more; then the other one.
        eventually(lambda: for_ever.done() or another.done())
        own.run("DEL", "a")
        assert for_ever.result(DEADLINE_S) != another.result(DEADLINE_S)


def test_who_waits_goes_on_when_the_server_stops_for_longer_than_the_fence(own: Server) -> None:
    async def story() -> None:
        async with aio.Locks(own.url, fence=0.5) as locks, aio.Locks(own.url, grace=20) as others:
            held = await others.lock("a").acquire()
            waits = asyncio.create_task(locks.lock("a").acquire())
            while own.gauge("waiters") != 1:
                await asyncio.sleep(0.01)
            with own.silent():
                await asyncio.sleep(1.5)
                assert not waits.done()
            await held.release()
            assert (await waits).token > held.token

    run(story)
    own.free()


def test_who_waits_goes_on_until_the_server_is_there(own: Server) -> None:
    own.crash()
    with Locks(own.url) as locks, ThreadPoolExecutor(4) as pool:
        waits = [pool.submit(locks.lock(name).acquire) for name in "abc"]
        bounded = pool.submit(locks.lock("d", wait=DEADLINE_S).acquire)
        time.sleep(0.5)
        assert not any(each.done() for each in (*waits, bounded))
        own.start()
        assert len({each.result(DEADLINE_S).token for each in (*waits, bounded)}) == 4
    own.free()


def test_attempts_are_few_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = 0

    async def story() -> None:
        nonlocal attempts
        locks = aio.Locks("redis://127.0.0.1:1")
        opens = Places.open

        async def counted(self: Places, within: float) -> Any:
            nonlocal attempts
            attempts += 1
            return await opens(self, within)

        monkeypatch.setattr(Places, "open", counted)
        waits = [asyncio.create_task(locks.lock("a", wait=2).acquire()) for _ in range(100)]
        for each in waits:
            with pytest.raises(Unreachable):
                await each

    run(story)
    assert 3 <= attempts <= 40


def test_a_wait_is_bounded_by_the_clients_own_clock(server: Server) -> None:
    async def story() -> None:
        async with aio.Locks(server.url) as locks, aio.Locks(server.url, grace=20) as others:
            await (await locks.lock("b").acquire()).release()
            await others.lock("a").acquire()
            asked = asyncio.create_task(locks.lock("a", wait=1).acquire())
            while server.gauge("waiters") != 1:
                await asyncio.sleep(0.01)
            with server.silent():
                unheard = asyncio.create_task(locks.lock("a", wait=1).acquire())
                unmade = asyncio.create_task(aio.Locks(server.url).lock("a", wait=1).acquire())
                began = time.monotonic()
                for each, error in ((asked, Taken), (unheard, Unreachable), (unmade, Unreachable)):
                    with pytest.raises(error):
                        await each
                # The fence is five seconds, and so is the time to connect.
                assert time.monotonic() - began < 4
            while server.gauge("waiters"):
                await asyncio.sleep(0.01)

    run(story)
    server.free()


def test_closing_ends_a_wait_for_a_server_that_is_away() -> None:
    locks = Locks("redis://127.0.0.1:1")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(lambda: locks.lock("a").acquire())
        time.sleep(0.2)
        assert not waits.done()
        locks.close()
        with pytest.raises(Unreachable):
            waits.result(DEADLINE_S)


def test_what_another_attempt_would_not_change_ends_a_wait(server: Server) -> None:
    wrong = server.url.replace("redis://", "redis://nobody:wrong@")
    with Locks(wrong) as locks, pytest.raises(Refused):
        locks.lock("a").acquire()


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        ("127.0.0.1:{}", "127.0.0.1:{}: Connection refused"),
        ("localhost:{}", "localhost:{}: Connection refused"),
        ("no.such.host.invalid:{}", "no.such.host.invalid:{}: "),
    ],
)
def test_a_server_that_is_not_there_is_named_with_the_cause(
    caplog: pytest.LogCaptureFixture, address: str, cause: str
) -> None:
    """By each error, and once in the log: a wait without a limit shows nothing else."""
    port = free_port()
    cause = "no connection to " + cause.format(port)
    with Locks(f"redis://ann:seCRET@{address.format(port)}") as locks:
        for wait, text in ((0, cause), (1.5, f"no answer in the time to wait: {cause}")):
            with pytest.raises(Unreachable) as error:
                locks.lock("a", wait=wait).acquire()
            assert str(error.value).startswith(text)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert warnings[0].startswith(cause)
    assert warnings[0].endswith("; trying on")
    assert "seCRET" not in caplog.text


def test_a_server_that_says_nothing_is_named_and_waited_for_once_without_a_wait(
    own: Server,
) -> None:
    where = f"127.0.0.1:{own.port}"
    with own.silent(), Locks(own.url, connect_timeout=1) as locks:
        for wait, text in ((0.1, f"in the time to wait from {where}"), (0, f"{where} in 1.0 s")):
            with pytest.raises(Unreachable, match=text):
                locks.lock("a", wait=wait).acquire()
    with Locks(own.url, fence=1) as locks:
        locks.lock("a").acquire().release()
        with own.silent(), pytest.raises(Unreachable, match=f"no answer from {where}: silence"):
            locks.lock("a", wait=0).acquire()


def test_each_outage_is_logged_once(own: Server, caplog: pytest.LogCaptureFixture) -> None:
    def said() -> int:
        return caplog.text.count("Connection refused; trying on")

    with Locks(own.url, grace=60) as locks:
        for number in range(3):
            assert said() == number
            locks.lock("a").acquire().release()
            own.crash()
            eventually(lambda number=number: said() > number)  # type: ignore[misc]
            time.sleep(1)  # Several attempts.
            own.start()


# ---- releases ----


@contextlib.contextmanager
def noreplicas(server: Server) -> Iterator[None]:
    server.client.config_set("min-replicas-to-write", 1)
    yield
    server.client.config_set("min-replicas-to-write", 0)


@contextlib.contextmanager
def misconf(server: Server) -> Iterator[None]:
    """A snapshot that fails, since a folder has its name."""
    (folder,) = server.client.config_get("dir").values()
    pathlib.Path(folder, "dump.rdb").mkdir()
    server.client.config_set("save", "3600 1")
    server.client.bgsave()
    eventually(lambda: server.client.info("persistence")["rdb_last_bgsave_status"] == "err")
    yield
    server.client.config_set("save", "")
    pathlib.Path(folder, "dump.rdb").rmdir()


@contextlib.contextmanager
def busy(server: Server) -> Iterator[None]:
    server.client.config_set("lua-time-limit", 10)
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(redis.Redis(port=server.port).eval, "while true do end", 0)
        eventually(lambda: is_busy(server))
        yield
        server.run("SCRIPT", "KILL")
        with contextlib.suppress(redis.ResponseError):
            script.result()


def is_busy(server: Server) -> bool:
    try:
        server.client.ping()
    except redis.ResponseError as error:
        return "BUSY" in str(error)
    return False


@pytest.mark.parametrize("options", BOTH)
@pytest.mark.parametrize("refusing", [noreplicas, misconf, busy])
def test_a_release_that_is_refused_for_a_moment_costs_nothing_else(
    own: Server, options: dict[str, Any], refusing: Any
) -> None:
    with Locks(own.url, **options) as locks, locks.lock("kept") as kept:
        with contextlib.ExitStack() as stack:
            with locks.lock("report") as held:
                stack.enter_context(refusing(own))
            assert held.lost == "released"
            kept.check()
        # The same thread may ask for it again at once.
        with locks.lock("report", wait=DEADLINE_S) as again:
            assert again.token > held.token
            time.sleep(1)
            again.check_server()
        kept.check_server()
    own.free()


@pytest.mark.parametrize("options", BOTH)
def test_who_stops_waiting_while_the_server_is_busy_leaves_nothing(
    own: Server, options: dict[str, Any]
) -> None:
    async def story() -> None:
        async with aio.Locks(own.url, **options) as locks, aio.Locks(own.url) as others:
            held = await others.lock("a").acquire()
            waits = asyncio.create_task(locks.lock("a").acquire())
            kept = await locks.lock("kept").acquire()
            while own.gauge("waiters") != 1:
                await asyncio.sleep(0.01)
            loop = asyncio.get_running_loop()
            stack = contextlib.ExitStack()
            await loop.run_in_executor(None, stack.enter_context, busy(own))
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            await asyncio.sleep(0.5)
            await loop.run_in_executor(None, stack.close)
            while own.gauge("waiters"):
                await asyncio.sleep(0.01)
            kept.check()
            await held.release()
            await kept.release()

    run(story)
    own.free()


# ---- masters ----


@contextlib.contextmanager
def pair() -> Iterator[tuple[Server, Server]]:
    master = Server()
    replica = Server("--replicaof", "127.0.0.1", str(master.port))
    try:
        eventually(lambda: replica.client.info("replication")["master_link_status"] == "up")
        yield master, replica
    finally:
        replica.stop()
        master.stop()


def swap(master: Server, replica: Server) -> None:
    replica.run("REPLICAOF", "NO", "ONE")
    master.run("REPLICAOF", "127.0.0.1", replica.port)


@pytest.mark.parametrize("wait", [0, None, DEADLINE_S])
def test_a_server_that_was_demoted_is_not_kept(wait: float | None) -> None:
    """The connection stays open, and the address is that of a replica which names the master."""
    with pair() as (master, replica), Locks(master.url) as locks:
        with locks.lock("a"):
            pass
        swap(master, replica)
        eventually(lambda: master.client.info("replication")["master_link_status"] == "up")
        with locks.lock("a", wait=wait):
            assert replica.held("a")


def test_a_demotion_ends_what_is_held_and_waits_go_on_at_the_new_master() -> None:
    with pair() as (master, replica), Locks(master.url) as locks, ThreadPoolExecutor(1) as pool:
        held = locks.lock("a").acquire()
        waits = pool.submit(lambda: locks.lock("a").acquire())
        master.waiting(1)
        swap(master, replica)
        assert held.until_lost() in ("demoted", "connection")
        with pytest.raises(Lost):
            held.release()
        assert waits.result(DEADLINE_S).token > held.token
        assert replica.held("a")


def test_who_waits_at_a_server_that_is_a_replica_for_a_while_is_served_when_it_is_none(
    own: Server,
) -> None:
    """The master that it names is away."""
    with Locks(own.url) as locks, ThreadPoolExecutor(1) as pool:
        with locks.lock("a"):
            pass
        own.run("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(Unreachable):
            locks.lock("a", wait=0.3).acquire()
        waits = pool.submit(lambda: locks.lock("a").acquire())
        time.sleep(0.3)
        assert not waits.done()
        own.run("REPLICAOF", "NO", "ONE")
        waits.result(DEADLINE_S).release()

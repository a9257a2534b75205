"""Locks that are held in a session, on real servers that break their connections."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import redis

from tether_locks import Locks as ThreadLocks
from tether_locks import Lost, Refused, Stale, Taken, Unreachable
from tether_locks._connect import Places
from tether_locks.asyncio import Locks

from .conftest import DEADLINE_S, Server, client_of, eventually

Story = Callable[[Locks], Coroutine[Any, Any, None]]
T = TypeVar("T")

GRACE_S = 20.0


def tell(server: Server, story: Story, **options: Any) -> None:
    """Run a story with a session, and see that it leaves nothing behind."""

    async def whole() -> None:
        async with Locks(server.url, **{"grace": GRACE_S, **options}) as locks:
            await asyncio.wait_for(story(locks), DEADLINE_S)

    asyncio.run(whole())
    free(server)


def free(server: Server) -> None:
    server.free()
    eventually(lambda: sessions(server) == 0)


def sessions(server: Server) -> int:
    return server.gauge("sessions_attached") + server.gauge("sessions_detached")


async def true(is_true: Callable[[], bool]) -> None:
    while not is_true():
        await asyncio.sleep(0.005)


async def in_a_thread(function: Callable[..., T], *args: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


@contextlib.contextmanager
def lasting_server() -> Iterator[Server]:
    server = Server("--appendonly", "yes", "--appendfsync", "always")
    try:
        yield server
    finally:
        server.stop()


def kill_and(server: Server, *commands: str) -> None:
    """Run commands in the same step in which all other connections end."""
    transaction = server.client.pipeline()
    for command in ("CLIENT KILL TYPE normal SKIPME yes", *commands):
        transaction.execute_command(*command.split(" "))
    transaction.execute()


def test_locks_live_on_when_the_connection_is_killed(server: Server) -> None:
    async def story(locks: Locks) -> None:
        async with locks.lock("a", wait=0) as held, locks.all("b", "c") as both:
            for _ in range(3):
                server.kill_clients()
                await true(lambda: server.gauge("sessions_attached") == 1)
                assert held.lost is None
                await held.extend(60)
            both.check()
            # Asked for while there is no connection, and given back.
            server.kill_clients()
            async with locks.lock("d") as other:
                assert other.token > held.token
            server.kill_clients()
            assert await in_a_thread(others_are_refused, server, "a", "b", "c")
        assert (held.lost, both.lost) == ("released", "released")

    tell(server, story)


def others_are_refused(server: Server, *names: str) -> bool:
    with ThreadLocks(server.url) as others:
        for name in names:
            with pytest.raises(Taken):
                others.lock(name, wait=0).acquire()
    return True


def test_threads_keep_their_locks_too(server: Server) -> None:
    with ThreadLocks(server.url, grace=GRACE_S) as locks, locks.lock("a") as held:
        server.kill_clients()
        eventually(lambda: server.gauge("sessions_attached") == 1)
        assert others_are_refused(server, "a")
        held.check()
    free(server)


def test_who_waits_goes_on_waiting_for_as_long_as_was_said(server: Server) -> None:
    async def story(locks: Locks) -> None:
        async def wait(**options: Any) -> int:
            async with locks.lock("a", **options) as held:
                return held.token

        with ThreadLocks(server.url, grace=GRACE_S) as others:
            held = others.lock("a").acquire()
            patient = asyncio.create_task(wait())
            began = time.monotonic()
            impatient = asyncio.create_task(wait(wait=1.5))
            await true(lambda: server.gauge("waiters") == 2)
            server.kill_clients()
            await true(lambda: server.gauge("waiters") == 2)
            with pytest.raises(Taken):
                await impatient
            assert 1.4 < time.monotonic() - began < 10
            await in_a_thread(held.release)
            assert await patient > held.token

    tell(server, story)


def test_a_grant_in_the_moment_of_the_break_is_found(server: Server) -> None:
    async def story(locks: Locks) -> None:
        holder = server.client.client()
        for name in ("a", "c"):
            holder.execute_command("LOCK.ACQUIRE", name)
        one = asyncio.create_task(locks.lock("a").acquire())
        two = asyncio.create_task(locks.all("b", "c").acquire())
        await true(lambda: server.gauge("waiters") >= 2)
        # The connections end after the grants, so that those reach nobody.
        for words in (
            "MULTI",
            "LOCK.RELEASE a",
            "LOCK.RELEASE c",
            "LOCK.INFO a",
            "CLIENT KILL TYPE normal SKIPME yes",
        ):
            holder.execute_command(*words.split(" "))
        info = holder.execute_command("EXEC")[2]
        holder.close()
        one_held, two_held = await one, await two
        assert str(one_held.token) in str(info)
        one_held.check()
        await one_held.release()
        await two_held.release()

    tell(server, story)


def test_what_was_lost_meanwhile_is_lost_and_nothing_else(server: Server) -> None:
    async def story(locks: Locks) -> None:
        lost = await locks.lock("a").acquire()
        kept = await locks.lock("b").acquire()
        both = await locks.all("c", "d").acquire()
        kill_and(server, "DEL a", "DEL d")
        assert await lost.until_lost() == "connection"
        assert await both.until_lost() == "connection"
        await kept.release()
        await true(lambda: server.gauge("holds") == 0)
        # After that losses are told as ever.
        told = await locks.lock("e").acquire()
        server.kill_clients()
        await true(lambda: server.gauge("sessions_attached") == 1)
        server.run("DEL", "e")
        assert await told.until_lost() in ("deleted", "connection")

    tell(server, story)


def test_a_loss_after_a_break_cancels_the_body(server: Server) -> None:
    async def story(locks: Locks) -> None:
        with pytest.raises(Lost):
            async with locks.lock("a"):
                kill_and(server, "DEL a")
                await asyncio.sleep(DEADLINE_S)

    tell(server, story)


def test_who_asks_the_server_during_a_break_is_answered_after_it(server: Server) -> None:
    async def story(locks: Locks) -> None:
        async with locks.lock("a") as held:
            for _ in range(3):
                server.kill_clients()
                await held.check_server()
            # A hold that is gone on the next connection.
            token, held.token = held.token, held.token - 1
            server.kill_clients()
            with pytest.raises(Stale):
                await held.check_server()
            held.token = token

    tell(server, story)


def test_a_server_that_became_a_replica_has_made_nothing_stale() -> None:
    """It calls every token stale, but the session may go on at the new master."""

    async def story(locks: Locks) -> None:
        held = await locks.lock("a").acquire()
        server.await_replica()
        client = client_of(locks)
        # It has not heard that the server was demoted.
        client.core._pushed = lambda *_: None  # type: ignore[method-assign]
        replica.run("REPLICAOF", "NO", "ONE")
        server.run("REPLICAOF", "127.0.0.1", replica.port)
        await held.check_server()
        assert held.lost is None
        await held.release()
        await true(lambda: not replica.held("a"))

    server = Server()
    replica = Server("--replicaof", "127.0.0.1", str(server.port))
    try:
        eventually(lambda: replica.client.info("replication")["master_link_status"] == "up")

        async def whole() -> None:
            async with Locks(server.url, grace=GRACE_S) as locks:
                await asyncio.wait_for(story(locks), DEADLINE_S)

        asyncio.run(whole())
    finally:
        replica.stop()
        server.stop()


def test_locks_survive_a_crash_of_the_server() -> None:
    async def story(locks: Locks) -> None:
        async with locks.lock("a") as held:
            server.crash()
            asking = asyncio.create_task(locks.lock("b").acquire())
            await asyncio.sleep(0.5)
            await in_a_thread(server.start)
            other = await asking
            held.check()
            assert other.token > held.token
            with ThreadLocks(server.url) as others, pytest.raises(Taken):
                await in_a_thread(others.lock("a", wait=0).acquire)

    with lasting_server() as server:
        tell(server, story)


def test_what_was_given_back_before_a_crash_that_forgot_it_is_given_back_again() -> None:
    async def story(locks: Locks) -> None:
        kept = await locks.lock("kept").acquire()
        released = [
            await lock.acquire()
            for lock in (
                locks.lock("exclusive"),
                locks.lock("shared", shared=True),
                locks.semaphore("permits", 2, of=3),
                locks.all("one", "two"),
            )
        ]
        await in_a_thread(server.run, "SAVE")
        for held in released:
            await held.release()
        server.crash()
        await in_a_thread(server.start)
        await true(lambda: server.gauge("sessions_attached") == 1)
        await true(lambda: server.gauge("holds") == 1)
        await kept.release()

    server = Server()
    try:
        tell(server, story)
    finally:
        server.stop()


@pytest.mark.parametrize("right", ["-lock.list", "-lock.info", "-client|id"])
def test_who_may_not_look_at_others_finds_its_own_all_the_same(right: str) -> None:
    async def story(locks: Locks) -> None:
        kept = await locks.lock("kept").acquire()
        released = await locks.lock("report").acquire()
        await in_a_thread(server.run, "SAVE")
        await released.release()
        server.crash()
        await in_a_thread(server.start)
        await (await locks.lock("next").acquire()).release()
        await true(lambda: server.gauge("holds") == 1)
        await kept.release()

    server = Server("--user", "some", "on", "nopass", "~*", "&*", "+@all", right)
    try:
        tell(server, story, username="some", password="any")
    finally:
        server.stop()


def test_a_server_that_comes_back_with_nothing_has_lost_the_locks() -> None:
    async def story(locks: Locks) -> None:
        held = await locks.lock("a").acquire()
        server.crash()
        waiting = asyncio.create_task(locks.lock("b").acquire())
        await asyncio.sleep(0.1)
        assert held.lost is None
        await in_a_thread(server.start)
        assert await held.until_lost() == "connection"
        # Who waits goes on in another session.
        other = await waiting
        async with locks.lock("a"):
            assert server.gauge("sessions_attached") == 1
        await other.release()

    server = Server()
    try:
        tell(server, story)
    finally:
        server.stop()


@pytest.mark.parametrize("fence", [None, 0.8])
def test_a_lock_is_lost_here_before_the_grace_is_over_there(
    server: Server, fence: float | None
) -> None:
    """The server's grace begins with the break; the fence began with the last answer before."""

    async def story(locks: Locks) -> None:
        held = await locks.lock("a").acquire()
        client = client_of(locks)
        began = time.monotonic()
        there, client._places = client._places, Nowhere()
        server.kill_clients()
        assert held.lost is None
        assert await held.until_lost() == "silence"
        lost_after = time.monotonic() - began
        assert lost_after <= (fence or 1.5) + 0.5
        assert server.held("a")
        await true(lambda: not server.held("a"))
        assert time.monotonic() - began >= 2.4
        client._places = there
        async with locks.lock("a"):
            pass

    class Nowhere(Places):
        def __init__(self) -> None: ...

        async def open(self, within: float) -> Any:
            raise Unreachable("it is nowhere")

    tell(server, story, grace=2.5, fence=fence)


def test_a_server_that_is_silent_for_half_of_the_fence_loses_nothing(server: Server) -> None:
    async def story(locks: Locks) -> None:
        async with locks.lock("a") as held:
            with server.silent():
                await asyncio.sleep(2.5)
            await true(lambda: server.gauge("sessions_attached") == 1)
            await held.extend(60)

    tell(server, story, fence=4)


@pytest.mark.parametrize("grace", [None, 20])
def test_what_was_lost_by_silence_is_not_given_back_while_its_work_stops(
    server: Server, grace: float | None
) -> None:
    async def story() -> None:
        async with Locks(server.url, grace=grace, fence=0.5, stop_within=5) as locks:
            held = await locks.lock("a").acquire()
            with server.silent():
                await true(lambda: held.lost == "silence")
            async with locks.lock("another"):
                assert server.held("a")

    asyncio.run(story())
    for session in server.run("SESSION.LIST"):
        # redis-py 8 makes a map of it.
        pairs = session if isinstance(session, dict) else dict(zip(session[::2], session[1::2]))
        server.run("SESSION.KILL", pairs[b"id"])


def test_closing_leaves_nothing_for_the_grace(server: Server) -> None:
    async def story() -> None:
        locks = Locks(server.url, grace=GRACE_S)
        held = await locks.lock("a").acquire()
        await locks.close()
        assert held.lost == "closed"
        assert sessions(server) == 0
        assert not server.held("a")
        await locks.close()
        # During a break too: it connects for that.
        held = await locks.lock("a").acquire()
        await in_a_thread(server.kill_clients)
        await locks.close()
        assert held.lost == "closed"
        await true(lambda: sessions(server) == 0)

    asyncio.run(story())
    locks = ThreadLocks(server.url, grace=1.5)
    with locks.lock("b"):
        pass
    locks.close()
    free(server)


@pytest.mark.parametrize("end", ["", "raise KeyError", "sys.exit(3)"])
def test_the_end_of_the_program_leaves_nothing_for_the_grace(server: Server, end: str) -> None:
    program = f"""
import sys
from tether_locks import Locks
locks = Locks({server.url!r}, grace=600)
held = locks.lock("a").acquire()
held.check_server()
{end}
"""
    ran = subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL)
    assert bool(ran.returncode) == bool(end)
    free(server)


def child_that_ends(url: str) -> None:
    held = ThreadLocks(url, grace=600).lock("child").acquire()
    held.check_server()


def child_whose_thread_goes_on(url: str) -> None:
    held = ThreadLocks(url, grace=600).lock("child").acquire()

    def work() -> None:
        time.sleep(1)
        held.check_server()
        redis.Redis.from_url(url).set("done", 1)

    threading.Thread(target=work).start()


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.parametrize("target", [child_that_ends, child_whose_thread_goes_on])
def test_the_end_of_a_child_process_leaves_nothing_for_the_grace(
    server: Server, method: str, target: Callable[[str], None]
) -> None:
    """multiprocessing ends its children by `os._exit`, after their threads."""
    with ThreadLocks(server.url) as locks, locks.lock("parent"):
        context: Any = multiprocessing.get_context(method)
        child = context.Process(target=target, args=(server.url,))
        child.start()
        child.join(DEADLINE_S)
        assert child.exitcode == 0
        assert server.held("done") == (target is child_whose_thread_goes_on)
    free(server)


def test_times_that_cannot_be_kept_are_refused(server: Server) -> None:
    async def refused(is_refused: bool = True, **options: Any) -> None:
        async with Locks(server.url, **options) as locks:
            if not is_refused:
                await (await locks.lock("a").acquire()).release()
                return
            with pytest.raises(Refused) as refusal:
                await locks.lock("a").acquire()
            assert refusal.value.code == "UNFIT"

    asyncio.run(refused(grace=1.0))
    asyncio.run(refused(grace=10, stop_within=9))
    asyncio.run(refused(grace=10, stop_within=5, fence=4.1))
    asyncio.run(refused(False, grace=10, stop_within=5, fence=4))
    asyncio.run(refused(stop_within=9))
    asyncio.run(refused(stop_within=6, fence=3.1))
    asyncio.run(refused(False, stop_within=6, fence=3))
    # With a grace, a server that detects no vanished peers is slow, but safe.
    server.client.config_set("tether.peer-timeout", 0)
    asyncio.run(refused(False, grace=10))
    senseless: list[dict[str, Any]] = [{"grace": 0}, {"grace": -1}, {"stop_within": -1}]
    for options in senseless:
        with pytest.raises(ValueError, match="not a time"):
            Locks(server.url, **options)


def test_breaks_at_random_moments_leave_no_orphans_and_no_two_holders(server: Server) -> None:
    seed = 7

    async def story(locks: Locks) -> None:
        dice = random.Random(seed)
        is_over = False
        done = cancelled = 0
        holders: dict[str, int] = {}

        async def hold(lock: Any, names: list[str]) -> None:
            nonlocal done
            async with lock as held:
                for name in names:
                    assert name not in holders
                    holders[name] = held.token
                try:
                    await asyncio.sleep(dice.choice([0, 0, 0.001, 0.01]))
                finally:
                    for name in names:
                        del holders[name]
            done += 1

        async def worker() -> None:
            nonlocal cancelled
            while not is_over:
                names = dice.sample(["a", "b", "c", "d"], dice.choice([1, 1, 2]))
                task = asyncio.create_task(hold(locks.all(*names, wait=5), names))
                if dice.random() < 0.3:
                    await asyncio.sleep(dice.random() * 0.02)
                    task.cancel()
                try:
                    await task
                except Taken:
                    pass
                except asyncio.CancelledError:
                    cancelled += 1

        # The first connection is no session yet: who breaks that is told so.
        async with locks.lock("a"):
            pass
        workers = [asyncio.create_task(worker()) for _ in range(16)]
        breaks = 0
        while breaks < 40 or min(done, cancelled) <= 20:  # As long as a busy machine takes.
            await asyncio.sleep(dice.random() * 0.15)
            server.kill_clients()
            breaks += 1
        is_over = True
        await asyncio.gather(*workers)
        client = client_of(locks)
        await true(lambda: not client.core.requests.all)
        assert (server.gauge("holds"), server.gauge("waiters")) == (0, 0)
        print(f"{done} locks were held and {cancelled} requests cancelled in {breaks} breaks")

    tell(server, story)


def test_a_pool_of_threads_and_breaks(server: Server) -> None:
    with ThreadLocks(server.url, grace=GRACE_S) as locks:
        inside = 0
        locks.lock("a").acquire().release()

        def work(_: int) -> None:
            nonlocal inside
            for _ in range(10):
                with locks.lock("a"):
                    inside += 1
                    assert inside == 1
                    time.sleep(0.002)
                    inside -= 1

        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(work, number) for number in range(4)]
            while not all(each.done() for each in working):
                server.kill_clients()
                time.sleep(0.05)
            for each in working:
                each.result()
    free(server)

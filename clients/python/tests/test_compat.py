"""`tether_locks.compat` under the real Django, FastAPI and Celery, and beside redis-py's lock."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis
import redis.lock
from celery import Celery
from fastapi import Depends, FastAPI

import tether_locks.asyncio as aio
from tether_locks import Held, Locks
from tether_locks.compat.celery import LockedTask
from tether_locks.compat.fastapi import locked
from tether_locks.compat.redis_lock import Lock

from .conftest import DEADLINE_S, Server, eventually

# ---- redis-py's Lock ----


def public(kind: type) -> dict[str, list[str]]:
    """Its methods with the names of their arguments."""
    return {
        name: list(inspect.signature(member).parameters)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


def test_the_interface_is_that_of_redis_py() -> None:
    theirs = public(redis.lock.Lock)
    internals = {"do_acquire", "do_extend", "do_reacquire", "do_release", "register_scripts"}
    assert public(Lock) == {name: theirs[name] for name in theirs if name not in internals}
    names = list(inspect.signature(redis.lock.Lock).parameters)[1:]
    ours = list(inspect.signature(Lock).parameters)[1:]
    assert ours[: len(names)] == names
    assert ours[len(names) :] in ([], ["raise_on_release_error"])  # Since redis-py 6.


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_program_for_redis_py_does_the_same_with_either(
    server: Server, locks: Locks, is_ours: bool
) -> None:
    def made(name: str, **options: Any) -> Any:
        return Lock(locks, name, **options) if is_ours else server.client.lock(name, **options)

    one, other = made("a", timeout=60), made("a", blocking=False)
    assert one.acquire()
    assert (one.owned(), one.locked(), other.owned(), other.locked()) == (True, True, False, True)
    assert not other.acquire()
    assert not other.acquire(blocking=True, blocking_timeout=0.05)
    assert one.extend(60)
    assert one.reacquire()
    one.release()
    assert not one.locked()
    with pytest.raises(redis.exceptions.LockError):
        one.release()
    with pytest.raises(redis.exceptions.LockError), one, other:
        pass
    with other:
        for without_timeout in (lambda: other.extend(1), other.reacquire):
            with pytest.raises(redis.exceptions.LockError):
                without_timeout()
    assert one.acquire()
    server.run("DEL", "a")
    eventually(lambda: not one.owned())
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        one.extend(1)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        one.release()


@pytest.mark.parametrize("is_local", [True, False])
def test_each_thread_has_its_own_unless_it_is_said_otherwise(locks: Locks, is_local: bool) -> None:
    """(redis-py's own raises AttributeError in the other thread.)"""
    lock = Lock(locks, "a", timeout=60, thread_local=is_local)
    with lock, ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock.owned).result() is not is_local


def test_the_end_of_a_block_may_pass_over_a_loss(server: Server, locks: Locks) -> None:
    with Lock(locks, "a", raise_on_release_error=False):
        server.run("DEL", "a")
    with pytest.raises(redis.exceptions.LockNotOwnedError), Lock(locks, "a"):
        server.run("DEL", "a")


# ---- Django ----


def test_djangos_cache_has_locks(server: Server) -> None:
    from django.conf import settings

    backend = "tether_locks.compat.django.LockingCache"
    settings.configure(CACHES={"default": {"BACKEND": backend, "LOCATION": server.url}})
    from django.core.cache import cache

    cache.set("visits", 1)
    with cache.lock("report", timeout=60) as lock:
        assert lock.owned()
        assert server.held(":1:report")
        assert not cache.lock("report", blocking=False).acquire()
        assert cache.lock("report", version=2, blocking=False).acquire()
    assert cache.get("visits") == 1
    assert not server.held(":1:report")
    server.kill_clients()
    server.free()


# ---- FastAPI ----


def test_a_request_is_served_while_its_lock_is_held(server: Server) -> None:
    locks = aio.Locks(server.url)
    app: Any = FastAPI()
    events: list[asyncio.Event] = []  # Of the loop: that somebody is inside, and may go on.
    order_lock = Depends(locked(locks, "order:{number}"))

    @app.post("/orders/{number}")
    async def order(number: int, held: Any = order_lock) -> str:
        assert isinstance(held, aio.Held)
        events[0].set()
        await asyncio.wait_for(events[1].wait(), DEADLINE_S)
        return str(held.lost)

    async def story() -> None:
        events.extend((asyncio.Event(), asyncio.Event()))
        transport = httpx.ASGITransport(app=app)
        async with locks, httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            first = asyncio.ensure_future(client.post("/orders/7"))
            await events[0].wait()
            assert server.held("order:7")
            assert (await client.post("/orders/7")).status_code == 423
            events[1].set()
            assert (await first).json() == "None"
            assert (await client.post("/orders/7")).status_code == 200

    asyncio.run(story())
    server.free()


# ---- Celery ----


def test_a_task_with_the_base_class_runs_once_at_a_time(server: Server, locks: Locks) -> None:
    """In this process; test_jobs.py has a worker with processes of its own."""
    app: Any = Celery()
    app.conf.update(task_always_eager=True, task_eager_propagates=True)

    @app.task(base=LockedTask, locks=locks, name="nightly")
    def nightly(number: int) -> int:
        assert server.held("nightly")
        return number

    class ByNumber(LockedTask):
        abstract = True
        retry_after = 0.0
        max_retries = 2

        def lock_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
            return f"number:{args[0]}"

    tries: list[int] = []

    @app.task(base=ByNumber, locks=locks, name="by number")
    def by_number(number: int) -> int:
        tries.append(number)
        return number

    assert nightly.delay(1).get() == 1
    held: Held
    with Locks(server.url) as others, others.all("nightly", "number:1") as held:
        assert nightly.delay(2).get() is None
        with pytest.raises(Exception, match="another owner has the lock"):
            by_number.delay(1).get()
        assert by_number.delay(2).get() == 2
        held.check()
    assert nightly.delay(3).get() == 3
    assert tries == [2]

"""Locks for asyncio. The words are those of `tether_locks`, with `async` and `await`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import redis.asyncio
from redis.asyncio.connection import AbstractConnection, Connection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from ._link import Link, Times
from ._request import Key, Request, milliseconds, permits, request
from .clock import now
from .core import Phase, Want
from .errors import LockError, Lost, Refused, Stale, Taken, Unreachable, raise_if_stale

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")

# Of redis-py's own ways to survive a broken connection none may be left.
_NOT_OURS = ("retry_on_timeout", "retry_on_error", "health_check_interval", "decode_responses")
AGAIN_AFTER_S = 1.0


class Held:
    """A lock that is held, or was."""

    def __init__(self, link: Link, want: Want, request: Request) -> None:
        """Describe a grant."""
        self._link = link
        self._want = want
        self._waiters: set[asyncio.Future[str]] = set()
        self.names = request.names
        self.token = want.token
        want.on_change = self._changed

    @property
    def name(self) -> Key:
        """The name of the lock; of several, the first."""
        return self.names[0]

    @property
    def lost(self) -> str | None:
        """Why the lock is not held any longer, or None while it is."""
        if self._link.pid != os.getpid():
            return "fork"
        return self._link.core.lost(now(), self._want)

    def check(self) -> None:
        """Raise `Lost` if the lock is lost. Asks nobody: call it as often as you like."""
        reason = self.lost
        if reason is not None:
            raise Lost(reason)

    async def check_server(self) -> None:
        """Ask the server whether it is held; raise `Lost` if not, `Stale` if the server says so.

        One request for each name, on the connection of the locks, and at most the fence's time.
        """
        self.check()
        for key in self._want.keys:
            while True:
                try:
                    await self._link.call("LOCK.CHECK", key, self.token)
                    break
                except Refused as error:
                    if error.code != "STALE":
                        raise
                    if await self._link.leaves_replica():
                        continue
                    raise Stale(str(error), self.lost) from error
        self.check()

    async def run(self, *command: Any, on: redis.asyncio.Redis) -> Any:
        """Run one command only while the server knows the lock as held; return its raw reply.

        `on` is a client of `redis.asyncio` for the data. Its pool may be any; its server and
        database must be those of the locks, and in a cluster the keys in the slot of the name. The
        server checks and runs in one step (LOCK.GUARD). If the lock is not held, nothing is run:
        `Stale`. Of several names the first one counts. That client raises what the command's own
        error is, and if its connection breaks, the command may have been run.
        """
        self.check()
        client: Any = on
        key = self._want.keys[0]
        try:
            return await client.execute_command("LOCK.GUARD", key, self.token, *command)
        except ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    async def release(self) -> None:
        """Give the lock back; raise `Lost` if it was lost. A second time does nothing."""
        if self.lost is None:
            self._link.core.release(now(), self._want)
            self._link.settle()
            await self._until_ended()
        if self.lost != "released":
            self.check()

    async def extend(self, lease: float) -> None:
        """Let the lock end so many seconds from now, if it is not extended again."""
        self.check()
        for key in self._want.keys:
            words = ("LOCK.EXTEND", key, milliseconds(lease), "OWNER", self._want.label)
            try:
                await self._link.call(*words)
            except Refused as error:
                if error.code == "NOTHELD":
                    raise Lost(self.lost or "deleted") from error
                raise

    async def until_lost(self) -> str:
        """Wait until the lock is not held any longer, and return why."""
        while True:
            reason = self.lost
            if reason is not None:
                return reason
            await self._until_ended()

    async def _until_ended(self) -> None:
        if self._want.phase is Phase.ENDED:
            return
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiters.add(ended)
        try:
            await ended
        finally:
            self._waiters.discard(ended)

    def _changed(self, want: Want) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result("")
        self._interrupt()

    # Set while a task is within `async with`.
    _body: asyncio.Task[Any] | None = None
    _interrupted = False
    _cancels_before = 0

    def _interrupt(self) -> None:
        if self._body is None or self._interrupted:
            return
        if self.lost not in (None, "released"):
            self._interrupted = True
            self._body.cancel()

    def _begin(self) -> None:
        self.check()
        self._body = asyncio.current_task()
        self._cancels_before = _cancels_of(self._body)

    async def _finish(self, error: BaseException | None) -> None:
        """End the body: release, or raise `Lost` in the place of our own cancellation."""
        body, self._body = self._body, None
        if self._interrupted and not isinstance(error, asyncio.CancelledError):
            # The body may have ended before it heard of it: nothing after the block shall.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        was_cancelled_by_others = False
        if self._interrupted and body is not None and hasattr(body, "uncancel"):
            was_cancelled_by_others = body.uncancel() > self._cancels_before
        if isinstance(error, asyncio.CancelledError) and was_cancelled_by_others:
            return
        reason = self.lost
        if reason is None:
            try:
                await self.release()
            except Lost:
                if error is None:
                    raise
        elif reason == "released":
            return
        elif error is None or (self._interrupted and isinstance(error, asyncio.CancelledError)):
            raise Lost(reason) from error


class Lock:
    """A lock to be acquired: `async with` it, or `await lock.acquire()`."""

    def __init__(self, locks: Locks, request: Request, owner: bytes | None = None) -> None:
        """Describe a lock; `Locks` makes it."""
        self._locks = locks
        self._request = request
        self._owner = owner
        self._held: Held | None = None

    async def acquire(self) -> Held:
        """Acquire it. Whoever calls this must release it; on a loss nobody is cancelled."""
        link = await self._locks._connected()
        label = self._owner or self._locks._owner()
        _names, mode, wait_ms, lease_ms = self._request
        want = await link.acquire(self._request.keys, label, mode, wait_ms, lease_ms)
        return Held(link, want, self._request)

    async def __aenter__(self) -> Held:
        """Acquire it; on a loss the body is cancelled."""
        if self._held is not None:
            raise RuntimeError("this lock is in use; make another with the same name")
        held = await self.acquire()
        held._begin()
        self._held = held
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release it; raise `Lost` if it was lost, unless the body has raised something else."""
        held, self._held = self._held, None
        if held is not None:
            await held._finish(error)


class Term:
    """A leader's term of office: `async with` it. Its loss cancels the body, and is no error."""

    def __init__(self, held: Held) -> None:
        """Begin a term that holds this lock."""
        self._held = held
        self.token = held.token
        self.was_used = False

    async def __aenter__(self) -> Held:
        """Govern."""
        self.was_used = True
        self._held._begin()
        return self._held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Step down, or end because the term was lost."""
        try:
            await self._held._finish(error)
        except Lost:
            return error is None or isinstance(error, asyncio.CancelledError)
        return False


class Locks:
    """Locks of one server, on one connection that all tasks share.

    It connects when a lock is first asked for. Without a grace, what is held is lost when the
    connection ends, and the next request for a lock makes another. With one the connection is made
    anew at once, and what is held goes on there.
    """

    def __init__(
        self,
        server: str | redis.asyncio.Redis = "redis://localhost:6379",
        *,
        grace: float | None = None,
        stop_within: float = 0.0,
        fence: float | None = None,
        connect_timeout: float = 5.0,
        **options: Any,
    ) -> None:
        """Name the server.

        `server` is an address as redis-py takes it (`redis://`, `rediss://`, `unix://`), or a
        client of `redis.asyncio` whose settings are taken (also of `Sentinel.master_for`), never
        its connections. `options` are those of redis-py's connections. All times are in seconds.

        With a `grace` the locks are held in a session of the server: they survive a broken
        connection, and a restart or failover of the server, if the connection is made anew in time.
        The server gives the locks of a client that does not come back to others after the grace.

        `stop_within` is how long the work goes on after a loss, at most. `fence` is how long to
        rely on a server that does not answer; then all locks are lost. Unless given, it is as long
        as can be kept: the grace less `stop_within` and a second; without a grace half of the
        server's `tether.peer-timeout`, or that less `stop_within` and a second.
        """
        kind: Callable[..., AbstractConnection] = Connection
        if isinstance(server, str):
            settings: dict[str, Any] = {**parse_url(server), **options}
            kind = settings.pop("connection_class", kind)
        else:
            settings = {**server.connection_pool.connection_kwargs, **options}
            kind = server.connection_pool.connection_class
            if not issubclass(server.connection_pool.connection_class, AbstractConnection):
                raise TypeError("the locks take their settings from a client of redis.asyncio")
            # Connections that ask Sentinels know their pool by a weak reference.
            self._server = server
        for name in list(settings):
            if name in _NOT_OURS or "maint_notifications" in name:
                del settings[name]
        settings.update(protocol=3, retry=Retry(NoBackoff(), 0))
        settings.setdefault("client_name", "tether-locks")
        self._make = functools.partial(kind, **settings)
        if grace is not None:
            milliseconds(grace)
        if not stop_within >= 0:
            raise ValueError(f"{stop_within} is not a time in seconds")
        self._times = Times(fence, grace, stop_within, connect_timeout)
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._owners: weakref.WeakKeyDictionary[asyncio.Task[Any], bytes] = (
            weakref.WeakKeyDictionary()
        )
        self._numbers = itertools.count(1)

    # ---- locks ----

    def lock(
        self,
        name: Key,
        *,
        shared: bool = False,
        wait: float | None = None,
        lease: float | None = None,
    ) -> Lock:
        """Return a lock: exclusive, or `shared` among readers.

        `wait` is how many seconds to wait: for ever unless given, 0 not at all. After `lease`
        seconds, if given, the lock is lost unless it is extended.
        """
        return Lock(self, request((name,), ("SHARED",) if shared else (), wait, lease))

    def semaphore(
        self,
        name: Key,
        number: int = 1,
        *,
        of: int,
        wait: float | None = None,
        lease: float | None = None,
    ) -> Lock:
        """Return so many permits of a semaphore with `of` permits."""
        return Lock(self, request((name,), permits(number, of), wait, lease))

    def all(self, *names: Key, wait: float | None = None, lease: float | None = None) -> Lock:
        """Return several exclusive locks that are acquired in one step, or none of them."""
        return Lock(self, request(names, (), wait, lease))

    async def elect(self, name: Key) -> AsyncIterator[Term]:
        """Stand for election again and again; yield a term whenever it is won.

        Goes on while the server cannot be reached. A term that the caller does not enter with
        `async with` ends when the next one is asked for.
        """
        while True:
            try:
                held = await self.lock(name).acquire()
            except Unreachable:
                await asyncio.sleep(AGAIN_AFTER_S)
                continue
            if held.lost is not None:
                continue
            term = Term(held)
            try:
                yield term
            finally:
                if not term.was_used:
                    with contextlib.suppress(Lost):
                        await held.release()

    def singleton(
        self, name: Key, *, wait: float = 0, lease: float | None = None
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R | None]]]:
        """Let only one call of a function run at a time, wherever; others return None at once."""

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
            @functools.wraps(function)
            async def alone(*args: P.args, **kwargs: P.kwargs) -> R | None:
                lock = self.lock(name, wait=wait, lease=lease)
                async with contextlib.AsyncExitStack() as stack:
                    try:
                        await stack.enter_async_context(lock)
                    except Taken:
                        return None
                    return await function(*args, **kwargs)

            return alone

        return decorate

    # ---- the connection ----

    async def close(self) -> None:
        """End the connection; whatever is still held is lost."""
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        link, self._link = self._link, None
        if link is not None and link.is_open:
            await link.leave("closed")

    async def __aenter__(self) -> Locks:
        """Do nothing: it connects when a lock is asked for."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.close()

    async def _connected(self) -> Link:
        if self._link is not None and self._link.is_open:
            return self._link
        loop = asyncio.get_running_loop()
        connecting = self._connecting
        if connecting is None or connecting.done() or connecting.get_loop() is not loop:
            opening = Link.open(self._make, self._times)
            connecting = self._connecting = loop.create_task(opening)
            connecting.add_done_callback(self._opened)
        try:
            # Others may wait for the same connection.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled():
                raise Unreachable("the locks were closed") from None
            raise

    def _opened(self, connecting: asyncio.Task[Link]) -> None:
        if self._connecting is connecting:
            self._connecting = None
        if not connecting.cancelled() and connecting.exception() is None:
            self._link = connecting.result()

    def _owner(self) -> bytes:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a lock is acquired by a task")
        if task not in self._owners:
            self._owners[task] = b"task-%d" % next(self._numbers)
        return self._owners[task]


def _cancels_of(task: asyncio.Task[Any] | None) -> int:
    cancelling = getattr(task, "cancelling", None)
    return cancelling() if cancelling is not None else 0


__all__ = [
    "Held",
    "Lock",
    "LockError",
    "Locks",
    "Lost",
    "Refused",
    "Stale",
    "Taken",
    "Term",
    "Unreachable",
]

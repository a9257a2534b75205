"""Locks for asyncio. The words are those of `tether_locks`, with `async` and `await`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import math
import os
import random
import socket
import ssl
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import redis.asyncio
from redis.asyncio.connection import AbstractConnection, Connection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from ._link import ATTEMPTS_APART_S, WORD_WITHIN_S, Link, NotTrusted, Times
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
# Who waits tries to connect again after that, and after up to twice as long each further time.
SHORTEST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
# What a server says of a request that it will take a little later.
_ASK_AGAIN = ("BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN")


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
            self._let_go()
            await self._until_over()
        if self.lost != "released":
            self.check()

    def _let_go(self) -> None:
        """Begin to release it, unless that is done or it is lost."""
        self._link.core.release(now(), self._want)
        self._link.settle()

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
            await self._until_over()

    async def _until_over(self) -> None:
        """Wait until it has ended, or is the client's to release as soon as the server lets it."""
        while self._want.phase is not Phase.ENDED and not self._want.is_put_off:
            over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            self._waiters.add(over)
            try:
                await over
            finally:
                self._waiters.discard(over)

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


class _Wait:
    """How long a request goes on, on however many connections."""

    def __init__(self, locks: Locks, wait_ms: int | None) -> None:
        """Begin now; `wait_ms` is 0 for ever, and None not at all."""
        self._locks = locks
        self._wait_ms = wait_ms
        self._closings = locks._closings
        self._may_follow = True
        self.until = now() + wait_ms / 1000 if wait_ms else None

    def left_ms(self) -> int | None:
        """Return what is left, as `Core.ask` wants it."""
        if self.until is None:
            return self._wait_ms
        return max(1, math.ceil((self.until - now()) * 1000))

    def goes_on(self, error: LockError, link: Link | None) -> bool:
        """Whether to ask again after this error, on a connection that is open or was to be made."""
        if isinstance(error, NotTrusted) or self._locks._closings != self._closings:
            return False
        if isinstance(error, Refused):
            was_master = error.code == "REPLICA" and self._locks._was_connected
            if error.code not in _ASK_AGAIN and not was_master:
                return False
        if self._wait_ms is None:
            # The master is elsewhere, which is known only by asking this one.
            follows = self._may_follow and link is not None and link.core.ended == "demoted"
            self._may_follow = False
            return follows
        return True

    async def pause(self) -> bool:
        """Wait before the next attempt, but not beyond the time; return whether any is left."""
        at = now() + random.uniform(*ATTEMPTS_APART_S)
        # Others may have tried meanwhile.
        while now() < max(at, self._locks._again_at) and not self._is_over():
            until = max(at, self._locks._again_at)
            if self.until is not None:
                until = min(until, self.until)
            await asyncio.sleep(max(0, until - now()))
        return not self._is_over()

    def _is_over(self) -> bool:
        return self.until is not None and now() >= self.until


class Lock:
    """A lock to be acquired: `async with` it, or `await lock.acquire()`.

    Any number of tasks may use one: each has a request of its own.
    """

    def __init__(self, locks: Locks, request: Request, owner: bytes | None = None) -> None:
        """Describe a lock; `Locks` makes it."""
        self._locks = locks
        self._request = request
        self._owner = owner
        # What blocks hold, each for its task.
        self._entered: list[tuple[asyncio.Task[Any] | None, Held]] = []

    async def acquire(self) -> Held:
        """Acquire it. Whoever calls this must release it; on a loss nobody is cancelled.

        Whoever waits goes on when the connection ends or cannot be made, for as long as was said.
        """
        label = self._owner or self._locks._owner()
        keys = self._request.keys
        wait = _Wait(self._locks, self._request.wait_ms)
        while True:
            link = None
            try:
                link = await self._locks._connected(wait.until)
                want = await link.acquire(
                    keys, label, self._request.mode, wait.left_ms(), self._request.lease_ms
                )
                return Held(link, want, self._request)
            except (Unreachable, Refused) as error:
                if not wait.goes_on(error, link) or not await wait.pause():
                    raise

    async def __aenter__(self) -> Held:
        """Acquire it; on a loss the body is cancelled. Each block has a hold of its own."""
        held = await self.acquire()
        held._begin()
        self._entered.append((asyncio.current_task(), held))
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release it; raise `Lost` if it was lost, unless the body has raised something else."""
        task = asyncio.current_task()
        # A block may have been handed to another task (AsyncExitStack): then the last one.
        mine = [entry for entry in self._entered if entry[0] is task] or self._entered
        if not mine:
            raise RuntimeError("this lock was not entered")
        entry = mine[-1]
        self._entered.remove(entry)
        await entry[1]._finish(error)


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
        _check_hostname(kind, settings, isinstance(server, str) or "ssl_check_hostname" in options)
        settings.update(protocol=3, retry=Retry(NoBackoff(), 0))
        settings.setdefault("client_name", _client_name())
        self._make = functools.partial(kind, **settings)
        if grace is not None:
            milliseconds(grace)
        if not stop_within >= 0:
            raise ValueError(f"{stop_within} is not a time in seconds")
        self._times = Times(fence, grace, stop_within, connect_timeout)
        self._link: Link | None = None
        self._connecting: asyncio.Task[Link] | None = None
        self._closings = 0
        # Since the server is a master, or was one: it or another will be again.
        self._was_connected = False
        self._failures = 0
        self._again_at = 0.0
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

        `wait` is how many seconds to wait: for ever unless given, 0 not at all. A wait goes on
        while the server is away. After `lease` seconds, if given, the lock is lost unless it is
        extended.
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
        """Let only one call of a function run at a time, wherever; others return None at once.

        A generator, whose body runs after its call, is refused: TypeError.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
            if is_generator(function):
                raise TypeError("a generator runs after its call, so nothing would guard it")

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
        """End the connection; whatever is still held is lost, and nobody waits any longer."""
        self._closings += 1
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

    async def _connected(self, until: float | None) -> Link:
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
            others = asyncio.shield(connecting)
            if until is None:
                return await others
            return await asyncio.wait_for(others, max(0, until - now()) + WORD_WITHIN_S)
        except asyncio.TimeoutError:
            raise Unreachable("no connection to the server in the time to wait") from None
        except asyncio.CancelledError:
            if connecting.cancelled():
                raise Unreachable("the locks were closed") from None
            raise

    def _opened(self, connecting: asyncio.Task[Link]) -> None:
        if self._connecting is connecting:
            self._connecting = None
        if connecting.cancelled():
            return
        if connecting.exception() is None:
            self._link = connecting.result()
            self._failures, self._was_connected = 0, True
        else:
            # Random, since others have lost the same server.
            longest_s = min(LONGEST_PAUSE_S, SHORTEST_PAUSE_S * 2 ** min(self._failures, 10))
            self._failures += 1
            self._again_at = now() + longest_s * random.uniform(0.5, 1)

    def _owner(self) -> bytes:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a lock is acquired by a task")
        if task not in self._owners:
            self._owners[task] = b"task-%d" % next(self._numbers)
        return self._owners[task]


def _check_hostname(
    kind: Callable[..., AbstractConnection], settings: dict[str, Any], is_said: bool
) -> None:
    """Take the server's certificate only if it is of that host, unless the caller says otherwise.

    redis-py before 6.0 does not look at that unless told, and its clients tell it not to whether
    their caller has said (`is_said`) so or not.
    """
    if not (isinstance(kind, type) and issubclass(kind, SSLConnection)):
        return
    if settings.get("ssl_cert_reqs", "required") in (None, "none", ssl.CERT_NONE):
        return
    if redis.VERSION < (6,) and not is_said:
        settings.pop("ssl_check_hostname", None)
    settings.setdefault("ssl_check_hostname", True)


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether its body runs when what it returns is awaited."""
    return any(inspect.iscoroutinefunction(each) for each in _called(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether its body runs when what it returns is iterated over."""
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(each) for each in _called(function) for is_one in kinds)


def _client_name() -> str:
    """Return `tether:<host>:<pid>:<program>`, which `tether who` decodes."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    name = f"tether:{socket.gethostname()}:{os.getpid()}:{program}"
    return "".join(c if "!" <= c <= "~" else "_" for c in name)


def _called(function: Callable[..., Any]) -> tuple[Any, Any]:
    return function, type(function).__call__


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

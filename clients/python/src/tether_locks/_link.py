"""One connection to the server at a time: moves bytes between it and a `Core`, and keeps time.

redis-py makes the connection (addresses, TLS, users, Sentinel) and greets the server; what follows
on it is this package's own, since redis-py would connect anew, time out and retry by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import random
import ssl
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from .clock import now
from .core import RESUMES_PER_FENCE, Core, Phase, Want, Word
from .errors import LockError, Lost, Refused, Taken, Unreachable
from .resp import ReplyError, encode

CHUNK = 1 << 16
# On a Unix socket, whose peer cannot vanish, there is no peer-timeout to keep to.
LONGEST_FENCE_S = 5.0
SHORTEST_FENCE_S = 0.1
TICKS_PER_FENCE = 20
# What is kept between the end of the old work and the earliest next grant, for clocks that do not
# go alike.
MARGIN_S = 1.0
# Random, so that clients of a server that comes back do not come all at once.
ATTEMPTS_APART_S = (0.02, 0.1)
LEAVE_WITHIN_S = 2.0
# So long after the time to wait the server's own word is waited for, which is the better one.
WORD_WITHIN_S = 0.5
# These errors of TLS are those of a connection that broke. All others stay when it is made anew.
_BROKEN_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)

_open: weakref.WeakSet[Link] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Let go of the parent's connections, so that they end with the parent."""
    for link in list(_open):
        link.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


class Times(NamedTuple):
    """How long, in seconds: see `tether_locks.asyncio.Locks`."""

    fence: float | None
    grace: float | None
    stop_within: float
    connect: float


class Link:
    """A connection, and with a session those that follow it; and the tasks that attend to it."""

    def __init__(self, make: Callable[[], AbstractConnection]) -> None:
        """Prepare; `make` makes a connection that is not open yet."""
        self.loop = asyncio.get_running_loop()
        self.core = Core(now())
        self.pid = os.getpid()
        self._make = make
        self._connection: Any = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._is_leaving = False
        self._stop_within = 0.0
        self._tasks: list[asyncio.Task[None]] = []
        _open.add(self)

    @classmethod
    async def open(cls, make: Callable[[], AbstractConnection], times: Times) -> Link:
        """Connect, and see whether this server can keep what the locks promise."""
        link = cls(make)
        try:
            await link._connect(times.connect)
            link._tasks = [link.loop.create_task(link._attend())]
            await asyncio.wait_for(link._prepare(times), times.connect)
            link._tasks.append(link.loop.create_task(link._keep_time()))
            return link
        except BaseException as error:
            link.close("connection")
            ours = _as_ours(error)
            if ours is error:
                raise
            raise ours from error

    async def _prepare(self, times: Times) -> None:
        sent_at = now()
        server = await self.call("LOCK.SERVER")
        self._stop_within = times.stop_within
        is_local = isinstance(self._connection, UnixDomainSocketConnection)
        self.core.fence = fence_of(server, times, is_local)
        self.core.answered_at = sent_at
        if times.grace is not None:
            grace_ms = math.ceil(times.grace * 1000)
            self.core.secret = await self.call("SESSION.START", "GRACE", grace_ms)
            self.core.run_id = server[b"run-id"]

    async def call(self, *words: Word) -> Any:
        """Send a command that is answered at once."""
        answer: asyncio.Future[Any] = self.loop.create_future()

        def then(reply: Any) -> None:
            if answer.done():
                return
            if isinstance(reply, ReplyError):
                answer.set_exception(Refused(str(reply)))
            elif isinstance(reply, Lost):
                answer.set_exception(reply)
            else:
                answer.set_result(reply)

        self.core.call(now(), words, then, again=True)
        self.settle()
        return await answer

    async def leaves_replica(self) -> bool:
        """Whether this server is a replica now, and the session goes on elsewhere.

        A replica calls every token stale.
        """
        if self.core.secret is None:
            return False
        server = await self.call("LOCK.SERVER")
        if server.get(b"role") == b"master":
            return False
        self.core.broke(now())
        self.settle()
        return self.core.ended is None

    async def acquire(
        self,
        keys: tuple[bytes, ...],
        label: bytes,
        mode: tuple[Word, ...],
        wait_ms: int | None,
        lease_ms: int | None,
    ) -> Want:
        """Ask for a lock and wait for it; cancelled at any moment it leaves nothing behind.

        The time to wait is this client's, too: a server that does not answer prolongs nothing.
        """
        want = self.core.ask(now(), keys, label, mode, wait_ms, lease_ms)
        outcome: asyncio.Future[None] = self.loop.create_future()

        def changed(want: Want) -> None:
            if outcome.done():
                return
            if want.error is not None:
                outcome.set_exception(want.error)
            else:
                outcome.set_result(None)

        def too_late() -> None:
            if outcome.done():
                return
            if want.phase is Phase.WAITING:
                outcome.set_exception(Taken("another owner has the lock"))
            else:
                outcome.set_exception(
                    Unreachable("the server has not answered in the time to wait")
                )
            self.core.give_up(now(), want)
            self.settle()

        want.on_change = changed
        self.settle()
        timer = None
        if wait_ms:
            timer = self.loop.call_later(wait_ms / 1000 + WORD_WITHIN_S, too_late)
        try:
            await outcome
        except asyncio.CancelledError:
            if not outcome.cancelled():
                outcome.exception()  # It is known: asyncio need not say that nobody looked.
            self.core.give_up(now(), want)
            self.settle()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return want

    def settle(self) -> None:
        """Send what is to be sent, and say what has changed."""
        if self.pid != os.getpid():
            return
        output = self.core.output()
        if output and self._writer is not None and self.core.ended is None:
            self._writer.write(output)
        for want in self.core.changed():
            want.on_change(want)
        if self.core.ended is not None:
            self._abort()
        elif self.core.is_down:
            self._hang_up()

    def close(self, reason: str) -> None:
        """End the connection, and all that it holds."""
        self.core.end(reason)
        self.settle()

    async def leave(self, reason: str) -> None:
        """Close it, and end the session, so that nothing stays for its grace."""
        writer = self._writer
        if self.core.is_up and self.core.secret is not None and writer is not None:
            self._is_leaving = True
            try:
                # Nothing may rely on a lock when the server hears of it.
                self.close(reason)
                writer.write(encode(("SESSION.END",)) + encode(("QUIT",)))
                await asyncio.wait(self._tasks[:1], timeout=LEAVE_WITHIN_S)
            finally:
                self._is_leaving = False
        self.close(reason)

    def forget(self) -> None:
        """In a child process: let the parent's connection be the parent's alone."""
        writer = getattr(self._connection, "_writer", None)
        if writer is None:
            return
        with contextlib.suppress(ValueError):
            replace_descriptor(writer.get_extra_info("socket").fileno())

    @property
    def is_open(self) -> bool:
        """Whether it can still be used, here."""
        if self.pid != os.getpid() or self.loop is not asyncio.get_running_loop():
            return False
        self.core.tick(now())
        self.settle()
        return self.core.ended is None

    async def _connect(self, timeout_s: float) -> None:
        self._connection = self._make()
        try:
            await asyncio.wait_for(self._connection.connect(), timeout_s)
            self._reader, self._writer = self._connection._reader, self._connection._writer
            if self._reader is None or self._writer is None:
                raise Unreachable("the connection ended at once")
        except BaseException:
            with contextlib.suppress(Exception):
                await self._connection.disconnect(nowait=True)
            raise

    async def _attend(self) -> None:
        """Read, and connect anew where there is a session to go on with."""
        try:
            while True:
                await self._read()
                self.core.broke(now())
                self.settle()
                if self.core.ended is not None:
                    return
                await asyncio.sleep(random.uniform(*ATTEMPTS_APART_S))
                await self._resume()
        finally:
            self.close("connection")

    async def _read(self) -> None:
        try:
            while self._reader is not None and (self.core.ended is None or self._is_leaving):
                data = await self._reader.read(CHUNK)
                if not data:
                    return
                self.core.receive(now(), data)
                self.settle()
        except OSError:
            pass

    async def _resume(self) -> None:
        fence_s = self.core.fence or SHORTEST_FENCE_S
        with contextlib.suppress(OSError, RedisError, asyncio.TimeoutError, Unreachable):
            await self._connect(fence_s / RESUMES_PER_FENCE)
            self.core.connected(now())
            self.settle()

    async def _keep_time(self) -> None:
        fence_s = self.core.fence or SHORTEST_FENCE_S
        while self.core.ended is None:
            await asyncio.sleep(fence_s / TICKS_PER_FENCE)
            self.core.tick(now())
            self.settle()

    def _hang_up(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
            # redis-py warns of connections that are dropped while they look open.
            self._connection._reader = self._connection._writer = None
        self._reader = self._writer = None

    def _abort(self) -> None:
        if self._is_leaving:
            return
        for task in self._tasks:
            if task is not asyncio.current_task(self.loop):
                task.cancel()
        if self.core.ended == "silence" and self.core.secret is None and self._stop_within > 0:
            # At the end of the connection the server frees what it held. Who has just been told of
            # the loss needs that long to stop.
            self.loop.call_later(self._stop_within, self._part)
        else:
            self._part()

    def _part(self) -> None:
        _open.discard(self)
        self._hang_up()


def replace_descriptor(descriptor: int) -> None:
    """Close it, and leave its number to nobody: what knows that may close it later."""
    if descriptor < 0:
        return
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


def fence_of(server: dict[bytes, Any], times: Times, is_local: bool) -> float:
    """Return how long an answer vouches for the locks, or refuse a server that cannot keep it.

    The server gives a lock away when its peer has been silent for `peer-timeout-ms`, or when a
    session's grace is over. Before that the work must have stopped, and a margin is left. Without a
    session the fence is half of the peer timeout at most.
    """
    if server.get(b"role") != b"master":
        raise Refused("REPLICA this server is a replica, which grants nothing")
    if server.get(b"pushes") != 1:
        raise Refused("NOPUSH this server sends no pushes to this connection")
    peer_timeout_s = server[b"peer-timeout-ms"] / 1000
    if times.grace is not None:
        what = f"the grace of {times.grace} s"
        longest_s = times.grace - times.stop_within - MARGIN_S
    elif peer_timeout_s:
        what = f"the server's tether.peer-timeout of {peer_timeout_s} s"
        longest_s = min(peer_timeout_s / 2, peer_timeout_s - times.stop_within - MARGIN_S)
    elif is_local:
        what = "a Unix socket"
        longest_s = LONGEST_FENCE_S
    else:
        raise Refused("FENCE this server detects no peers that vanish: tether.peer-timeout is 0")
    if longest_s < SHORTEST_FENCE_S:
        raise Refused(
            f"FENCE {what} is too short for work that takes {times.stop_within} s to stop: it must"
            f" be {times.stop_within + MARGIN_S + SHORTEST_FENCE_S} s or more"
        )
    fence_s = longest_s if times.fence is None else times.fence
    if not SHORTEST_FENCE_S <= fence_s <= longest_s:
        raise Refused(
            f"FENCE a fence of {fence_s} s cannot be kept with {what}: it goes from"
            f" {SHORTEST_FENCE_S} to {longest_s} s"
        )
    return fence_s


class NotTrusted(Unreachable):
    """TLS failed: a certificate that does not fit. It would fail again."""


def _error_of_tls(error: BaseException | None) -> ssl.SSLError | None:
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return None if isinstance(error, _BROKEN_TLS) else error


def _as_ours(error: BaseException) -> BaseException:
    tls = _error_of_tls(error)
    if tls is not None:
        return NotTrusted(f"{error} ({tls})")
    if isinstance(error, (Lost, asyncio.TimeoutError, OSError)):
        return Unreachable(f"no answer from the server: {error or type(error).__name__}")
    if isinstance(error, LockError):
        if isinstance(error, Refused) and "unknown command" in str(error):
            return Refused("NOMODULE this server has not loaded tether: " + str(error))
        return error
    if isinstance(error, (AuthenticationError, ResponseError)):
        return Refused(str(error))
    if isinstance(error, RedisError):
        return Unreachable(str(error))
    return error

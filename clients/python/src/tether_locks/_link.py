"""One connection to the server, made once: moves bytes between it and a `Core`, and keeps time.

redis-py makes the connection (addresses, TLS, users, Sentinel) and greets the server; what follows
on it is this package's own, since redis-py would connect anew, time out and retry by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Any

from redis.asyncio.connection import AbstractConnection, UnixDomainSocketConnection
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from .clock import now
from .core import Core, Want, Word
from .errors import LockError, Lost, Refused, Unreachable
from .resp import ReplyError

CHUNK = 1 << 16
# On a Unix socket, whose peer cannot vanish, there is no peer-timeout to keep to.
LONGEST_FENCE_S = 5.0
SHORTEST_FENCE_S = 0.1
TICKS_PER_FENCE = 20

_open: weakref.WeakSet[Link] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Let go of the parent's connections, so that they end with the parent.

    A descriptor is replaced, not closed: what still knows its number may close it later.
    """
    for link in list(_open):
        link.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


class Link:
    """A connection, and the tasks that read from it and keep its time."""

    def __init__(self, connection: AbstractConnection) -> None:
        """Take over a connection that redis-py has just made."""
        self.loop = asyncio.get_running_loop()
        self.core = Core(now())
        self.pid = os.getpid()
        self._connection = connection
        reader, writer = connection._reader, connection._writer
        if reader is None or writer is None:
            raise Unreachable("the connection ended at once")
        self._reader, self._writer = reader, writer
        _open.add(self)
        self._tasks = [self.loop.create_task(self._read())]

    @classmethod
    async def open(
        cls, make: Callable[[], AbstractConnection], fence_s: float | None, timeout_s: float
    ) -> Link:
        """Connect, and see whether this server can keep what the locks promise."""
        connection: Any = make()
        is_local = isinstance(connection, UnixDomainSocketConnection)
        link = None
        try:
            await asyncio.wait_for(connection.connect(), timeout_s)
            link = cls(connection)
            sent_at = now()
            server = await asyncio.wait_for(link.call("LOCK.SERVER"), timeout_s)
            link.core.fence = fence_of(server, fence_s, is_local)
            link.core.answered_at = sent_at
            link._tasks.append(link.loop.create_task(link._keep_time(link.core.fence)))
            return link
        except BaseException as error:
            if link is not None:
                link.close("connection")
            else:
                with contextlib.suppress(Exception):
                    await connection.disconnect(nowait=True)
            ours = _as_ours(error)
            if ours is error:
                raise
            raise ours from error

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

        self.core.call(now(), words, then)
        self.settle()
        return await answer

    async def acquire(self, *request: Any) -> Want:
        """Ask for a lock and wait for it; cancelled at any moment it leaves nothing behind."""
        want = self.core.ask(now(), *request)
        outcome: asyncio.Future[None] = self.loop.create_future()

        def changed(want: Want) -> None:
            if outcome.done():
                return
            if want.error is not None:
                outcome.set_exception(want.error)
            else:
                outcome.set_result(None)

        want.on_change = changed
        self.settle()
        try:
            await outcome
        except asyncio.CancelledError:
            if not outcome.cancelled():
                outcome.exception()  # It is known: asyncio need not say that nobody looked.
            self.core.give_up(now(), want)
            self.settle()
            raise
        return want

    def settle(self) -> None:
        """Send what is to be sent, and say what has changed."""
        if self.pid != os.getpid():
            return
        output = self.core.output()
        if output and self.core.ended is None:
            self._writer.write(output)
        for want in self.core.changed():
            want.on_change(want)
        if self.core.ended is not None:
            self._abort()

    def close(self, reason: str) -> None:
        """End the connection, and all that it holds."""
        self.core.end(reason)
        self.settle()

    def forget(self) -> None:
        """In a child process: let the parent's connection be the parent's alone."""
        socket = self._writer.get_extra_info("socket")
        with contextlib.suppress(OSError, ValueError):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, socket.fileno(), inheritable=False)
            os.close(nothing)

    @property
    def is_open(self) -> bool:
        """Whether it can still be used, here."""
        if self.pid != os.getpid() or self.loop is not asyncio.get_running_loop():
            return False
        self.core.tick(now())
        self.settle()
        return self.core.ended is None

    async def _read(self) -> None:
        try:
            while self.core.ended is None:
                data = await self._reader.read(CHUNK)
                if not data:
                    break
                self.core.receive(now(), data)
                self.settle()
        except OSError:
            pass
        finally:
            self.close("connection")

    async def _keep_time(self, fence_s: float) -> None:
        while self.core.ended is None:
            await asyncio.sleep(fence_s / TICKS_PER_FENCE)
            self.core.tick(now())
            self.settle()

    def _abort(self) -> None:
        _open.discard(self)
        for task in self._tasks:
            if task is not asyncio.current_task(self.loop):
                task.cancel()
        self._writer.transport.abort()
        # redis-py warns of connections that are dropped while they look open.
        self._connection._reader = self._connection._writer = None


def fence_of(server: dict[bytes, Any], wanted_s: float | None, is_local: bool) -> float:
    """Return how long an answer vouches for the locks, or refuse a server that cannot keep it.

    The server gives a lock away when its peer has been silent for `peer-timeout-ms`. Half of that
    leaves the other half for what the holder does when it hears of the loss.
    """
    if server.get(b"role") != b"master":
        raise Refused("REPLICA this server is a replica, which grants nothing")
    if server.get(b"pushes") != 1:
        raise Refused("NOPUSH this server sends no pushes to this connection")
    peer_timeout_s = server[b"peer-timeout-ms"] / 1000
    if not peer_timeout_s and not is_local:
        raise Refused("FENCE this server detects no peers that vanish: tether.peer-timeout is 0")
    longest_s = peer_timeout_s / 2 if peer_timeout_s else LONGEST_FENCE_S
    fence_s = longest_s if wanted_s is None else wanted_s
    if not SHORTEST_FENCE_S <= fence_s <= longest_s:
        raise Refused(
            f"FENCE a fence of {fence_s} s cannot be kept: it goes from {SHORTEST_FENCE_S} to"
            f" {longest_s} s, half of the server's tether.peer-timeout"
        )
    return fence_s


def _as_ours(error: BaseException) -> BaseException:
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

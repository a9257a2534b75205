"""Connections, time and an event loop around a `Core`.

One client is of one loop and one process: a child process, or another loop, makes its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from ._ask import Event, Order, Settings
from ._connect import CHUNK, Greeted
from .clock import now
from .core import Core
from .errors import LockError, Lost, Unreachable
from .resp import Malformed, encode

if TYPE_CHECKING:
    from ._cluster import Cluster

log = logging.getLogger("tether_locks")

# That no server can be reached is said again after so long, in milliseconds.
WARN_EVERY = 60_000.0

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


class Listener(Protocol):
    """What calls of the core are made with."""

    def on_event(self, event: Event) -> None:
        """Hear of something; never call the client from here."""


def close_all(loop: asyncio.AbstractEventLoop) -> None:
    """In this loop: end what its clients hold, as far as the sockets take it at once."""
    for client in list(_clients):
        if client.loop is loop:
            client.do(client.core.close)


class Opener(Protocol):
    """Where to connect."""

    async def open(self, within: float) -> Greeted:
        """Open a connection to a master, or raise what was wrong."""


class Client:
    """A core, the connection that it has now, and those that are about to be closed."""

    cluster: Cluster | None = None

    def __init__(self, places: Opener, settings: Settings) -> None:
        """Begin without a connection."""
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.core = Core(now(), settings)
        self._places = places
        self._writer: asyncio.StreamWriter | None = None
        self._attempt: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # That one, and those that are ending.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._parted: asyncio.Event = asyncio.Event()
        self._logged: LockError | None = None
        self._warn_at = 0.0
        _clients.add(self)

    @property
    def is_here(self) -> bool:
        """Whether it can be used by who asks: in its process, its loop, and not closed."""
        is_here = self.pid == os.getpid() and self.loop is asyncio.get_running_loop()
        return is_here and not self.core.is_closed

    def do(self, act: Callable[[], object]) -> None:
        """Make a call of the core: what is due comes first, and what follows from it is done."""
        if self.pid != os.getpid():
            return
        self.core.tick(now())
        act()
        self.settle()

    async def close(self) -> None:
        """End the session, if there is one, and the connection (P-CLOSE-1)."""
        self.do(self.core.close)
        await self._parted.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def settle(self) -> None:
        """Send what is to be sent, tell what is to be told, and obey."""
        core = self.core
        if core.output and self._writer is not None:
            self._writer.write(b"".join(map(encode, core.output)))
        core.output.clear()
        # They stay there until they were told: `Held.lost` looks, in other threads too.
        events = list(core.events)
        for event in events:
            _log(event)
            if event.handle is not None:
                listener: Any = event.handle
                listener.on_event(event)
        del core.events[: len(events)]
        orders, core.orders = core.orders, []
        for order in orders:
            self._obey(order)
        self._set_timer()
        self._log_failure()
        if core.is_closed and core.link == "none":
            self._parted.set()

    def _log_failure(self) -> None:
        """Say why there is no connection; loudly if somebody waits for one who may not know."""
        failure, core = self.core.failure, self.core
        if failure is None:
            self._warn_at = 0.0
        elif failure is not self._logged and not core.is_wanted:
            log.info("%s", failure)
        elif failure is not self._logged:
            is_due = core.now >= self._warn_at
            self._warn_at = core.now + WARN_EVERY if is_due else self._warn_at
            log.log(logging.WARNING if is_due else logging.INFO, "%s; trying on", failure)
        self._logged = failure

    def _obey(self, order: Order) -> None:
        if order.kind == "connect":
            self._attempt = self.loop.create_task(self._attend())
            self._tasks.add(self._attempt)
            self._attempt.add_done_callback(self._tasks.discard)
            return
        attempt, self._attempt = self._attempt, None
        writer, self._writer = self._writer, None
        if attempt is not None and attempt is not asyncio.current_task(self.loop):
            attempt.cancel()
        if writer is not None:
            log.info("leaving the connection")
            if order.after:
                # What writes is kept until then: its end would end the connection.
                self.loop.call_later(order.after / 1000, lambda: writer.transport.abort())
            else:
                writer.transport.abort()

    def _set_timer(self) -> None:
        at = self.core.next_tick
        if self._timer is not None and (at is None or at < self._timer_at):
            self._timer.cancel()
            self._timer = None
        if at is not None and self._timer is None:
            self._timer_at = at
            # Not earlier by a rounding.
            self._timer = self.loop.call_later(max(0.0, at - now()) / 1000 + 0.0005, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.do(lambda: None)

    async def _attend(self) -> None:
        """Open a connection and read from it, until it ends or is left."""
        try:
            greeted = await self._places.open(self.core.open_within / 1000)
        except LockError as error:
            self._not_open(error)
            return
        except asyncio.CancelledError:
            # If this attempt still counts, not by `_obey`: something that a provider awaited was.
            self._not_open(Unreachable("the attempt to connect was cancelled"))
            raise
        except Exception as error:
            log.exception("a fault of this client; it gives the attempt to connect up")
            self._not_open(Unreachable(f"no connection: {error!r}"))
            return
        if self._attempt is not asyncio.current_task():
            greeted.writer.transport.abort()
            return
        self._writer = greeted.writer
        log.info("connected to %s", greeted.writer.get_extra_info("peername"))
        try:
            self.do(lambda: self.core.connected(greeted.is_unix, greeted.where))
            await self._read(greeted)
        except Exception:
            log.exception("a fault of this client; it leaves the connection")
        if self._writer is greeted.writer:
            log.info("the connection broke")
            self._writer = self._attempt = None
            greeted.writer.transport.abort()
            self.do(self.core.broke)

    def _not_open(self, error: LockError) -> None:
        if self._attempt is asyncio.current_task():
            self._attempt = None
            self.do(lambda: self.core.unreached(error))

    async def _read(self, greeted: Greeted) -> None:
        frames: Iterable[Any] = greeted.frames
        with contextlib.suppress(OSError, Malformed):
            while self._writer is greeted.writer:
                self._receive(frames, greeted)
                if self._writer is not greeted.writer:
                    return
                data = await greeted.reader.read(CHUNK)
                if not data:
                    return
                frames = greeted.parser.feed(data)

    def _receive(self, frames: Iterable[Any], greeted: Greeted) -> None:
        """Take frames, and do what follows from each before the next one if it is left."""
        core = self.core
        core.tick(now())
        try:
            for frame in frames:
                core.receive(frame)
                if core.orders:
                    self.settle()
                    if self._writer is not greeted.writer:
                        return
        finally:
            self.settle()


def _log(event: Event) -> None:
    names, error = _said(getattr(event.handle, "names", "")), event.error
    if isinstance(error, Lost) and event.kind == "lost":
        log.warning("lost lock %s: %s", names, error.reason)
    elif event.kind == "releasing":
        log.warning("the server refused to release lock %s, and is asked again: %s", names, error)
    elif event.kind == "ended":
        log.warning("the watch of %s ended: %s", names, error)
    elif event.kind == "warning":
        log.warning("%s", error)
    else:
        log.debug("%s %s %s", event.kind, names, event.value or error or "")


def _said(names: str | bytes | tuple[str | bytes, ...]) -> str:
    """Return names as a reader knows them."""
    if isinstance(names, tuple):
        return ", ".join(map(_said, names))
    return repr(names if isinstance(names, str) else names.decode(errors="backslashreplace"))

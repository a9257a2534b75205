"""Locks for threads: the same as for asyncio, whose loop runs in a thread of its own.

Each process has one such thread, made when it is first needed; a child process makes its own.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import redis

from . import asyncio as aio
from ._request import Key, Request, permits, request
from .errors import Lost, Taken, Unreachable, raise_if_stale

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")


class _Portal:
    """The thread in which all connections of this process live."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, name="tether-locks", daemon=True)
        thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def call(
        self,
        work: Coroutine[Any, Any, R],
        give_back: Callable[[R], Awaitable[None]] | None = None,
    ) -> R:
        """Run it there. What it returns to a caller who was interrupted is given back."""
        result: concurrent.futures.Future[R] = concurrent.futures.Future()
        task: asyncio.Task[None] | None = None

        async def run() -> None:
            try:
                value = await work
            except BaseException as error:
                if result.set_running_or_notify_cancel():
                    result.set_exception(error)
                return
            if result.set_running_or_notify_cancel():
                result.set_result(value)
            elif give_back is not None:
                with contextlib.suppress(Exception):
                    await give_back(value)

        def start() -> None:
            nonlocal task
            task = self.loop.create_task(run())

        def stop() -> None:
            if task is not None:
                task.cancel()

        self.loop.call_soon_threadsafe(start)
        try:
            return result.result()
        except BaseException:
            if result.cancel():
                self.loop.call_soon_threadsafe(stop)
            elif give_back is not None and result.done() and result.exception() is None:
                asyncio.run_coroutine_threadsafe(_ignored(give_back(result.result())), self.loop)
            raise


async def _ignored(work: Awaitable[None]) -> None:
    with contextlib.suppress(Exception):
        await work


_making = threading.Lock()
_portal: _Portal | None = None
_numbers = itertools.count(1)
_left_to_the_parent: list[_Portal | None] = []


def _forget_after_fork() -> None:
    global _making, _portal
    # Kept, since its end would touch what the parent still uses.
    _left_to_the_parent.append(_portal)
    _making, _portal = threading.Lock(), None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


def _here() -> _Portal:
    global _portal
    with _making:
        if _portal is None:
            _portal = _Portal()
        return _portal


class Held:
    """A lock that is held, or was."""

    def __init__(self, held: aio.Held) -> None:
        """Describe a grant."""
        self._held = held
        self.names = held.names
        self.token = held.token

    @property
    def name(self) -> Key:
        """The name of the lock; of several, the first."""
        return self.names[0]

    @property
    def lost(self) -> str | None:
        """Why the lock is not held any longer, or None while it is."""
        return self._held.lost

    def check(self) -> None:
        """Raise `Lost` if the lock is lost. Asks nobody: call it as often as you like."""
        self._held.check()

    def check_server(self) -> None:
        """Ask the server whether it is held; raise `Lost` if not, `Stale` if the server says so.

        One request for each name, on the connection of the locks, and at most the fence's time.
        """
        self.check()
        _here().call(self._held.check_server())

    def run(self, *command: Any, on: redis.Redis) -> Any:
        """Run one command only while the server knows the lock as held; return its raw reply.

        `on` is a client of `redis` for the data. Its pool may be any; its server and
        database must be those of the locks, and in a cluster the keys in the slot of the name. The
        server checks and runs in one step (LOCK.GUARD). If the lock is not held, nothing is run:
        `Stale`. Of several names the first one counts. That client raises what the command's own
        error is, and if its connection breaks, the command may have been run.
        """
        self.check()
        client: Any = on
        key = self._held._want.keys[0]
        try:
            return client.execute_command("LOCK.GUARD", key, self.token, *command)
        except redis.ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    def release(self) -> None:
        """Give the lock back; raise `Lost` if it was lost. A second time does nothing."""
        if self.lost == "fork":
            self.check()
        _here().call(self._held.release())

    def extend(self, lease: float) -> None:
        """Let the lock end so many seconds from now, if it is not extended again."""
        self._held.check()
        _here().call(self._held.extend(lease))

    def until_lost(self) -> str:
        """Wait until the lock is not held any longer, and return why."""
        return self.lost or _here().call(self._held.until_lost())


class Lock:
    """A lock to be acquired: `with` it, or `lock.acquire()`."""

    def __init__(self, locks: Locks, request: Request) -> None:
        """Describe a lock; `Locks` makes it."""
        self._locks = locks
        self._request = request
        self._held: Held | None = None

    def acquire(self) -> Held:
        """Acquire it. Whoever calls this must release it."""
        lock = aio.Lock(self._locks._locks, self._request, self._locks._owner())
        return Held(_here().call(lock.acquire(), aio.Held.release))

    def __enter__(self) -> Held:
        """Acquire it."""
        if self._held is not None:
            raise RuntimeError("this lock is in use; make another with the same name")
        self._held = self.acquire()
        return self._held

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release it; raise `Lost` if it was lost, unless the body has raised something else."""
        held, self._held = self._held, None
        if held is not None:
            try:
                held.release()
            except Lost:
                if error is None:
                    raise


class Term:
    """A leader's term of office: `with` it. Its loss is no error."""

    def __init__(self, held: Held) -> None:
        """Begin a term that holds this lock."""
        self._held = held
        self.token = held.token
        self.was_used = False

    def __enter__(self) -> Held:
        """Govern: look at `lost`, or call `check`, before each step."""
        self.was_used = True
        return self._held

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Step down, or end because the term was lost."""
        with contextlib.suppress(Lost):
            self._held.release()
        return isinstance(error, Lost)


class Locks:
    """Locks of one server, on one connection that all threads share.

    It connects when a lock is first asked for. Without a grace, what is held is lost when the
    connection ends, and the next request for a lock makes another. With one the connection is made
    anew at once, and what is held goes on there. A child process has a connection of its own.
    """

    def __init__(self, server: Any = "redis://localhost:6379", **options: Any) -> None:
        """Name the server; what it takes is what `tether_locks.asyncio.Locks` takes."""
        self._locks = aio.Locks(server, **options)
        self._threads = threading.local()

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

    def elect(self, name: Key) -> Iterator[Term]:
        """Stand for election again and again; yield a term whenever it is won.

        Goes on while the server cannot be reached. A term that the caller does not enter with
        `with` ends when the next one is asked for.
        """
        pause = threading.Event()
        while True:
            try:
                held = self.lock(name).acquire()
            except Unreachable:
                pause.wait(aio.AGAIN_AFTER_S)
                continue
            term = Term(held)
            try:
                yield term
            finally:
                if not term.was_used:
                    with contextlib.suppress(Lost):
                        held.release()

    def singleton(
        self, name: Key, *, wait: float = 0, lease: float | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Let only one call of a function run at a time, wherever; others return None at once."""

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            @functools.wraps(function)
            def alone(*args: P.args, **kwargs: P.kwargs) -> R | None:
                with contextlib.ExitStack() as stack:
                    try:
                        stack.enter_context(self.lock(name, wait=wait, lease=lease))
                    except Taken:
                        return None
                    return function(*args, **kwargs)

            return alone

        return decorate

    def close(self) -> None:
        """End the connection; whatever is still held is lost."""
        _here().call(self._locks.close())

    def __enter__(self) -> Locks:
        """Do nothing: it connects when a lock is asked for."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()

    def _owner(self) -> bytes:
        owner: bytes | None = getattr(self._threads, "owner", None)
        if owner is None:
            owner = self._threads.owner = b"thread-%d" % next(_numbers)
        return owner

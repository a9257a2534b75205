"""The interface of `redis.lock.Lock`, on locks that live as long as a connection."""

from __future__ import annotations

import threading
import time
from typing import Any

from redis.exceptions import LockError, LockNotOwnedError

from .._request import Key
from .._threads import Held, Locks
from ..errors import Lost, Taken


class Lock:
    """Made from `Locks` instead of a client of redis-py; the rest is as there.

    Without a `timeout` it is held until it is released, or its process or connection ends. `sleep`
    means nothing, since nobody polls. A caller that may be interrupted by a signal handler uses
    `locks.lock` in a `with`, which leaves nothing held at whatever moment.
    """

    def __init__(
        self,
        locks: Locks,
        name: Key,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        """Describe a lock."""
        self._locks = locks
        self.name = name
        self.timeout = timeout
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if thread_local else type("dummy", (), {})()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: object = None,
    ) -> bool:
        """Return whether it was acquired. Tokens are the server's: `token` means nothing."""
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        if not (self.blocking if blocking is None else blocking):
            wait = 0
        try:
            held = self._locks.lock(self.name, wait=wait, lease=self.timeout).acquire()
        except Taken:
            return False
        self.local.held, self.local.until = held, time.monotonic() + (self.timeout or 0)
        return True

    def __enter__(self) -> Lock:
        """Acquire it, or raise redis-py's LockError."""
        if not self.acquire():
            raise LockError("Unable to acquire lock within the time specified")
        return self

    def __exit__(self, *error: object) -> None:
        """Release it."""
        try:
            self.release()
        except LockError:
            if self.raise_on_release_error:
                raise

    def locked(self) -> bool:
        """Whether anybody has it."""
        return next(self._locks.watch(self.name)).state == "exists"

    def owned(self) -> bool:
        """Whether this one has it."""
        held: Held | None = getattr(self.local, "held", None)
        return held is not None and held.lost is None

    def release(self) -> None:
        """Release it; LockError if it was not acquired, LockNotOwnedError if it was lost."""
        held, self.local.held = self._held("Cannot release an unlocked lock"), None
        try:
            held.release()
        except Lost as error:
            raise LockNotOwnedError("Cannot release a lock that's no longer owned") from error

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Add to the time that is left, or with `replace_ttl` let it end so long from now."""
        held = self._held("Cannot extend an unlocked lock")
        if self.timeout is None:
            raise LockError("Cannot extend a lock with no timeout")
        left = 0.0 if replace_ttl else max(0.0, self.local.until - time.monotonic())
        until = time.monotonic() + left + additional_time
        try:
            held.extend(left + additional_time)
        except Lost as error:
            raise LockNotOwnedError("Cannot extend a lock that's no longer owned") from error
        self.local.until = until
        return True

    def reacquire(self) -> bool:
        """Let it end `timeout` from now."""
        if self.timeout is None:
            raise LockError("Cannot reacquire a lock with no timeout")
        return self.extend(self.timeout, replace_ttl=True)

    def _held(self, otherwise: str) -> Held:
        held: Held | None = getattr(self.local, "held", None)
        if held is None:
            raise LockError(otherwise)
        return held

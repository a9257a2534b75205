"""A base class for tasks of Celery's that run once at a time."""

from __future__ import annotations

from typing import Any

from celery import Task

from .._threads import Locks
from ..errors import Taken


class LockedTask(Task):  # type: ignore[misc]
    """`@app.task(base=LockedTask, locks=locks)`: a call that finds the lock taken is left out.

    With `retry_after` (seconds) it is tried again, as often as `max_retries` says. Override
    `lock_name` where calls with other arguments may run at the same time.
    """

    abstract = True
    locks: Locks
    lock_wait: float = 0.0
    retry_after: float | None = None

    def lock_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return what is locked: the task's name."""
        return str(self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it with the lock; return None if that is taken."""
        has_run = []

        @self.locks.singleton(self.lock_name(args, kwargs), wait=self.lock_wait)
        def alone() -> Any:
            has_run.append(True)
            return self.run(*args, **kwargs)

        value = alone()
        if not has_run and self.retry_after is not None:
            raise self.retry(countdown=self.retry_after, exc=Taken())
        return value

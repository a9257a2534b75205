"""A dependency of FastAPI's that holds a lock while a request is served."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

from fastapi import HTTPException, Request

from ..asyncio import Held, Locks
from ..errors import Taken

LOCKED = 423


def locked(
    locks: Locks, name: str, *, wait: float = 0.0
) -> Callable[[Request], AsyncIterator[Held]]:
    """Return it: `held: Annotated[Held, Depends(locked(locks, "order:{number}"))]`.

    In the name stand the parameters of the path. If the lock is taken, for `wait` seconds, the
    answer is 423. A loss cancels a handler that is a coroutine; one that is not calls
    `held.check()`.
    """

    async def hold(request: Request) -> AsyncIterator[Held]:
        lock = locks.lock(name.format(**request.path_params), wait=wait)
        async with AsyncExitStack() as stack:
            try:
                held = await stack.enter_async_context(lock)
            except Taken as error:
                raise HTTPException(LOCKED, str(error)) from error
            yield held

    return hold

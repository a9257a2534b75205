"""The bound of a test's time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from .conftest import bounded


def waits_for_a_lock() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def waits_in_a_loop() -> None:
    async def story() -> None:
        await asyncio.Event().wait()

    asyncio.run(story())


@pytest.mark.parametrize("hang", [waits_for_a_lock, waits_in_a_loop])
def test_what_hangs_fails(hang: Callable[[], None]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"longer than 0\.1 s"), bounded(0.1):
        hang()

"""How a request for a lock is said, for `asyncio` and for threads alike."""

from __future__ import annotations

import math
from typing import NamedTuple, Union

from .core import Word

Key = Union[str, bytes]

# What the server can count with.
MOST_MS = (1 << 53) - 1


class Request(NamedTuple):
    """What to ask for."""

    names: tuple[Key, ...]
    mode: tuple[Word, ...]
    wait_ms: int | None
    lease_ms: int | None

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The names as the server knows them."""
        return tuple(name if isinstance(name, bytes) else name.encode() for name in self.names)


def request(
    names: tuple[Key, ...],
    mode: tuple[Word, ...] = (),
    wait: float | None = None,
    lease: float | None = None,
) -> Request:
    """Turn seconds into what the server understands; refuse what makes no sense."""
    if not names:
        raise ValueError("a lock needs a name")
    if len(set(names)) < len(names):
        raise ValueError("a name is repeated")
    wait_ms: int | None = 0
    if wait is not None:
        wait_ms = milliseconds(wait) if wait != 0 else None
    return Request(names, mode, wait_ms, None if lease is None else milliseconds(lease))


def permits(number: int, total: int) -> tuple[Word, ...]:
    """Return the mode of a semaphore."""
    if not 1 <= number <= total:
        raise ValueError(f"{number} of {total} permits cannot be had")
    return ("PERMITS", number, "OF", total)


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one."""
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"{seconds} is not a time in seconds")
    return min(max(1, math.ceil(seconds * 1000)), MOST_MS)

"""Locks that live as long as a connection, on Redis or Valkey with the module tether.

`Locks` is for threads; `tether_locks.asyncio.Locks` has the same words for asyncio.
"""

from ._threads import Held, Lock, Locks, Term
from .errors import Deadlock, LockError, Lost, Refused, Stale, Taken, Unreachable

__all__ = [
    "Deadlock",
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

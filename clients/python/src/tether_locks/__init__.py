"""Locks that live as long as a connection, on Redis or Valkey with the module tether.

`Locks` is for threads; `tether_locks.asyncio.Locks` has the same words for asyncio.
"""

from ._request import Change, Leader, Member
from ._threads import Held, Lock, Locks, Owner, Term
from .errors import (
    Closed,
    CrossSlot,
    Deadlock,
    LockError,
    Lost,
    NoModule,
    NoPush,
    Refused,
    Stale,
    Taken,
    Unfit,
    Unreachable,
)

__all__ = [
    "Change",
    "Closed",
    "CrossSlot",
    "Deadlock",
    "Held",
    "Leader",
    "Lock",
    "LockError",
    "Locks",
    "Lost",
    "Member",
    "NoModule",
    "NoPush",
    "Owner",
    "Refused",
    "Stale",
    "Taken",
    "Term",
    "Unfit",
    "Unreachable",
]

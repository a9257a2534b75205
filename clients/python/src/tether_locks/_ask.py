"""What is asked for, in the units and words of the server, and what the core says."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Callable, NamedTuple, Union

from .errors import LockError

Word = Union[bytes, str, int]
Words = tuple[Word, ...]
Handle = Hashable

# What the server can count with.
MOST_MS = (1 << 53) - 1


def whole_ms(ms: float) -> int:
    """Round up, to one at least: 0 would be for ever (P-ACQ-2)."""
    return min(MOST_MS, max(1, int(-(-ms // 1))))


@dataclass(frozen=True)
class Settings:
    """Of a client; times in milliseconds."""

    grace: float | None = None
    stop_within: float = 0.0
    fence: float | None = None
    connect_timeout: float = 5000.0
    is_cluster: bool = False
    knows_suspend: bool = True
    where: str = "the server"  # In messages.
    random: Callable[[], float] = field(default=random.random)


@dataclass(frozen=True)
class Ask:
    """What a request asks for; times in milliseconds.

    `wait` is None for ever and 0 not at all. `value` makes it a request for a temporary key, and
    `is_setnx` that a lock in the place of one by SET NX (P-SETNX-1).
    """

    keys: tuple[bytes, ...]
    mode: Words = ()
    wait: float | None = None
    lease: float | None = None
    owner: bytes | None = None
    reentrant: bool = False
    task: bytes | None = None
    acks: int = 0
    ack_timeout: int | None = None
    at_least: float = 0.0
    value: bytes | None = None
    is_sequence: bool = False
    is_setnx: bool = False
    hops: int = 0  # How often another node referred to the one that is asked (P-CLUSTER-3).
    is_by_ask: bool = False  # The last time by `ASK` (P-CLUSTER-4).

    def words(self, keys: list[bytes], label: bytes, task: bytes | None, left: float) -> Words:
        """Return the command (P-ACQ-1, P-TEMP-1); `left` is of the time to wait."""
        words: list[Word]
        if self.value is not None:
            words = ["SETTP", *keys, self.value, "SEQ" if self.is_sequence else "TOKEN"]
        elif len(keys) > 1:
            words = ["LOCK.MACQUIRE", len(keys), *keys, *self.mode, "OWNER", label]
        else:
            words = ["LOCK.ACQUIRE", *keys, *self.mode, "OWNER", label]
        if task is not None:
            words += ["TASK", task]
        words.append("NOTIFY")
        if self.lease is not None:
            words += ["LEASE", whole_ms(self.lease)]
        if self.waits_at_server:
            words += ["WAIT", 0 if self.wait is None else whole_ms(left), "PUSH"]
        if self.acks:
            words += ["ACKS", self.acks]
            if self.ack_timeout is not None:
                words += ["ACKTIMEOUT", self.ack_timeout]
        return tuple(words)

    @property
    def waits(self) -> bool:
        """Whether it has time to wait."""
        return self.wait != 0 and not self.is_sequence

    @property
    def waits_at_server(self) -> bool:
        """Whether null is no refusal: an acknowledgement is waited for, too (P-ACKS-1)."""
        return self.waits or self.acks > 0


class Event(NamedTuple):
    """Something that the owner of a handle is told.

    kind                       with
    granted                    value: key and token
    refused                    error: the request ended without a grant
    redirected                 value: the error, and what to ask where it says
    lost                       error: a `Lost`
    releasing                  error: the server refused the release, which is sent again
    released, over             nothing; `over`: it was given up
    extended, not_extended     the latter with an error
    checked, not_checked       the same, of `verify`
    watch                      value: key and exists, missing, added or deleted
    presence                   value: key, add, set or del, token or None, value or reason
    leader                     value: token or None, value
    ended                      error: a watch, presence or observer is over; value: what it knew
    warning                    error
    """

    kind: str
    handle: Handle
    value: Any = None
    error: LockError | None = None


class Order(NamedTuple):
    """`connect`, or `leave`: close the connection after so long, and read nothing more."""

    kind: str
    after: float = 0.0

"""One request, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from ._ask import Ask, Handle, Words
from .resp import ReplyError


class Phase(Enum):
    """How far a request has come."""

    QUEUED = "queued"  # To be sent.
    ASKED = "asked"  # Sent.
    WAITING = "waiting"  # In the server's queue.
    HELD = "held"
    EXTENDING = "extending"  # Released, but to be kept for a while (P-LEAST-2).
    KEPT = "kept"
    RELEASING = "releasing"
    OVER = "over"


IS_AT_SERVER = (Phase.HELD, Phase.EXTENDING, Phase.KEPT, Phase.RELEASING)


class Place(NamedTuple):
    """Where at most one request is open (P-OWNER-3); the label of a temporary key is empty."""

    is_temporary: bool
    key: bytes
    label: bytes


class PerKey:
    """A command for each key of a hold that is not answered yet; a break has it sent again."""

    def __init__(self, handle: Handle | None, keys: Iterable[bytes], number: float) -> None:
        """Begin with all keys; `number` is a lease, or the token to be checked."""
        self.handle = handle
        self.keys = set(keys)
        self.number = number
        self.sent: float | None = None  # For the first time.


class Request:
    """One request, from the call until the server has nothing left of it.

    `handles` are those who are told of it: several, if a named owner entered it again; none, once
    its owner knows that it is over and only the server does not.
    """

    def __init__(self, handle: Handle | None, ask: Ask, label: bytes, now: float) -> None:
        """Describe a request that was not sent."""
        self.ask = ask
        self.handles = [] if handle is None else [handle]
        self.keys = list(ask.keys)
        self.is_temporary = ask.value is not None
        self.label = label
        self.task = ask.task
        self.began = now
        self.phase = Phase.QUEUED
        self.token = 0
        self.is_given_up = False
        self.has_waited = False  # In the server's queue.
        self.was_granted = False  # Also if nobody was told, since it was given up.
        self.granted_at: float | None = None
        self.greatest_before = 0  # Of all tokens, when it was sent (P-SESS-11).
        self.refusal: ReplyError | None = None
        self.refusal_told = ""
        self.early_loss: tuple[str, bytes] | None = None
        self.lease_until: float | None = None
        self.kept_until = 0.0
        self.explained: set[bytes] = set()  # Keys of which a push said that they are lost.
        # Keys to be released, and whether the command is on its way.
        self.unsettled: dict[bytes, bool] = {}
        self.was_sent_before = False  # A break may have cut off the answer.
        self.extensions: list[PerKey] = []  # Without an answer, in their order.
        self.is_named = not ask.is_sequence  # Else the server names its key (P-TEMP-3).

    @property
    def places(self) -> list[Place]:
        """Return one for each key that has a name."""
        keys = self.keys if self.is_named else []
        return [Place(self.is_temporary, key, self.label) for key in keys]

    @property
    def is_open(self) -> bool:
        """Whether it stands in the way of a second request (P-OWNER-3)."""
        is_released = self.phase in (Phase.RELEASING, Phase.EXTENDING, Phase.KEPT)
        return not is_released and not self.is_given_up

    @property
    def is_left(self) -> bool:
        """Whether its caller has released it, and the server has it still (P-OWNER-4)."""
        is_refused = self.phase is Phase.RELEASING and self.refusal is not None
        return is_refused or self.phase in (Phase.EXTENDING, Phase.KEPT)

    @property
    def leases(self) -> list[float]:
        """Return when each lease ends that the server may have set (P-LEASE-2)."""
        sent = [each.sent + each.number for each in self.extensions if each.sent is not None]
        return sent if self.lease_until is None else [self.lease_until, *sent]

    def left(self, now: float) -> float:
        """Return what is left of the time to wait."""
        return max(0.0, (self.ask.wait or 0.0) - (now - self.began))

    @property
    def asking(self) -> tuple[Words, ...]:
        """What is sent before each command about it (P-CLUSTER-4)."""
        return (("ASKING",),) if self.ask.is_by_ask else ()

    def release_words(self, key: bytes) -> Words:
        """Return the one word that ends it, in whatever phase (P-REL-1)."""
        if self.is_temporary:
            return ("DELTP", key)
        return ("LOCK.RELEASE", key, "OWNER", self.label, "ALL")


@dataclass
class Mine:
    """What LOCK.MINE said so far, and of which holds it decides."""

    is_resume: bool
    reason: str
    subjects: list[Request]
    sent: float = 0.0  # The command for the first page, after a resume.
    pages: int = 0
    entries: list[dict[bytes, Any]] = field(default_factory=list)


def tag_of(key: bytes) -> bytes | None:
    """Return the hash tag of a key, or None."""
    begin = key.find(b"{")
    end = key.find(b"}", begin + 1)
    return key[begin + 1 : end] if 0 <= begin < end - 1 else None


def slot_of(key: bytes) -> int:
    """Return the slot of a key: CRC16 (XMODEM) of its hash tag, or of all of it."""
    tag = tag_of(key)
    crc = 0
    for byte in key if tag is None else tag:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021) & 0xFFFF if crc & 0x8000 else (crc << 1) & 0xFFFF
    return crc % 16384

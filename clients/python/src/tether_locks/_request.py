"""How a request is said, for `asyncio` and for threads alike."""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar, Union

from ._ask import Ask, Words, whole_ms

Key = Union[str, bytes]

# Goes before a script on another server, and keeps the greatest token there (P-GUARD-3). Tokens are
# compared as decimal text: no number of Lua's is involved.
FENCE = """
local seen, token = redis.call('GET', KEYS[1]) or '', ARGV[1]
if #seen > #token or (#seen == #token and seen > token) then
  return redis.error_reply('STALE token ' .. token .. ' is not current: ' .. seen .. ' was here')
end
redis.call('SET', KEYS[1], token)
table.remove(KEYS, 1)
table.remove(ARGV, 1)
"""
L = TypeVar("L")


class Request(NamedTuple):
    """What to ask for, and what its names are called by the caller."""

    names: tuple[Key, ...]
    ask: Ask


class Change(NamedTuple):
    """Whether a watched key exists: `state` is `exists`, `missing`, `added` or `deleted`."""

    name: Key
    state: str


class Member(NamedTuple):
    """One change of who is there: `change` is `add`, `set` or `del`.

    `token` and `value` are those of the temporary key, and None once it is deleted; `value` is also
    None if the server keeps it to itself. `reason` is why it was deleted.
    """

    name: Key
    change: str
    token: int | None
    value: bytes | None
    reason: str | None


class Leader(NamedTuple):
    """Who leads: the token of its term, and the value that it stood with."""

    token: int
    value: bytes | None


class Maker(Generic[L]):
    """Makes lock objects: for any owner, or for one with a name."""

    _owner_name: bytes | None = None
    _is_reentrant = False

    def _made(self, request: Request) -> L:
        raise NotImplementedError

    def lock(
        self,
        name: Key,
        *,
        shared: bool = False,
        wait: float | None = None,
        lease: float | None = None,
        acks: int = 0,
        ack_timeout: float | None = None,
        at_least: float = 0.0,
        compat: str | None = None,
    ) -> L:
        """Return a lock: exclusive, or `shared` among readers.

        `wait` is how many seconds to wait: for ever unless given, 0 not at all. A wait goes on
        while the server is away. After `lease` seconds, if given, the lock is lost unless it is
        extended. With a grace, `acks` is how many replicas must have the grant before it counts,
        within `ack_timeout` seconds or the server's setting, and `at_least` how many seconds it
        stays taken, even if it is released before.

        `compat="setnx"` makes a lock that also excludes clients which take the same name by
        `SET name value NX` and give it back by comparing and deleting: see docs/comparison.md. It
        is exclusive, and has no lease. A write over it is the loss `overwritten`.
        """
        if compat is not None:
            if compat != "setnx":
                raise ValueError(f"there are no other locks of the kind {compat!r}")
            if shared or lease is not None or at_least or self._owner_name is not None:
                raise ValueError("in the place of SET NX is an exclusive lock without a lease")
            request = self._asked((name,), (), wait, None, acks, ack_timeout)
            return self._made(Request(request.names, replace(request.ask, is_setnx=True)))
        mode: Words = ("SHARED",) if shared else ()
        return self._request((name,), mode, wait, lease, acks, ack_timeout, at_least)

    def semaphore(
        self,
        name: Key,
        number: int = 1,
        *,
        of: int,
        wait: float | None = None,
        lease: float | None = None,
        acks: int = 0,
        ack_timeout: float | None = None,
        at_least: float = 0.0,
    ) -> L:
        """Return so many permits of a semaphore with `of` permits; the rest is as for `lock`."""
        if not 1 <= number <= of:
            raise ValueError(f"{number} of {of} permits cannot be had")
        mode: Words = ("PERMITS", number, "OF", of)
        return self._request((name,), mode, wait, lease, acks, ack_timeout, at_least)

    def all(
        self,
        *names: Key,
        wait: float | None = None,
        lease: float | None = None,
        acks: int = 0,
        ack_timeout: float | None = None,
        at_least: float = 0.0,
    ) -> L:
        """Return several exclusive locks that are acquired in one step, or none of them."""
        return self._request(names, (), wait, lease, acks, ack_timeout, at_least)

    def temporary_key(
        self, name: Key, value: Key, *, wait: float | None = 0, sequence: bool = False
    ) -> L:
        """Return a key with this value, which lives as long as it is held.

        `wait` is as for `lock`, but 0 unless given. With `sequence` the server makes the name:
        `name` and the token as 16 digits.
        """
        request = self._asked((name,), (), 0 if sequence else wait)
        ask = replace(request.ask, owner=None, value=as_bytes(value), is_sequence=sequence)
        return self._made(Request(request.names, ask))

    def _request(self, *words: Any) -> L:
        return self._made(self._asked(*words))

    def _asked(
        self,
        names: tuple[Key, ...],
        mode: Words,
        wait: float | None,
        lease: float | None = None,
        acks: int = 0,
        ack_timeout: float | None = None,
        at_least: float = 0.0,
    ) -> Request:
        """Turn seconds into what the server understands; refuse what makes no sense."""
        if not names:
            raise ValueError("a lock needs a name")
        if len(set(names)) < len(names):
            raise ValueError("a name is repeated")
        ask = Ask(
            tuple(as_bytes(name) for name in names),
            mode,
            wait=None if wait is None else milliseconds(wait) if wait else 0,
            lease=None if lease is None else milliseconds(lease),
            owner=self._owner_name,
            reentrant=self._is_reentrant,
            acks=acks,
            ack_timeout=None if ack_timeout is None else whole_ms(milliseconds(ack_timeout)),
            at_least=milliseconds(at_least) if at_least else 0,
        )
        return Request(names, ask)


def begun(ask: Ask, task: bytes) -> Ask:
    """Return what a task asks for now."""
    if not ask.is_setnx:
        return replace(ask, task=task)
    # To who takes it for a time, it is one far in the future (P-SETNX-1).
    value = b"%d" % (1 << 62 | secrets.randbits(62))
    return replace(ask, task=task, value=value)


def as_bytes(name: Key) -> bytes:
    """Return a name as the server knows it."""
    return name if isinstance(name, bytes) else name.encode()


def like(given: Key, name: bytes) -> Key:
    """Return a name as text, if the caller says names as text and it is one."""
    return name if isinstance(given, bytes) else name.decode("utf-8", "surrogateescape")


def milliseconds(seconds: float) -> float:
    """Return milliseconds; refuse what is no time."""
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"{seconds} is not a time in seconds")
    return seconds * 1000

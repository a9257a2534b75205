"""What the session still holds on another server than before, and no want claims.

A server that fails may lose a release that it has answered: it was not in its files yet, or not at
the replica that is promoted. The session then holds the key for as long as the client lives, and
the client does not know of it.

* LOCK.LIST says which keys the session holds, page by page, and LOCK.INFO the label and token of
  each hold. What no want claims is released.
* A hold is claimed by its token. A grant that the server made before it replied to LOCK.INFO has
  been handled when that reply is. A want of the same key and label that is on the wire may be
  granted before the release arrives: then nothing is released, and the search is due again.
* An error ends the search: a user may have no right to look. Until a search has found everything in
  order, the next resume begins another.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from .resp import ReplyError

# So many keys for each LOCK.LIST.
KEYS_AT_ONCE = 100
# So many holders of a key are looked at, the oldest first.
HOLDERS = 1000

Send = Callable[["tuple[bytes | str | int, ...]", Callable[[Any], None]], None]


class Claim(Enum):
    """Who has a hold that the server knows."""

    NOBODY = "nobody"
    WANT = "a want holds it"
    UNCLEAR = "a want may be granted the lock before a release arrives"


class Search:
    """A search on one connection; it releases what it finds."""

    def __init__(
        self,
        send: Send,
        claim: Callable[[bytes, bytes, int], Claim],
        found_all: Callable[[], None],
    ) -> None:
        """Prepare; `claim` is asked of key, label and token."""
        self._send = send
        self._claim = claim
        self._found_all = found_all
        self._client = 0
        self._cursor = b"0"
        self._unanswered = 0
        self._is_left = False
        # Something was left for another search on this connection.
        self.is_due = False

    def begin(self) -> None:
        """Search from the beginning."""
        self.is_due = self._is_left = False
        self._cursor = b"0"
        self._send(("CLIENT", "ID"), self._found_client)

    def _found_client(self, reply: Any) -> None:
        if isinstance(reply, int):
            self._client = reply
            self._list_next()

    def _list_next(self) -> None:
        words = ("LOCK.LIST", self._cursor, "CLIENT", self._client, "COUNT", KEYS_AT_ONCE)
        self._send(words, self._listed)

    def _listed(self, reply: Any) -> None:
        if not isinstance(reply, list):
            return  # Whoever may not look has what it had without that.
        self._cursor, lines = reply
        keys = [line[b"key"] for line in lines if self._client in line[b"holders"]]
        self._unanswered = len(keys) + 1  # And this one.
        for key in keys:
            self._inspect(key)
        self._one_answered()

    def _inspect(self, key: bytes) -> None:
        def inspected(reply: Any) -> None:
            if isinstance(reply, ReplyError):
                return
            if reply is not None and reply[b"kind"] != b"temporary-key":
                for holder in reply[b"holders"]:
                    if holder[b"client"] == self._client:
                        self._found(key, holder[b"label"], holder[b"token"])
            self._one_answered()

        self._send(("LOCK.INFO", key, "COUNT", HOLDERS), inspected)

    def _found(self, key: bytes, label: bytes, token: int) -> None:
        claim = self._claim(key, label, token)
        if claim is Claim.UNCLEAR:
            self._is_left = True
        elif claim is Claim.NOBODY:
            self._unanswered += 1
            self._send(("LOCK.RELEASE", key, "OWNER", label, "ALL"), self._released)

    def _released(self, reply: Any) -> None:
        # It may be taken later (NOREPLICAS), but not from a user without the right.
        if isinstance(reply, ReplyError) and not str(reply).startswith(("NOTHELD", "NOPERM")):
            self._is_left = True
        self._one_answered()

    def _one_answered(self) -> None:
        self._unanswered -= 1
        if self._unanswered > 0:
            return
        if self._cursor != b"0":
            self._list_next()
        elif self._is_left:
            self.is_due = True
        else:
            self._found_all()

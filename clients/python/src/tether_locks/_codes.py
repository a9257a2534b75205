"""The server's errors, as the client protocol classifies them (P-ERR-2)."""

from __future__ import annotations

from typing import Any

from .resp import ReplyError

MOMENTARY = frozenset(("BUSY", "LOADING", "CLUSTERDOWN", "TRYAGAIN"))
UNWRITABLE = frozenset(("NOREPLICAS", "MISCONF", "OOM"))
NOT_HERE = frozenset(("READONLY", "MASTERDOWN"))


def code_of(reply: Any) -> str:
    """Return the first word of an error, and of all other replies nothing."""
    return str(reply).split(" ", 1)[0] if isinstance(reply, ReplyError) else ""

"""What can go wrong with a lock. Each error has a `code`: the first word of the server's error."""

from __future__ import annotations


class LockError(Exception):
    """Every error of this package; `name` and `code` are those of the client protocol."""

    name = "refused"

    def __init__(self, text: str, code: str | None = None) -> None:
        """Keep the text; its first word is the code unless that is given."""
        super().__init__(text)
        self.code = code or text.split(" ", 1)[0]


class Taken(LockError):
    """Another owner has the lock, or still had it when the time to wait was over."""

    name = "taken"

    def __init__(self, text: str = "another owner has the lock", code: str = "TAKEN") -> None:
        """Keep the text; `code` is `TAKEN` or `QUARANTINE`."""
        super().__init__(text, code)


class Deadlock(LockError):
    """The request would wait for itself, or for others that wait for it."""

    name = "deadlock"


class Unreachable(LockError):
    """There was no connection, or no answer in the time to wait.

    `code` is `UNREACHABLE`, `REPLICA` if no master was found, or the server's word.
    """

    name = "unreachable"

    def __init__(self, text: str, code: str = "UNREACHABLE") -> None:
        """Keep the text and the code."""
        super().__init__(text, code)


class Closed(Unreachable):
    """`Locks.close` was called."""

    name = "closed"

    def __init__(self) -> None:
        """Say so."""
        super().__init__("the locks were closed", "CLOSED")


class Refused(LockError):
    """The server refused for another reason, or TLS verification failed (`TLS`)."""


class NoModule(Refused):
    """The server has not loaded the module tether."""

    name = "nomodule"


class NoPush(Refused):
    """The server sends no pushes to this connection."""

    name = "nopush"


class Unfit(Refused):
    """The times do not fit those of the server, or need a session."""

    name = "unfit"


class CrossSlot(Refused):
    """In a cluster, the names are of more than one slot."""

    name = "crossslot"


class Lost(LockError):
    """The lock ended before it was released.

    `reason` is the server's word (`lease`, `deleted`, `expired`, `evicted`, `flushed`,
    `overwritten`, `moved`, `demoted`, `ended`), or one of this package:

    * `connection`: the connection ended, and the lock with it; or with a session, the lock was lost
      while there was no connection.
    * `silence`: the server did not answer for so long that it may give the lock away.
    * `fork`: this is a child process; the lock belongs to its parent.
    * `closed`: `Locks.close` was called.
    * `released`: it was released, and then looked at.
    """

    name = "lost"

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(f"the lock was lost: {reason}", reason)
        self.reason = reason


class Stale(Lost):
    """The server says that the token is not that of a current hold.

    See `Held.check_server` and `Held.run`.

    `reason` is `stale`, unless it is known why; the text is the server's.
    """

    def __init__(self, text: str, reason: str | None = None) -> None:
        """Keep what the server said."""
        super().__init__(reason or "stale")
        self.args = (text,)


def raise_if_stale(error: Exception, reason: str | None) -> None:
    """Raise `Stale` in the place of an error by which the server says so."""
    if str(error).startswith("STALE "):
        raise Stale(str(error), reason) from error

"""What can go wrong with a lock."""

from __future__ import annotations


class LockError(Exception):
    """Every error of this package."""


class Taken(LockError):
    """Another owner has the lock, and the time to wait for it is over."""


class Deadlock(LockError):
    """The request would wait for itself, or for others that wait for it."""


class Unreachable(LockError):
    """No server answered in the time to wait, or TLS failed, or the locks were closed."""


class Refused(LockError):
    """The server refused the request, or cannot keep what this package promises."""

    def __init__(self, text: str) -> None:
        """Keep the server's text; `code` is its first word."""
        super().__init__(text)
        self.code = text.split(" ", 1)[0]


class Lost(LockError):
    """The lock ended before it was released.

    `reason` is the server's word (`lease`, `deleted`, `expired`, `evicted`, `flushed`,
    `overwritten`, `moved`, `demoted`), or one of this package:

    * `connection`: the connection ended, and the lock with it; or with a session, the lock was lost
      while there was no connection.
    * `silence`: the server did not answer for so long that it may give the lock away.
    * `fork`: this is a child process; the lock belongs to its parent.
    * `closed`: `Locks.close` was called.
    * `released`: it was released, and then looked at.
    """

    def __init__(self, reason: str) -> None:
        """Keep the reason."""
        super().__init__(f"the lock was lost: {reason}")
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


def refusal(text: str) -> LockError:
    """Return the error for an error of the server."""
    code = text.split(" ", 1)[0]
    if code == "DEADLOCK":
        return Deadlock(text)
    if code == "QUARANTINE":
        return Taken(text)
    return Refused(text)

"""Milliseconds on a clock that goes on while the machine is suspended (P-FENCE-3).

A lock may be given away while its holder sleeps, so the holder's deadline must go on, too.
"""

from __future__ import annotations

import sys
import time

# /proc/uptime is rounded to ten milliseconds, at both ends of a difference.
ROUNDED_MS = 20.0


class Elapsed:
    """One clock made of two: the monotonic one, and one that runs on in suspend.

    What passes on it between two readings is the greater of what passes on the two. `slack` is
    what the second one is too fast by at most.
    """

    def __init__(self, slack: float = 0.0) -> None:
        """Begin before the first reading."""
        self._slack = slack
        self._begin: float | None = None
        self._suspended = 0.0

    def at(self, mono: float, boot: float) -> float:
        """Return the time at which the two clocks show this."""
        if self._begin is None:
            self._begin = boot - mono
        self._suspended = max(self._suspended, boot - mono - self._begin - self._slack)
        return mono + self._suspended


if sys.platform == "linux":
    KNOWS_SUSPEND = True
    _elapsed = Elapsed()

    def now() -> float:
        """Return milliseconds since some moment, suspended or not."""
        # The one that runs on in suspend goes first: who is interrupted between the two would
        # otherwise look as if it had been suspended, and count that time twice.
        boot = time.clock_gettime(time.CLOCK_BOOTTIME)
        return _elapsed.at(time.monotonic() * 1000, boot * 1000)

elif sys.platform == "darwin":
    KNOWS_SUSPEND = True

    def now() -> float:
        """Return milliseconds since the machine started: this clock counts its sleep."""
        return time.clock_gettime(time.CLOCK_MONOTONIC) * 1000

else:
    KNOWS_SUSPEND = False

    def now() -> float:
        """Return milliseconds since some moment."""
        return time.monotonic() * 1000

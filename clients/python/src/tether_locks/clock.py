"""Seconds on a clock that goes on while the machine is suspended, where the system has one.

A lock may be given away while its holder sleeps, so the holder's deadline must go on, too.
"""

from __future__ import annotations

import sys
import time

if sys.platform == "linux":

    def now() -> float:
        """Return the seconds since the machine started."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

elif sys.platform == "darwin":

    def now() -> float:
        """Return the seconds since the machine started."""
        return time.clock_gettime(time.CLOCK_MONOTONIC)

else:

    def now() -> float:
        """Return seconds since some moment."""
        return time.monotonic()

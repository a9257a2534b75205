"""A program of `make campaign`, which has a pipe open for as long as it believes that it holds.

python campaign_holder.py URL GRACE STOP_WITHIN PIPE
"""

from __future__ import annotations

import sys
import time

from tether_locks import Locks

url, grace, stop_within, pipe = sys.argv[1:]
locks = Locks(url, grace=float(grace), stop_within=float(stop_within))
held = locks.lock("report").acquire()
with open(pipe, "w"):
    while held.lost is None:
        time.sleep(0.005)

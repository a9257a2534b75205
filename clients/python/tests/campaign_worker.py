"""A process that takes one lock again and again, and notes when it believed that it held it.

    python -m tests.campaign_worker URLS LANE FILE ACKS

A note has the token, and a time at which `check` was still to say that the lock is held.
"""

from __future__ import annotations

import os
import random
import sys
import time

from tether_locks import LockError, Locks

GRACE_S = 6.0


def main(urls: str, lane: str, file: str, acks: int) -> None:
    notes = os.open(file, os.O_WRONLY | os.O_APPEND)
    locks = Locks(urls.split(","), grace=GRACE_S, connect_timeout=2)
    lock = locks.lock(lane, acks=acks)
    while True:
        try:
            held = lock.acquire()
            until = time.monotonic() + random.uniform(0, 0.1)
            while True:
                at = time.monotonic()
                held.check()
                os.write(notes, b"%d %.6f\n" % (held.token, at))
                if at > until:
                    break
                time.sleep(0.005)
            held.release()
        except LockError:
            time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

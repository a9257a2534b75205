"""Eight threads ask for one lock, each on whatever connection redis-py's default pool gives it. Prints how many were told
that they have it: at once, and then again with a wait, while the first ones have it still."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import redis

THREADS = 8

pool = redis.Redis(sys.argv[1], int(sys.argv[2]), protocol=3)
all_have_asked = Barrier(THREADS)


def ask(*options):
    try:
        token = pool.execute_command("LOCK.ACQUIRE", "lock", *options)
    except redis.ResponseError as refusal:
        assert str(refusal).startswith("DEADLOCK this owner"), refusal
        token = None
    all_have_asked.wait()
    return token is not None


for options in [(), ("WAIT", 20)]:
    with ThreadPoolExecutor(THREADS) as threads:
        told = threads.map(lambda _, options=options: ask(*options), range(THREADS))
    print(sum(told))

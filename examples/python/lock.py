#!/usr/bin/env python3
"""A lock that passes from hand to hand, with redis-py.

    python examples/python/lock.py [host [port]]        (127.0.0.1 and 6379 unless told)

Ann and Bob want the same lock. Each asks for it once and is answered when it is theirs: Bob when Ann gives it back, and
Ann, the second time, when Bob's connection is killed. Bob does not know that yet and goes on; his old token stops him.

The end is 0 when all of that happened, 1 when not. Nobody waits for ever. Needs redis-py 5.1 or later.
"""

import sys
import threading
import time
from concurrent import futures
from contextlib import contextmanager

import redis

WAIT = 5000  # milliseconds that a worker is ready to queue for the lock
PATIENCE = 60  # seconds that anyone waits for anything


# ---- what a program with a lock needs ----


class Once(redis.Connection):
    """When a connection breaks, redis-py by itself makes a new one, also with no retries. But the lock went with the old
    one, and nobody would notice. This one connects once; from its end on every command fails, and that means: no lock
    any more."""

    connected = False

    def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


def connect(host, port):
    """A connection that can hold a lock. Each worker needs one of its own: to the server, the connection is the worker,
    and of two threads on one connection the second would be told that it has the lock itself (DEADLOCK)."""
    # A reply may take longer than WAIT, before redis-py hangs up (redis-py 8: after 5 seconds, unless told).
    pool = redis.ConnectionPool(Once, host=host, port=port, protocol=3, decode_responses=True, socket_timeout=PATIENCE)
    # A lock belongs to the connection that took it. So this client has one for itself, instead of picking any from the
    # pool for each command.
    return redis.Redis(connection_pool=pool, single_connection_client=True)


@contextmanager
def lock(connection, key):
    """The lock, for the length of a `with`. Its value is the fencing token, greater than that of any earlier holder."""
    token = connection.execute_command("LOCK.ACQUIRE", key, "WAIT", WAIT)
    if token is None:
        raise TimeoutError(f"{key} was not free within {WAIT} ms")
    try:
        yield token
    finally:
        # Fails when the lock was lost meanwhile.
        connection.execute_command("LOCK.RELEASE", key)


class Record:
    """What the lock protects; think of a row in a database. It remembers the greatest token and refuses older ones,
    since no lock can stop a worker that has lost it and has not heard."""

    def __init__(self):
        self.newest = 0

    def write(self, token):
        if token < self.newest:
            return f"refused, {self.newest} came after it"
        self.newest = token
        return "accepted"


# ---- the story ----


class StoryFails(Exception):
    pass


class Turn(threading.Thread):
    """One turn of a worker: queue for the lock, write when told to go on, give the lock back."""

    def __init__(self, name, connection, record):
        super().__init__(daemon=True)
        self.worker, self.connection, self.record = name, connection, record
        self.has_it = futures.Future()
        self.may_go_on = threading.Event()
        self.over = futures.Future()
        self.start()

    def run(self):
        try:
            self.work()
            self.over.set_result(None)
        except Exception as failure:
            if not self.has_it.done():
                self.has_it.set_exception(failure)
            self.over.set_exception(failure)

    def work(self):
        with lock(self.connection, "lock") as token:
            tell(f"{self.worker}: LOCK.ACQUIRE lock WAIT {WAIT} -> token {token}, it is mine")
            self.has_it.set_result(token)
            if not self.may_go_on.wait(PATIENCE):
                raise StoryFails(f"{self.worker} was not told to go on")
            tell(f"{self.worker}: writes with token {token} -> {self.record.write(token)}")
            tell(f"{self.worker}: LOCK.RELEASE lock")

    def until_it_has_the_lock(self):
        self.has_it.result(PATIENCE)

    def finish(self):
        self.may_go_on.set()
        self.over.result(PATIENCE)


def story(host, port):
    record = Record()
    operator, ann, bob = (connect(host, port) for _ in range(3))
    bobs_id = bob.client_id()

    def waits(name):
        deadline = time.monotonic() + PATIENCE
        while len(operator.execute_command("LOCK.INFO", "lock")["waiters"]) != 1:
            if time.monotonic() > deadline:
                raise StoryFails(f"{name} does not wait for the lock")
            time.sleep(0.005)
        tell(f"{name}: LOCK.ACQUIRE lock WAIT {WAIT} -> must wait")

    anns_turn = Turn("ann", ann, record)
    anns_turn.until_it_has_the_lock()
    bobs_turn = Turn("bob", bob, record)
    waits("bob")

    # Handed over because it is given back ...
    anns_turn.finish()
    bobs_turn.until_it_has_the_lock()
    anns_turn = Turn("ann", ann, record)
    waits("ann")

    # ... and because its holder's connection ends.
    tell("Bob's connection is killed. He has not noticed.")
    operator.client_kill_filter(_id=bobs_id)
    anns_turn.until_it_has_the_lock()
    anns_turn.finish()
    try:
        bobs_turn.finish()
    except redis.ResponseError:
        raise
    except redis.RedisError:
        tell("bob: the connection is gone, and the lock with it")
    else:
        raise StoryFails("Bob could give back a lock that he had lost")

    if operator.exists("lock"):
        raise StoryFails("the lock is still there after its last holder")
    tell("Nobody holds the lock. The end.")


def tell(line):
    # The end of the line in the same piece: threads may speak at the same time.
    print(line + "\n", end="", flush=True)


def main():
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 6379
    try:
        story(host, port)
    except (StoryFails, redis.RedisError, TimeoutError, futures.TimeoutError) as failure:
        tell(f"The story fails: {str(failure) or 'somebody did not come in time'}")
        sys.exit(1)


if __name__ == "__main__":
    main()

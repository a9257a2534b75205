#!/usr/bin/env python3
"""The story of a lock, told with redis-py.

    python examples/python/story.py [host [port]]        (127.0.0.1 and 6379 unless told)

A process takes the lock. Ann, Bob and Cy find it taken and ask to be told when it goes. The process is killed with
SIGKILL, so it cannot tidy up; the server does that. All three hear it, and one of them is the next holder.

The end is 0 when all of that happened, 1 when not. Nobody waits for ever. Needs redis-py 5.1 or later.
"""

import multiprocessing
import sys
import threading
import time
from collections import deque

import redis

PATIENCE = 60  # seconds that anyone waits for anything
NAMES = ["ann", "bob", "cy"]


class StoryFails(Exception):
    pass


def expect(what, wanted, found):
    if found != wanted:
        raise StoryFails(f"{what}: expected {wanted!r}, found {found!r}")


class Once(redis.Connection):
    """Is never replaced behind our back, as redis-py does with a broken one: the lock would be gone, and we would not know."""

    connected = False

    def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


class Connection:
    """One connection, with the two things that a lock needs: commands, and hearing what the server says unasked."""

    def __init__(self, host, port):
        self.heard = deque()
        # RESP3 has push frames: the server may speak without being asked.
        options = dict(protocol=3, decode_responses=True, socket_timeout=PATIENCE)
        self.pool = redis.ConnectionPool(Once, host=host, port=port, **options)
        # A lock belongs to the connection that took it. So this client has one for itself, instead of picking any
        # from the pool for each command.
        self.redis = redis.Redis(connection_pool=self.pool, single_connection_client=True)
        # redis-py hands every push that it has no use for itself to the handler for Pub/Sub pushes.
        # (Its public name for this, `push_handler_func`, is only there for `Redis.pubsub()`.)
        self.redis.connection._parser.set_pubsub_push_handler(self.heard.append)

    def ask(self, *command):
        # Pushes that stand before the reply go to the handler on the way.
        return self.redis.execute_command(*command)

    def next_push(self):
        """What the server says next, such as ['watchex', 'lock', 'DEL']."""
        deadline = time.monotonic() + PATIENCE
        while not self.heard:
            left = deadline - time.monotonic()
            if left <= 0 or not self.redis.connection.can_read(timeout=left):
                raise StoryFails(f"heard nothing for {PATIENCE} s")
            # With `push_request`, redis-py returns after a push; otherwise it would go on until a reply comes.
            self.redis.connection.read_response(push_request=True)
        return self.heard.popleft()

    def close(self):
        self.redis.close()  # gives the connection back to the pool
        self.pool.disconnect()


def hold(host, port, ready):
    """The holder, in a process of its own: takes the lock and keeps it until it dies."""
    try:
        connection = Connection(host, port)
        ready.send(connection.ask("SETTP", "lock", "holder"))
    except redis.RedisError as failure:
        ready.send(str(failure))
    time.sleep(60)


def watch(name, host, port, all_watch, all_tried, winners):
    connection = Connection(host, port)

    expect(f"{name}'s SETTP", 0, connection.ask("SETTP", "lock", name))
    tell(f"{name}: SETTP lock {name} -> 0, somebody has it")

    # From the moment of this reply on, nothing that happens to the key escapes us.
    expect(f"{name}'s WATCHEX", "EXIST", connection.ask("WATCHEX", "lock"))
    tell(f"{name}: WATCHEX lock -> EXIST, I shall be told")
    all_watch.wait(PATIENCE)

    expect(f"{name}'s push", ["watchex", "lock", "DEL"], connection.next_push())
    tell(f"{name}: hears: watchex lock DEL")

    # Everyone may try; the server lets one of them win.
    if connection.ask("SETTP", "lock", name) == 1:
        winners.append(name)
        tell(f"{name}: tries SETTP lock {name} -> 1, it is mine")
    else:
        tell(f"{name}: tries SETTP lock {name} -> 0, too late")

    # The end of the connection gives the lock back, so the winner stays until all have tried.
    all_tried.wait(PATIENCE)

    # Whoever watches hears of the next owner as well, also the one who made the key.
    expect(f"{name}'s next push", ["watchex", "lock", "ADD"], connection.next_push())
    expect("the owner's name in the lock", winners, [connection.ask("GET", "lock")])
    all_tried.wait(PATIENCE)
    connection.close()


def story(host, port):
    # A process of its own for the holder, so that it can be killed.
    processes = multiprocessing.get_context("spawn")
    ready, theirs = processes.Pipe()
    holder = processes.Process(target=hold, args=(host, port, theirs), daemon=True)
    holder.start()
    theirs.close()  # so that the holder's death, too, ends our waiting
    try:
        if not ready.poll(PATIENCE):
            raise StoryFails("the holder does not answer")
        expect("the holder's SETTP", 1, ready.recv())
        tell("holder: SETTP lock holder -> 1, it is mine")

        # Everyone comes to these points (the three and ourselves), or nobody passes them.
        all_watch = threading.Barrier(len(NAMES) + 1)
        all_tried = threading.Barrier(len(NAMES) + 1)
        winners, failures = [], []

        def play(name):
            try:
                watch(name, host, port, all_watch, all_tried, winners)
            except Exception as failure:
                failures.append(failure)
                all_watch.abort()
                all_tried.abort()

        threads = [threading.Thread(target=play, args=(name,), daemon=True) for name in NAMES]
        for thread in threads:
            thread.start()
        try:
            all_watch.wait(PATIENCE)
            tell("The holder is killed with SIGKILL.")
            holder.kill()
            all_tried.wait(PATIENCE)
            expect("number of winners", 1, len(winners))
            tell(f"Now the lock says: {winners[0]}")
            all_tried.wait(PATIENCE)
        except threading.BrokenBarrierError:
            pass  # the one who broke it says why
        for thread in threads:
            thread.join(PATIENCE)
        if failures:
            raise failures[0]
    finally:
        holder.kill()

    # All have hung up, the winner too: nothing may be left behind.
    connection = Connection(host, port)
    deadline = time.monotonic() + PATIENCE
    while connection.ask("EXISTS", "lock"):
        if time.monotonic() > deadline:
            raise StoryFails("the lock is still there after its holder has gone")
        time.sleep(0.01)
    tell("All have gone, and the lock with its last holder. The end.")


def tell(line):
    # The end of the line in the same piece: threads may speak at the same time.
    print(line + "\n", end="", flush=True)


def main():
    host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 6379
    try:
        story(host, port)
    except (StoryFails, redis.RedisError, EOFError, threading.BrokenBarrierError) as failure:
        tell(f"The story fails: {str(failure) or 'somebody did not come in time'}")
        sys.exit(1)


if __name__ == "__main__":
    main()

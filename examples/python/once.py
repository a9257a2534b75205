"""A lock with redis-py alone, on a connection that is never replaced.

    python examples/python/once.py [host [port]]        (127.0.0.1 and 6379 unless told)

If anything but redis.ResponseError is raised, assume that the lock is lost; throw `me` away and make a new one.
"""

import sys

import redis


class Once(redis.Connection):
    """Connects once: redis-py connects anew by itself, and the lock would not come back with that."""

    connected = False

    def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


host = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1"
port = int(sys.argv[2]) if len(sys.argv) > 2 else 6379
# A connection of its own; and a reply may take longer than WAIT, before redis-py gives it up.
pool = redis.ConnectionPool(Once, host=host, port=port, socket_timeout=10)
me = redis.Redis(connection_pool=pool, single_connection_client=True)
token = me.execute_command("LOCK.ACQUIRE", "report", "WAIT", 5000)
if token is None:
    print("still taken after five seconds")
else:
    print("mine, with token", token)
    me.execute_command("LOCK.RELEASE", "report")

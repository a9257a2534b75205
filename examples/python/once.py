"""A lock with redis-py alone, on a connection that is never replaced.

If anything but redis.ResponseError is raised, assume that the lock is lost; throw `me` away and make a new one.
"""

import redis


class Once(redis.Connection):
    """Connects once: redis-py connects anew by itself, and the lock would not come back with that."""

    connected = False

    def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


# A connection of its own; and a reply may take longer than WAIT, before redis-py gives it up.
pool = redis.ConnectionPool(Once, port=6379, socket_timeout=10)
me = redis.Redis(connection_pool=pool, single_connection_client=True)
token = me.execute_command("LOCK.ACQUIRE", "report", "WAIT", 5000)
if token is None:
    print("still taken after five seconds")
else:
    print("mine, with token", token)
    me.execute_command("LOCK.RELEASE", "report")

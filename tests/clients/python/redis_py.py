"""redis-py, with threads."""

import redis
from adapter import HOST as host
from adapter import PORT as port
from adapter import PROTOCOL, serve

shared = redis.Redis(host, port, protocol=PROTOCOL)


class Once(redis.Connection):
    connected = False

    def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        return super()._connect()


def holder():
    pool = redis.ConnectionPool(Once, host=host, port=port, socket_timeout=10)
    me = redis.Redis(connection_pool=pool, single_connection_client=True)
    token = me.execute_command("LOCK.ACQUIRE", "report", "WAIT", 6000)
    return me.execute_command, token


serve(redis.__version__, shared.execute_command, holder)

"""redis-py, with asyncio."""

import asyncio

import redis
import redis.asyncio
from adapter import HOST as host
from adapter import PORT as port
from adapter import PROTOCOL, serve_asynchronously


class OnceAsync(redis.asyncio.Connection):
    connected = False

    async def _connect(self):
        if self.connected:
            raise redis.RedisError("the connection has ended, and its locks with it")
        self.connected = True
        await super()._connect()


async def holder():
    pool = redis.asyncio.ConnectionPool(OnceAsync, host=host, port=port, socket_timeout=10)
    me = redis.asyncio.Redis(connection_pool=pool, single_connection_client=True)
    token = await me.execute_command("LOCK.ACQUIRE", "report", "WAIT", 6000)
    return me.execute_command, token


async def main():
    shared = redis.asyncio.Redis(host=host, port=port, protocol=PROTOCOL)
    await serve_asynchronously(redis.__version__, shared.execute_command, holder)


asyncio.run(main())

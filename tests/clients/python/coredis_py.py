"""coredis, with asyncio."""

import asyncio
from contextlib import AsyncExitStack

import coredis
from adapter import HOST as host
from adapter import PORT as port
from adapter import serve_asynchronously

stack = AsyncExitStack()


async def holder():
    pool = await stack.enter_async_context(coredis.ConnectionPool(host=host, port=port))
    me = await stack.enter_async_context(pool.acquire())
    token = await me.create_request(b"LOCK.ACQUIRE", "report", "WAIT", 6000)
    return lambda name, *words: me.create_request(name.encode(), *words), token


async def main():
    async with stack:
        shared = await stack.enter_async_context(coredis.Redis(host, port))

        async def call(name, *words):
            return await shared.create_request(name.encode(), *words, callback=lambda reply, **_: reply)

        await serve_asynchronously(coredis.__version__, call, holder)


asyncio.run(main())

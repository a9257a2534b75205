"""Valkey GLIDE for Python, with asyncio."""

import asyncio
from importlib.metadata import version

from adapter import HOST as host
from adapter import PORT as port
from adapter import PROTOCOL, serve_asynchronously
from glide import GlideClient, GlideClientConfiguration, Logger, LogLevel, NodeAddress, ProtocolVersion

Logger.set_logger_config(LogLevel.ERROR)  # it warns on standard output


async def call(client, *words):
    return await client.custom_command(list(words))


async def holder():
    configuration = GlideClientConfiguration([NodeAddress(host, port)], request_timeout=10_000)
    me = await GlideClient.create(configuration)
    token = await me.custom_command(["LOCK.ACQUIRE", "report", "WAIT", "6000"])
    return lambda *words: call(me, *words), token


async def main():
    protocol = ProtocolVersion.RESP3 if PROTOCOL == 3 else ProtocolVersion.RESP2
    shared = await GlideClient.create(GlideClientConfiguration([NodeAddress(host, port)], protocol=protocol))
    await serve_asynchronously(version("valkey-glide"), lambda *words: call(shared, *words), holder)


asyncio.run(main())

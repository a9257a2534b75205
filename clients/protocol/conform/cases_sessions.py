"""Cases of level L2: sessions. Names and purposes are in cases.json."""

import asyncio
import random

from stage import PATIENCE, eventually, expect, now

# D is 4 s: the grace less the margin.
GRACE = {"grace": 5000}
FILES = ("--appendonly", "yes", "--appendfsync", "always")


async def with_session(stage, *options, through_wire=False, **more):
    server = await stage.start_server(*options)
    wire = await stage.wire(server) if through_wire else None
    client = await stage.client(wire or server, **{**GRACE, **more})
    return server, wire, client


async def break_loses_nothing(stage):
    server, wire, client = await with_session(stage, through_wire=True)
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "l")
    await client.acquire("a")
    await client.call("acquire", id="b", keys=["l"])
    await server.is_waited_for("l")
    wire.reset()

    async def is_back():
        holders = (await server.info("k"))[b"holders"]
        return (
            holders
            and holders[0][b"session"] == b"attached"
            and (await server.info("l"))[b"waiters"]
        )

    await eventually(is_back, "the session is resumed, and the request asked again")
    await holder.ask("LOCK.RELEASE", "l")
    await client.event(granted="b")
    expect(await client.check("a") == "held", "lost by a break")
    await client.call("release", id="a")
    await client.event(released="a")


async def kill_at_random_moments(stage):
    server, _, client = await with_session(stage)
    await client.acquire("kept", "kept")
    rng = random.Random(37)

    async def killing():
        for _ in range(200):
            await asyncio.sleep(rng.random() * 0.02)
            await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    task = asyncio.create_task(killing())
    number = 0
    while not task.done():
        name, number = f"r{number}", number + 1
        await client.call("acquire", id=name, keys=[rng.choice(["k", "l"])])
        if rng.random() < 0.5:
            await client.call("give_up", id=name)
        else:
            await client.event(granted=name)
            await client.call("release", id=name)
    await task

    async def is_clean():
        infos = [await server.info(key) for key in ("k", "l")]
        return not any(info[who] for info in infos for who in (b"holders", b"waiters"))

    await eventually(is_clean, "nobody holds or waits")
    expect(await client.check("kept") == "held", "the hold that was kept")
    expect(not [e for e in client.events if "lost" in e], "a hold was lost")


async def silent_connection_is_left(stage):
    server, wire, client = await with_session(stage, through_wire=True)
    await client.acquire("a")
    await asyncio.sleep(0.5)
    wire.lose_connections()
    first = (await server.info("k"))[b"holders"][0][b"client"]

    async def is_moved():
        holders = (await server.info("k"))[b"holders"]
        return holders and holders[0][b"client"] not in (0, first)

    await eventually(is_moved, "the session is on another connection")
    await asyncio.sleep(1)
    expect(await client.check("a") == "held", "lost")


async def not_resumed_in_time(stage):
    server, wire, client = await with_session(stage, through_wire=True)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    wire.hole()
    for connection in wire.connections:  # The server hears of it at once: the grace begins.
        connection["server"].transport.abort()
    lost = await client.event(lost="a")
    _, at = await asyncio.wait_for(granted, PATIENCE)
    expect(lost["at"] < at, f"lost {lost['at'] - at:.3f} s after the next one was granted the lock")


async def restart_with_files(stage):
    server, _, client = await with_session(stage, *FILES, grace=10000)
    token = (await client.acquire("a"))["token"]
    await server.stop()
    await server.start()

    async def is_back():
        holders = (await server.info("k"))[b"holders"]
        return holders and holders[0][b"session"] == b"attached" and holders[0][b"token"] == token

    await eventually(is_back, "the session is resumed, with the same token")
    expect(await client.check("a") == "held", "lost")


async def restart_without_files(stage):
    server, _, client = await with_session(stage, grace=10000)
    await client.acquire("a")
    await server.stop()
    await server.start()
    await client.event(lost="a", reason="connection")
    await client.acquire("b")


async def restart_with_older_files(stage):
    server, _, client = await with_session(stage, *FILES, grace=10000)
    await client.acquire("kept", "kept")
    await client.acquire("a")
    folder = server.folder / "appendonlydir"
    older = {file: file.read_bytes() for file in folder.iterdir()}
    await client.call("release", id="a")
    await client.event(released="a")
    await server.stop()
    for file, data in older.items():
        file.write_bytes(data)
    await server.start()

    async def is_released():
        kept = (await server.info("kept"))[b"holders"]
        return (
            kept and kept[0][b"session"] == b"attached" and not (await server.info("k"))[b"holders"]
        )

    await eventually(is_released, "what nothing claims is released", 8)
    expect(await client.check("kept") == "held", "the other hold")


async def with_replica(stage, **options):
    one = await stage.start_server()
    other = await stage.start_replica(one)
    client = await stage.client(one, others=[f"redis://127.0.0.1:{other.port}"], **options)
    return one, other, client


async def change_places(one, other):
    await eventually(one.has_replica_in_step, "the replica is in step")
    await other.ask("REPLICAOF", "NO", "ONE")
    await one.ask("REPLICAOF", "127.0.0.1", other.port)


async def is_released_at(master, client):
    """The new master has no hold of `k`, and the session goes on there with the hold of `other`."""

    async def is_released():
        info = await master.info("other")
        return (
            not (await master.info("k"))[b"holders"]
            and info[b"holders"]
            and info[b"holders"][0][b"session"] == b"attached"
        )

    await eventually(is_released, "it is released at the new master", 9)
    expect(await client.check("other") == "held", "the other hold")


async def readonly_to_a_release(stage):
    one, other, client = await with_replica(stage, grace=10000)
    await client.acquire("a")
    await client.acquire("other", "other")
    await change_places(one, other)
    await client.call("release", id="a")

    await is_released_at(other, client)


async def failover_command(stage):
    one, other, client = await with_replica(stage, grace=10000)
    await client.acquire("a")
    await client.acquire("other", "other")
    await one.ask("FAILOVER")
    await client.call("release", id="a")

    await is_released_at(other, client)


async def demotion_with_a_session(stage):
    one, other, client = await with_replica(stage, grace=10000)
    token = (await client.acquire("a"))["token"]
    await change_places(one, other)

    async def is_there():
        holders = (await other.info("k"))[b"holders"]
        return holders and holders[0][b"session"] == b"attached" and holders[0][b"token"] == token

    await eventually(is_there, "the session goes on at the new master")
    expect(await client.check("a") == "held", "lost by a planned failover")


async def demotion_without_a_session(stage):
    one, other, client = await with_replica(stage)
    await client.acquire("a")
    await change_places(one, other)
    await client.event(lost="a", reason="demoted")
    expect(await client.check("a") == {"lost": "demoted"}, "it does not know that it is lost")
    token = (await client.acquire("b"))["token"]
    holders = (await other.info("k"))[b"holders"]
    expect([each[b"token"] for each in holders] == [token], "the new master has another hold")


async def session_is_killed(stage):
    server, _, client = await with_session(stage)
    await client.acquire("a")
    session = (await server.ask("SESSION.LIST"))[0]
    await server.ask("SESSION.KILL", session[1])
    await client.event(lost="a", reason="ended")
    await client.acquire("b")
    holder = (await server.info("k"))[b"holders"][0]
    expect(holder[b"session"] == b"attached", "what is granted next is in no session")


async def close_ends_the_session(stage):
    server, _, client = await with_session(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await client.call("close")
    await asyncio.wait_for(granted, 3)
    expect(await server.ask("SESSION.LIST") == [], "a session is left")


async def close_during_a_break_ends_the_session(stage):
    server, wire, client = await with_session(stage, through_wire=True)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    wire.up.hold()
    wire.reset()
    await asyncio.sleep(0.05)
    await client.call("close")
    wire.up.let_go()
    await asyncio.wait_for(granted, 3)


async def at_least_is_kept(stage):
    server, _, client = await with_session(stage)
    raw = await stage.raw(server)
    began = now()
    await client.acquire("a", at_least=3000)
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await client.call("release", id="a")
    await client.event(released="a")
    await client.call("close")
    _, at = await asyncio.wait_for(granted, PATIENCE)
    expect(at - began > 2.9, f"free after {at - began:.2f} s of 3")
    expect(not client.has(lost="a"), "its end is told")


async def acknowledged_grant(stage):
    one, other, client = await with_replica(stage, grace=10000)
    await client.acquire("a", acks=1)
    await other.stop()

    async def is_alone():
        return b"connected_slaves:0" in await one.ask("INFO", "replication")

    await eventually(is_alone, "the replica is gone")
    await client.call("acquire", id="b", keys=["l"], acks=1)
    await client.event(refused="b", error="refused", code="NOACKS")
    expect(await client.check("a") == "held", "the other hold")

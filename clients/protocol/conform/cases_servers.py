"""Cases with several servers: Sentinels, a cluster, a quorum; and TLS.

Names and purposes are in cases.json.
"""

import asyncio
import signal

from servers import AGREEMENT, Sentinel, certificate, cluster, sentinel
from stage import PATIENCE, Error, Failed, eventually, expect, now

# ---- TLS ----


async def tls_checks_the_host(stage):
    server = await stage.start_server()
    ours = await certificate(stage, "IP:127.0.0.1")
    others = await certificate(stage, "DNS:another.example")
    for served, trusted, is_right in (
        (ours, ours, True),
        (others, others, False),
        (ours, others, False),
    ):
        wire = await stage.wire(await stage.wire(server, served))
        client = await stage.client()
        await client.call("open", url=f"rediss://127.0.0.1:{wire.port}", ca=str(trusted.authority))
        if is_right:
            await client.acquire("a")
            await client.call("close")
            continue
        for attempt, name in enumerate(("a", "b"), 1):
            await client.call("acquire", id=name, keys=["k"])
            await client.event(refused=name, error="refused", code="TLS")
            expect(len(wire.attempts) == attempt, f"{len(wire.attempts)} attempts for {attempt}")


# ---- Sentinels ----


def urls(servers):
    return [f"redis://127.0.0.1:{server.port}" for server in servers]


async def held_at(server, key="k"):
    holders = (await server.info(key))[b"holders"]
    return holders and holders[0]


async def sentinels_name_the_master(stage):
    master, former = await asyncio.gather(stage.start_server(), stage.start_server())
    first, second, stopped = await asyncio.gather(*(sentinel(stage, master) for _ in range(3)))
    late = await stage.wire(second)
    late.down.delay = 0.2
    stopped.signal(signal.SIGSTOP)
    client = await stage.client()
    await client.call("open", sentinels=urls([stopped, late, first]), master=Sentinel.NAME)
    await client.acquire("a")
    expect(await held_at(master), "it is not held at the master")
    # One that is out of date, and the first to answer.
    out_of_date = await sentinel(stage, former)
    wires = [await stage.wire(each) for each in (first, second)]
    for wire in wires:
        wire.down.delay = 0.2
    client = await stage.client()
    await client.call("open", sentinels=urls([out_of_date, *wires]), master=Sentinel.NAME)
    await client.acquire("b", "l")
    expect(await held_at(master, "l"), "it is held where one of three Sentinels says")


async def failover_by_sentinels(stage):
    master = await stage.start_server()
    replica = await stage.start_replica(master)
    sentinels = await asyncio.gather(*(sentinel(stage, master) for _ in range(3)))
    for each in sentinels:
        await eventually(lambda each=each: each.knows(1, 2), "a Sentinel knows all", AGREEMENT)
    client = await stage.client()
    await client.call("open", sentinels=urls(sentinels), master=Sentinel.NAME, grace=40_000)
    token = (await client.acquire("a"))["token"]
    await eventually(master.has_replica_in_step, "the replica is in step")
    await master.stop()
    for each in sentinels:
        await each.take_for_dead_after(500)

    async def is_there():
        try:
            holder = await held_at(replica)
        except (Failed, OSError):  # Sentinels close all connections of a server that they promote.
            return False
        return holder and holder[b"session"] == b"attached" and holder[b"token"] == token

    await eventually(is_there, "the session goes on at the new master", AGREEMENT)
    expect(await client.check("a") == "held", "lost")


# ---- a cluster ----


async def cluster_follows_moved(stage):
    nodes = await cluster(stage, 2)
    keys = [await nodes.key_of(number) for number in range(2)]
    client = await stage.client(nodes.nodes[0], cluster=True)
    for name, key, node in zip("ab", keys, nodes.nodes):
        await client.acquire(name, key)
        expect(await held_at(node, key), f"{key} is not held at its master")
    await client.call("release", id="b")
    await client.event(released="b")
    slot = await nodes.slot(keys[1])
    await nodes.take_slot(slot, 1, 0)
    await client.acquire("c", keys[1])
    expect(await held_at(nodes.nodes[0], keys[1]), "it is not held where the slot is now")
    expect(await client.check("a") == "held", "the other hold")
    # Each of two says that the other has it, which ends for no client that goes on.
    await client.call("release", id="c")
    await client.event(released="c")
    await nodes.set_slot(1, slot, "NODE", nodes.ids[0])
    await nodes.set_slot(0, slot, "NODE", nodes.ids[1])
    await client.call("acquire", id="d", keys=[keys[1]], wait=600_000)
    await client.event(refused="d", error="refused", code="MOVED")


async def cluster_follows_ask(stage):
    nodes = await cluster(stage, 2)
    key = await nodes.key_of(0)
    here, there = f"{{{key}}}here", f"{{{key}}}there"
    source, target = nodes.nodes
    client = await stage.client(source, cluster=True)
    await client.acquire("a", here)
    await nodes.open_slot(await nodes.slot(key), 0, 1)
    await client.acquire("b", there)
    raw = await stage.raw(target)

    async def at_the_target():
        await raw.ask("ASKING")
        return await raw.ask("LOCK.INFO", there)

    expect(await at_the_target(), "it is not held at the importing node")
    await client.call("release", id="b")
    await client.event(released="b")
    expect(await at_the_target() is None, "it is held after its release")
    await client.call("release", id="a")
    await client.event(released="a")
    expect(not client.has(lost="a"), "it was released where ASK had sent another request")


async def cluster_slot_moves(stage):
    nodes = await cluster(stage, 2)
    key = await nodes.key_of(0)
    held, waited = f"{{{key}}}held", f"{{{key}}}waited"
    source, target = nodes.nodes
    client = await stage.client(source, cluster=True)
    holder = await stage.raw(source)
    await holder.ask("LOCK.ACQUIRE", waited)
    await client.acquire("a", held)
    await client.call("acquire", id="b", keys=[waited])
    await source.is_waited_for(waited)
    await nodes.take_slot(await nodes.slot(key), 0, 1)
    await client.event(lost="a", reason="moved", within=AGREEMENT)
    await client.event(granted="b", within=AGREEMENT)
    expect(await held_at(target, waited), "it is not held where the slot is now")
    expect(not await held_at(target, held), "what was lost was asked for again")


async def cluster_watches_go_with_their_slot(stage):
    nodes = await cluster(stage, 2)
    key = await nodes.key_of(0)
    slot = await nodes.slot(key)
    watched, prefix, election = (f"{{{key}}}{name}" for name in ("watched", "members:", "leader"))
    client = await stage.client(nodes.nodes[0], cluster=True)
    await client.call("watch", id="w", keys=[watched])
    await client.call("presence", id="p", prefix=prefix)
    await client.call("observe", id="o", prefix=election)

    async def tells(kind, of, *expected):
        """So far, and nothing else; of an observer the values."""

        async def is_told():
            told = [event for event in client.events if event.get(kind) == of]
            return [event.get("value") if kind == "leader" else event["is"] for event in told] == [
                *expected
            ]

        await eventually(is_told, f"{of} tells {expected}", AGREEMENT)

    changes, members, leaders = ["missing"], [], [None]
    await tells("watch", "w", *changes)
    await tells("leader", "o", *leaders)
    for source, target in ((0, 1), (1, 0)):
        await nodes.take_slot(slot, source, target)
        raw = await stage.raw(nodes.nodes[target])
        for words, change in ((("SET", watched, "1"), "added"), (("DEL", watched), "deleted")):
            await raw.ask(*words)
            changes.append(change)
            await tells("watch", "w", *changes)
        await raw.ask("SETTP", f"{prefix}{target}", "here")
        members.append("add")
        await tells("presence", "p", *members)
        await raw.ask("SETTP", election, str(target))
        leaders.append(str(target))
        await tells("leader", "o", *leaders)
        # With the next move, and the end of its owner at last, both are gone.
        members.append("del")
        leaders.append(None)
    raw.close()
    await tells("presence", "p", *members)
    await tells("leader", "o", *leaders)


async def cluster_failover(stage):
    await goes_on_at_the_replica(stage, 1)


async def cluster_failover_of_the_first(stage):
    await goes_on_at_the_replica(stage, 0)


async def goes_on_at_the_replica(stage, first):
    """Of the first of three masters; the client is opened at this one."""
    nodes = await cluster(stage, 3)
    replica = await nodes.add_replica(stage, 0)
    key, others = await nodes.key_of(0), await nodes.key_of(1)
    client = await stage.client(nodes.nodes[first], cluster=True, grace=60_000)
    token = (await client.acquire("a", key))["token"]
    await client.acquire("b", others)
    await eventually(lambda: nodes.is_in_step(0, key), "the replica is in step")
    await nodes.take_for_dead_after(3000)
    await nodes.nodes[0].stop()

    async def is_there():
        try:
            holder = await held_at(replica, key)
        except Error:  # It is a replica still.
            return False
        return holder and holder[b"session"] == b"attached" and holder[b"token"] == token

    await eventually(is_there, "the session goes on at the promoted replica", AGREEMENT)
    expect(await client.check("a") == "held", "lost by a failover")
    expect(await client.check("b") == "held", "the hold at another master")
    await client.call("release", id="a")
    await client.event(released="a")


# ---- a quorum ----

# D is 4 s, and nothing is granted for as long after a start.
GRACE, QUARANTINE = 5000, "4000"


async def quorum(stage):
    servers = await asyncio.gather(
        *(stage.start_server("--tether.quarantine", QUARANTINE) for _ in range(3))
    )
    wire = await stage.wire(servers[1])
    client = await stage.client()
    await client.call("open", quorum=urls([servers[0], wire, servers[2]]), grace=GRACE)
    token = (await client.acquire("a"))["token"]
    holders = [await held_at(server) for server in servers]
    tokens = [each[b"token"] for each in holders if each]
    expect(tokens.count(token) >= 2, f"granted with {token}; the servers have {tokens}")
    for server in servers:
        await eventually(lambda server=server: held_at(server), "all three have it")
    await servers[0].stop()

    async def is_held_by_two():
        return await client.check("a") == "held" and await held_at(servers[2])

    await eventually(is_held_by_two, "one of three is dead, and it is held")
    wire.hole()
    cut_at = now()
    lost = await client.event(lost="a")
    expect(lost["at"] - cut_at < 5, f"lost {lost['at'] - cut_at:.1f} s after the majority was gone")
    # What remains of it is free at once.
    granted = (await stage.raw(servers[2])).queue("k")
    await asyncio.wait_for(granted, PATIENCE)
    short = await asyncio.gather(
        *(stage.start_server("--tether.quarantine", "3000") for _ in range(3))
    )
    client = await stage.client()
    await client.call("open", quorum=urls(short), grace=GRACE)
    await client.call("acquire", id="b", keys=["l"])
    await client.event(refused="b", error="unfit")

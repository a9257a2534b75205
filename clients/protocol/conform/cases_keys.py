"""Cases of level L3: temporary keys, watches, presence, elections.

Names and purposes are in cases.json.
"""

import asyncio
import functools
import random

from stage import PATIENCE, eventually, expect


async def temporary_key(stage):
    server = await stage.start_server()
    client = await stage.client(server)
    await client.acquire("a", temporary="here")
    expect(await server.ask("GET", "k") == b"here", "its value")
    await client.call("release", id="a")
    await client.event(released="a")
    expect(await server.ask("EXISTS", "k") == 0, "it is there after its release")
    await client.acquire("b", temporary="again")
    await server.ask("DEL", "k")
    await client.event(lost="b", reason="deleted")


COMPARE_AND_DELETE = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])"


async def in_the_place_of_set_nx(stage):
    server = await stage.start_server()
    client = await stage.client(server)

    async def compare_and_delete():
        return await server.ask("EVAL", COMPARE_AND_DELETE, 1, "k", "theirs")

    await server.ask("SET", "k", "theirs", "NX")
    await client.call("setnx", id="a", keys=["k"])
    await client.call("setnx", id="b", keys=["k"])
    await client.call("setnx", id="c", keys=["k"], wait=0)
    await client.event(refused="c", error="taken")
    await server.is_waited_for("k")
    expect(await compare_and_delete() == 1, "it was theirs")
    await client.event(granted="a")
    value = await server.ask("GET", "k")
    expect(2**62 <= int(value) < 2**63, f"the value is {value}")
    expect(await server.ask("SET", "k", "theirs", "NX") is None, "SET NX took a key that is held")
    expect(await compare_and_delete() is None, "what they do not have was deleted")
    expect(not client.has(granted="b"), "two have it")
    await client.call("release", id="a")
    await client.event(granted="b")
    expect(await server.ask("GET", "k") not in (value, None), "two requests have one value")
    await client.call("release", id="b")
    await client.event(released="b")
    expect(await server.ask("SET", "k", "theirs", "NX") == b"OK", "it is free")


async def written_over(stage):
    server = await stage.start_server()
    client = await stage.client(server)
    for name, reason, words in (
        ("a", "overwritten", ("SET", "k", "theirs")),
        ("b", "expired", ("PEXPIRE", "k", 1)),
        ("c", "deleted", ("DEL", "k")),
        ("d", "overwritten", ("GETSET", "k", "theirs")),
    ):
        await client.call("setnx", id=name, keys=["k"])
        await client.event(granted=name)
        await server.ask(*words)
        await client.event(lost=name, reason=reason)


async def breaking(stage, server, wire, times):
    """Breaks the client's connections at random moments."""
    for _ in range(times):
        await asyncio.sleep(random.uniform(0.05, 0.3))
        wire.reset()


async def watch_has_no_gap(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.call("watch", id="w", keys=["k"])
    await client.event(watch="w", key="k")
    raw = await stage.raw(server)
    breaks = asyncio.create_task(breaking(stage, server, wire, 10))
    number = 0
    while not breaks.done() or number < 10_000:
        await raw.ask(*(("SET", "k", "1") if number % 2 == 0 else ("DEL", "k")))
        number += 1

    def states():
        told = [event["is"] for event in client.events if event.get("watch") == "w"]
        return [state in ("exists", "added") for state in told]

    async def is_last(state):
        return states()[-1] == state

    for words, is_there in ((("SET", "k", "1"), True), (("DEL", "k"), False)):
        await raw.ask(*words)
        await eventually(functools.partial(is_last, is_there), f"the last state is {is_there}")
    expect(
        all(one != other for one, other in zip(states(), states()[1:])),
        "a change is told twice, or one is missing",
    )


async def slow_watcher(stage):
    server, keys = await stage.start_server(), ["k0", "k1", "k2"]
    client = await stage.client(server)
    await client.call("watch", id="w", keys=keys)
    for key in keys:
        await client.event(watch="w", key=key, **{"is": "missing"})
    await client.call("pause", id="w")
    raw = await stage.raw(server)
    for _ in range(100):
        for number in range(100):
            for key in keys:
                raw.send(*(("SET", key, "1") if number % 2 == 0 else ("DEL", key)))
        for _ in range(100 * len(keys)):
            await raw.reply()
    await raw.ask("SET", keys[1], "1")
    await client.acquire("a")  # The grant comes behind all pushes.
    before = len(client.events)
    await client.call("go_on", id="w")
    await client.event(watch="w", key=keys[1], **{"is": "added"})
    await client.acquire("b", "l")  # All that was not taken is, by now.
    told = [event for event in client.events[before:] if event.get("watch") == "w"]
    expect(len(told) <= 1024 + len(keys), f"{len(told)} events were kept for a reader that stopped")
    for key in keys:
        states = ["deleted", *(event["is"] for event in told if event["key"] == key)]
        expect(
            all(one != other for one, other in zip(states, states[1:])),
            f"a change of {key} is told twice, or one is missing",
        )
        expect(
            states[-1] == ("added" if key == keys[1] else "deleted"), f"{key} ends as {states[-1]}"
        )


async def presence_has_no_gap(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    rng = random.Random(37)
    members = [await server.raw() for _ in range(5)]
    for number in range(2_500):  # More than two pages.
        await members[number % 5].ask("SETTP", f"p:{number}", "v")
    await client.call("presence", id="p", prefix="p:")
    breaks = asyncio.create_task(breaking(stage, server, wire, 5))
    while not breaks.done():
        number = rng.randrange(2_500)
        await members[number % 5].ask(
            *(("DELTP", f"p:{number}") if rng.random() < 0.6 else ("SETTP", f"p:{number}", "w"))
        )
    members[0].close()  # Five hundred at once.

    async def is_right():
        seen = {}
        for event in client.events:
            if event.get("presence") == "p" and event["is"] == "del":
                seen.pop(event["key"], None)
            elif event.get("presence") == "p":
                seen[event["key"]] = event["token"]
        return set(seen) == {key.decode() for key in await server.ask("KEYS", "p:*")}

    await eventually(is_right, "the client knows who is there")
    seen = {}
    for event in client.events:
        key = event.get("key")
        if event.get("presence") == "p":
            expect(
                (event["is"] == "add") == (key not in seen),
                f"{event} of one that is {'not ' * (key not in seen)}known",
            )
            seen.pop(key, None) if event["is"] == "del" else seen.update({key: True})


async def observer_sees_the_leader(stage):
    server = await stage.start_server()
    client = await stage.client(server)
    await client.call("observe", id="o", prefix="lead")
    await client.event(leader="o", token=None)
    first, second = await server.raw(), await stage.raw(server)
    token = await first.ask("SETTP", "lead", "host-1", "TOKEN")
    await client.event(leader="o", token=token, value="host-1")
    second.send("SETTP", "lead", "host-2", "TOKEN", "WAIT", 0)
    await server.is_waited_for("lead")
    first.close()
    token = await asyncio.wait_for(second.reply(), PATIENCE)
    await client.event(leader="o", token=token, value="host-2")
    nobody = [
        event for event in client.events if event.get("leader") == "o" and event["token"] is None
    ]
    expect(len(nobody) == 1, "there was nobody for a moment")

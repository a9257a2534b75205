"""Cases of level L1: locks, leases, the fence, guarded writes.

Names and purposes are in cases.json.
"""

import asyncio
import json
import os
import random
import signal
from functools import partial

from stage import PATIENCE, Failed, Skipped, eventually, expect, now

# With this setting D is 1.0 s (P-FENCE-1), and the server frees the locks of a silent peer 2.0 s
# after its last word.
PEER_TIMEOUT = ("--tether.peer-timeout", "2000")
D = 1.0
# Three times as long, where answers are late on purpose and the machine may be slow besides.
LONG_PEER_TIMEOUT = ("--tether.peer-timeout", "6000")
LONG_D = 3.0
# What it takes from the cut until then at least: the last PING was sent D/4 before, perhaps.
LEAST_PATIENCE = 2.0 - D / 4
SOON_BUSY = ("--busy-reply-threshold", "50")


async def simple(stage, **options):
    server = await stage.start_server()
    return server, await stage.client(server, **options)


async def comes_before(client, name, granted, reason=None):
    """The client said that it lost the lock before the raw connection was granted it."""
    lost = await client.event(lost=name)
    _, at = await asyncio.wait_for(granted, PATIENCE)
    expect(lost["at"] < at, f"lost {lost['at'] - at:.3f} s after the next one was granted the lock")
    expect(reason is None or lost["reason"] == reason, f"lost: {lost['reason']}, not {reason}")


async def says_its_levels(stage):
    client = await stage.client()
    levels = client.hello["levels"]
    order = ["L1", "L2", "L3", "L4"]
    own = [level for level in levels if level != "CLUSTER"]
    expect(own == order[: len(own)] and own, f"{levels}")


async def has_a_name(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    name = (await server.info("k"))[b"holders"][0][b"name"].decode()
    parts = name.split(":")
    is_ours = len(parts) >= 4 and parts[0] == "tether"
    expect(is_ours, f"the name is {name!r}, not tether:<host>:<pid>:<program>")
    expect(
        parts[2] == str(client.process.pid),
        f"the name is {name!r}: the pid is {client.process.pid}",
    )


async def may_not_have_a_name(stage):
    server = await stage.start_server()
    await server.ask("ACL", "SETUSER", "default", "on", "nopass", "~*", "+@all", "-client|setname")
    client = await stage.client(server)
    await client.acquire("a")


async def has_one_connection_of_its_own(stage):
    server, client = await simple(stage)
    for number in range(20):
        await client.call("acquire", id=f"r{number}", keys=["k"])
    await server.is_waited_for("k", 19)
    info = await server.info("k")
    labels = {each[b"label"] for each in info[b"holders"] + info[b"waiters"]}
    ids = {each[b"client"] for each in info[b"holders"] + info[b"waiters"]}
    expect(len(ids) == 1, f"{len(ids)} connections hold and wait")
    expect(len(labels) == 20, f"{len(labels)} labels")


async def connects_when_it_is_needed(stage):
    server, client = await simple(stage)
    names = (await server.ask("CLIENT", "LIST")).decode().strip().split("\n")
    expect(len(names) == 1, f"connected before anything was asked: {names}")
    await client.acquire("a")
    await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    await client.event(lost="a")
    await client.acquire("b")


async def module_is_missing(stage):
    server = await stage.start_server(module=False)
    client = await stage.client(server)
    await client.call("acquire", id="a", keys=["k"])
    await client.event(refused="a", error="nomodule")


async def replica_is_followed_to_its_master(stage):
    master = await stage.start_server()
    replica = await stage.start_replica(master)
    client = await stage.client(replica)
    await client.acquire("a")
    expect(len((await master.info("k"))[b"holders"]) == 1, "it is not held at the master")


async def accepts_and_says_nothing(stage):
    silent = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    stage.ends.callback(silent.close)
    silent.port = silent.sockets[0].getsockname()[1]
    client = await stage.client(silent)
    began = now()
    await client.call("acquire", id="a", keys=["k"], wait=0)
    refused = await client.event(refused="a", error="unreachable")
    expect(refused["at"] - began < 20, "it took longer than connect_timeout twice")


async def password_is_wrong(stage):
    server = await stage.start_server("--requirepass", "right")
    client = await stage.client()
    await client.call("open", url=f"redis://:seCRETword@127.0.0.1:{server.port}")
    await client.call("acquire", id="a", keys=["k"])
    await client.event(refused="a", error="refused")
    said = json.dumps(client.lines) + (stage.folder / "stderr").read_text()
    expect("seCRETword" not in said, "the password is in what it said")


async def lock_is_handed_over(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await client.call("release", id="a")
    await asyncio.wait_for(granted, PATIENCE)
    await client.event(released="a")
    expect(await client.check("a") == "released", "check")


async def lock_is_taken(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await raw.ask("LOCK.ACQUIRE", "k")
    await client.call("acquire", id="a", keys=["k"], wait=0)
    await client.event(refused="a", error="taken")
    await client.call("acquire", id="b", keys=["k"], wait=300)
    await client.event(refused="b", error="taken")
    await client.call("acquire", id="c", keys=["k"], wait=60000)
    await server.is_waited_for("k")
    await raw.ask("LOCK.RELEASE", "k")
    await client.event(granted="c")


async def lock_is_shared(stage):
    server, client = await simple(stage)
    await client.acquire("a", shared=True)
    await client.acquire("b", shared=True)
    await client.call("acquire", id="w", keys=["k"])
    await server.is_waited_for("k")
    expect(not client.has(granted="w"), "a writer beside readers")
    await client.call("release", id="a")
    await client.call("release", id="b")
    await client.event(granted="w")
    await client.acquire("p", "s", permits=[2, 3])
    await client.call("acquire", id="q", keys=["s"], permits=[2, 3], wait=0)
    await client.event(refused="q", error="taken")


async def several_at_once(stage):
    server, client = await simple(stage)
    await client.acquire("a", "k", "l", "m")
    raw, other = await stage.raw(server), await stage.raw(server)
    granted = [raw.queue("k"), other.queue("m")]
    await server.is_waited_for("m")
    await server.ask("DEL", "l")
    await client.event(lost="a", reason="deleted")
    for each in granted:
        await asyncio.wait_for(each, PATIENCE)


async def deadlock_between_two_requests(stage):
    server, client = await simple(stage)
    await client.acquire("a1", "k", **{"from": "t1"})
    await client.acquire("b1", "l", **{"from": "t2"})
    await client.call("acquire", id="a2", keys=["l"], **{"from": "t1"})
    await server.is_waited_for("l")
    await client.call("acquire", id="b2", keys=["k"], **{"from": "t2"})
    await client.event(refused="b2", error="deadlock", within=5)


async def one_lock_object_for_all(stage):
    _, client = await simple(stage)
    for number in range(20):
        await client.call("acquire", id=f"r{number}", keys=["k"])
    for number in range(20):
        granted = await client.event(granted=f"r{number}")
        others = [e for e in client.events if "granted" in e and e["at"] > granted["at"]]
        expect(not others, f"{others} beside r{number}")
        await client.call("release", id=f"r{number}")
        await client.event(released=f"r{number}")


async def quarantine(stage):
    client = await stage.client()
    server = await stage.start_server("--tether.quarantine", "4000")
    await client.call("open", url=f"redis://127.0.0.1:{server.port}")
    await client.call("acquire", id="a", keys=["k"], wait=0)
    await client.event(refused="a", error="taken", code="QUARANTINE")
    await client.acquire("b")


async def lease_is_over(stage):
    server, client = await simple(stage)
    await client.acquire("a", lease=500)
    raw = await stage.raw(server)
    await asyncio.wait_for(raw.queue("k"), PATIENCE)
    await client.event(lost="a", reason="lease")


async def lease_is_extended(stage):
    _, client = await simple(stage)
    granted = await client.acquire("a", lease=1500)
    await client.call("extend", id="a", lease=4000)
    await client.event(extended="a")
    lost = await client.event(lost="a", reason="lease")
    expect(lost["at"] - granted["at"] > 3, "it was lost with the first lease")


async def lease_in_silence(stage):
    server = await stage.start_server()  # D is 5 s.
    wire = await stage.wire(server)
    client = await stage.client(wire)
    raw = await stage.raw(server)
    await client.acquire("a", lease=2000)
    granted = raw.queue("k")
    await server.is_waited_for("k")
    wire.hole()
    lost = await client.event(lost="a")
    _, at = await asyncio.wait_for(granted, PATIENCE)
    expect(
        lost["at"] - at < 1, f"lost {lost['at'] - at:.2f} s after the next one was granted the lock"
    )


async def key_is_deleted(stage):
    server, client = await simple(stage)
    await client.acquire("kept", "kept")
    for name, words, reason in (
        ("a", ("DEL", "k"), "deleted"),
        ("b", ("SET", "k", "1"), "overwritten"),
        ("c", ("PEXPIRE", "k", "50"), "expired"),
        ("d", ("RENAME", "other", "k"), "overwritten"),
    ):
        await server.ask("DEL", "k")
        await server.ask("SET", "other", "1")
        await client.acquire(name)
        await server.ask(*words)
        await client.event(lost=name, reason=reason)
    await server.ask("DEL", "k")
    expect(await client.check("kept") == "held", "the other hold")
    await server.ask("FLUSHALL")
    await client.event(lost="kept", reason="flushed")


async def key_is_renamed_and_deleted(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    await client.acquire("b", "l")
    await server.ask("RENAME", "k", "new")
    await server.ask("DEL", "new")
    await client.event(lost="a", reason="deleted")
    expect(await client.check("b") == "held", "the other hold")


async def key_is_renamed_and_released(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    await server.ask("RENAME", "k", "new")
    raw = await stage.raw(server)
    granted = raw.queue("new")
    await server.is_waited_for("new")
    await client.call("release", id="a")
    await asyncio.wait_for(granted, 5)


async def guarded_write(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    await client.call("guard", id="a", command=["SET", "x", "1"])
    await client.event(ran="a")
    await server.ask("DEL", "k")
    await client.call("guard", id="a", command=["SET", "x", "2"])
    await client.event(lost="a")
    expect(await server.ask("GET", "x") == b"1", "it was written")


async def fenced_on_another_server(stage):
    _, client = await simple(stage)
    other = await stage.start_server()
    token = (await client.acquire("a"))["token"]

    async def write(value):
        await client.call(
            "run_on", id="a", url=f"redis://127.0.0.1:{other.port}",
            fence="{x}fence", keys=["{x}"], args=[value],
            script="return redis.call('SET', KEYS[1], ARGV[1])",
        )  # fmt: skip

    for value in ("1", "2"):
        await write(value)
        await client.event(ran="a", reply="OK")
        expect(await other.ask("GET", "{x}") == value.encode(), "it is written")
        expect(await other.ask("GET", "{x}fence") == str(token).encode(), "its token is kept")
        client.events.clear()
        await other.ask("SCRIPT", "FLUSH")
    await other.ask("SET", "{x}fence", "9" * (len(str(token)) - 1))
    await write("3")
    await client.event(ran="a", reply="OK")
    await other.ask("REPLICAOF", "127.0.0.1", "1")
    await write("4")
    await client.event(not_run="a")
    expect(await client.check("a") == "held", "a server that is read-only says nothing of the lock")
    await other.ask("REPLICAOF", "NO", "ONE")
    await other.ask("SET", "{x}fence", str(token + 1))
    await write("5")
    await client.event(lost="a")
    expect(await other.ask("GET", "{x}") == b"3", "it was written")
    expect(await other.ask("TTL", "{x}fence") == -1, "the fence has a time to live")


async def guarded_write_is_not_repeated(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.acquire("a")
    await client.call(
        "guard", id="a", command=["SET", "y", "1"]
    )  # Which makes the connection for data.
    await client.event(ran="a")
    wire.down.hold()
    await client.call("guard", id="a", command=["INCR", "x"])

    async def was_run():
        return await server.ask("GET", "x")

    await eventually(was_run, "it is run")
    wire.reset()
    wire.down.let_go()
    await client._until(
        lambda: client.has(not_run="a") or client.has(lost="a"), "the caller hears of it"
    )
    await client.acquire("b", "l")  # Whatever is tried again was tried by now.
    expect(await server.ask("GET", "x") == b"1", "it was run more than once")


async def server_is_asked(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    await client.call("check_server", id="a")
    await client.event(checked="a")
    await server.ask("DEL", "k")
    await client.call("check_server", id="a")
    await client.event(lost="a")


# ---- the fence ----


async def cut(stage, up, down):
    server = await stage.start_server(*PEER_TIMEOUT)
    wire = await stage.wire(server)
    client = await stage.client(wire)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await asyncio.sleep(random.uniform(0, D))  # At any moment between two PINGs.
    wire.hole(up, down)
    giving_up = asyncio.create_task(wire.server_gives_up(LEAST_PATIENCE))
    await comes_before(client, "a", granted, "silence")
    await giving_up


async def dead_before_the_next_to_server(stage):
    await cut(stage, True, False)


async def dead_before_the_next_to_client(stage):
    await cut(stage, False, True)


async def dead_before_the_next_both(stage):
    await cut(stage, True, True)


async def held_on_a_slow_wire(stage, server, for_so_long):
    """A client that holds `k`, and is answered D/2 after it asked: it asks each D/4.

    Where the machine was so slow that an answer came too late, the hold is lost as it should be:
    another client tries.
    """
    for _ in range(5):
        wire = await stage.wire(server)
        client = await stage.client(wire)
        await client.acquire("a")
        began, wire.down.delay = now(), 0.5 * LONG_D
        await asyncio.sleep(for_so_long)
        if await client.check("a") == "held":
            return wire, client
        silence = wire.longest_silence(began, (await client.event(lost="a"))["at"])
        expect(silence > 0.9 * LONG_D, f"lost although answered within {silence:.2f} s")
        await client.stop()
    raise Failed("late each time: the machine is too slow, or the client asks too seldom")


async def fence_counts_from_sending(stage):
    server = await stage.start_server(*LONG_PEER_TIMEOUT)
    raw = await stage.raw(server)
    wire, client = await held_on_a_slow_wire(stage, server, 2 * LONG_D)
    granted = raw.queue("k")
    await server.is_waited_for("k")
    wire.up.is_hole = True
    # Two answers are still on their way: they vouch from their sending only.
    giving_up = asyncio.create_task(wire.server_gives_up(2 * LONG_D - LONG_D / 4))
    # However slow the machine is: the last answered PING was sent before it came here.
    await asyncio.sleep(wire.pings[-1] + LONG_D + 0.01 - now())
    said = await client.check("a")
    expect(said == {"lost": "silence"}, f"it is {said}, D after the last answered PING was sent")
    await comes_before(client, "a", granted, "silence")
    await giving_up


async def fence_and_a_stopped_client(stage):
    server = await stage.start_server(*PEER_TIMEOUT)
    client = await stage.client(server)
    await client.acquire("a")
    client.signal(signal.SIGSTOP)
    await asyncio.sleep(1.5 * D)
    number = client.post("check", id="a")
    client.signal(signal.SIGCONT)
    answer = await client._until(lambda: client.answers.get(number), "check is answered")
    expect(answer["gives"] == {"lost": "silence"}, f"check gives {answer['gives']}")
    await client.event(lost="a", reason="silence")
    # The same by a pause inside the program, after which no timer can have been first.
    await client.acquire("b", "l")
    gives = (await client.call("check", id="b", stall=1500 * D))["gives"]
    expect(gives == {"lost": "silence"}, f"after a pause check gives {gives}")


async def fence_and_a_stopped_server(stage):
    server = await stage.start_server(*PEER_TIMEOUT)
    client = await stage.client(server)
    await client.acquire("a")
    server.signal(signal.SIGSTOP)
    await client.event(lost="a", reason="silence")
    server.signal(signal.SIGCONT)
    await client.acquire("b", "l")
    expect(await client.check("a") == {"lost": "silence"}, "it is held again")


async def fence_and_a_paused_server(stage):
    server = await stage.start_server(*PEER_TIMEOUT)
    client = await stage.client(server)
    await client.acquire("a")
    await server.ask("CLIENT", "PAUSE", "3000", "ALL")
    await client.event(lost="a", reason="silence")
    await client.acquire("b", "l")


async def stays_open_while_work_stops(stage):
    server = await stage.start_server("--tether.peer-timeout", "4000")
    wire = await stage.wire(server)
    client = await stage.client(wire, stop_within=2000)  # D is 1 s.
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    # The server is silent, but would see the client close the connection.
    wire.down.is_hole = True
    lost = await client.event(lost="a", reason="silence")
    _, at = await asyncio.wait_for(granted, PATIENCE)
    expect(
        at - lost["at"] > 1.8,
        f"the connection ended {at - lost['at']:.2f} s after the loss; work may take 2 s to stop",
    )


async def slow_answers_lose_nothing(stage):
    server = await stage.start_server(*LONG_PEER_TIMEOUT)
    await held_on_a_slow_wire(stage, server, 4 * LONG_D)


# ---- breaks, restarts, refusals ----


async def kill_clients(server):
    await server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


async def connection_is_killed(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    await kill_clients(server)
    await client.event(lost="a", reason="connection")
    await client.acquire("b")


async def wait_outlives_a_kill(stage):
    server, client = await simple(stage)
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "k")
    await client.call("acquire", id="a", keys=["k"])
    for _ in range(3):
        await server.is_waited_for("k")
        waiter = (await server.info("k"))[b"waiters"][0][b"client"]
        await server.ask("CLIENT", "KILL", "ID", waiter)
        await eventually(partial(gone, server, waiter), "the connection is gone")
    await server.is_waited_for("k")
    await holder.ask("LOCK.RELEASE", "k")
    await client.event(granted="a")


async def gone(server, id):
    return all(each[b"client"] != id for each in (await server.info("k"))[b"waiters"])


async def wait_outlives_a_restart(stage):
    server, client = await simple(stage)
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "k")
    await client.call("acquire", id="a", keys=["k"])
    await server.is_waited_for("k")
    await server.stop()
    await asyncio.sleep(1)
    await server.start()
    await client.event(granted="a")


async def many_clients_do_not_come_at_once(stage):
    number = 8
    server = await stage.start_server()
    wires = [await stage.wire(server) for _ in range(number)]
    clients = await asyncio.gather(*(stage.client(wire) for wire in wires))
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "wanted")
    for client in clients:
        await client.call("acquire", id="b", keys=["wanted"])
    await server.is_waited_for("wanted", number)
    await asyncio.sleep(1)  # Each connection stood for long enough to be followed at once.
    for wire in wires:
        wire.attempts.clear()
    stopped_at = now()
    await server.stop()

    async def all_tried():
        return all(len(wire.attempts) >= 6 for wire in wires)

    await eventually(all_tried, "each client tries six times")
    for wire in wires:
        early = [at for at in wire.attempts if at - stopped_at < 1]
        expect(len(early) <= 10, f"a client tried {len(early)} times in the first second")
    # Between the fifth and the sixth, each client waits a time of its own, of 160 to 320.
    delays = [wire.attempts[5] - wire.attempts[4] for wire in wires]
    expect(max(delays) - min(delays) > 0.03, f"all wait equally long: {delays}")
    await server.start()
    while clients:
        client = await eventually(partial(one_with_a_grant, clients), "one of them is granted it")
        clients.remove(client)
        expect(not await one_with_a_grant(clients), "it is granted to two at once")
        await client.call("release", id="b")
        await client.event(released="b")


async def one_with_a_grant(clients):
    return next((client for client in clients if client.has(granted="b")), None)


async def wait_outlives_a_failover(stage):
    one = await stage.start_server()
    other = await stage.start_server()
    client = await stage.client(one, others=[f"redis://127.0.0.1:{other.port}"])
    holder = await one.raw()
    await holder.ask("LOCK.ACQUIRE", "k")
    await client.acquire("held", "l")
    await client.call("acquire", id="a", keys=["k"])
    await one.is_waited_for("k")
    await one.ask("REPLICAOF", "127.0.0.1", other.port)
    await client.event(lost="held", reason="demoted")
    await client.event(granted="a")
    expect(len((await other.info("k"))[b"holders"]) == 1, "it is not held at the new master")


async def cut_inside_a_reply(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.acquire("a")
    wire.down.cut_after = 5  # Of `:251023456790531`.
    await client.call("acquire", id="b", keys=["l"], wait=0)
    await client.event(refused="b", error="unreachable")
    await client.event(lost="a", reason="connection")
    wire.down.cut_after = None
    granted = await client.acquire("c", "l")
    expect(granted["token"] > 1 << 22, f"the token is {granted['token']}")


async def cut_in_every_place(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    wire.up.size = wire.down.size = 1
    client = await stage.client(wire)
    await client.acquire("a")
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "l")
    await client.call("acquire", id="b", keys=["l"])
    await server.is_waited_for("l")
    await holder.ask("LOCK.RELEASE", "l")
    await client.event(granted="b")
    await server.ask("DEL", "k")
    await client.event(lost="a", reason="deleted")
    await client.call("release", id="b")
    await client.event(released="b")


async def frame_that_is_none(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.acquire("a")
    wire.put(b"what is this\r\n")
    await client.event(lost="a", reason="connection")
    await client.acquire("b", "l")


async def push_cut_in_two(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.acquire("a")
    wire.down.size, wire.down.delay = 20, 0.3
    await server.ask("DEL", "k")
    await client.event(lost="a", reason="deleted")
    await client.acquire("b")


async def push_before_the_reply(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    raw = await stage.raw(server)
    await raw.ask("LOCK.ACQUIRE", "k")
    await raw.ask("LOCK.ACQUIRE", "l")
    await client.call("acquire", id="a", keys=["k"])
    await server.is_waited_for("k")
    # What the client reads at once: the push for `a`, null for `b`, the push for `b`.
    wire.down.hold()
    await raw.ask("LOCK.RELEASE", "k")
    await client.call("acquire", id="b", keys=["l"])
    await server.is_waited_for("l")
    await raw.ask("LOCK.RELEASE", "l")
    wire.down.let_go()
    await client.event(granted="a")
    await client.event(granted="b")
    # The server writes the push for `c` in front of the reply to the release that frees the lock.
    await client.call("acquire", id="c", keys=["l"])
    await server.is_waited_for("l")
    await client.call("release", id="b")
    await client.event(released="b")
    await client.event(granted="c")
    for name in ("a", "c"):
        expect(await client.check(name) == "held", f"the hold {name}")


async def loss_before_the_grant(stage):
    server = await stage.start_server()
    wire = await stage.wire(server)
    client = await stage.client(wire)
    await client.acquire("other", "other")
    wire.down.hold()
    await client.call("acquire", id="a", keys=["k"])

    async def holder():
        return (await server.info("k"))[b"holders"]

    label = (await eventually(holder, "k is held"))[0][b"label"]
    said = b"LOST deleted " + label
    wire.put(b">3\r\n$4\r\nlock\r\n$1\r\nk\r\n$%d\r\n%s\r\n" % (len(said), said))
    wire.down.let_go()
    await client.event(lost="a", reason="deleted")
    told = [name for event in client.events for name in event if event[name] == "a"]
    expect(told == ["granted", "lost"], f"it was told {told}")
    expect(await client.check("a") == {"lost": "deleted"}, "it is held all the same")
    expect(await client.check("other") == "held", "the other hold")


async def refused_release_loses_nothing(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("other", "other")
    for name, setting, off, on in (
        ("a", "min-replicas-to-write", "1", "0"),
        ("b", "maxmemory", "1", "0"),
    ):
        await client.acquire(name)
        granted = raw.queue("k")
        await server.is_waited_for("k")
        await server.ask("CONFIG", "SET", setting, off)
        await client.call("release", id=name)
        await asyncio.sleep(0.5)
        await server.ask("CONFIG", "SET", setting, on)
        await asyncio.wait_for(granted, PATIENCE)
        await raw.ask("LOCK.RELEASE", "k")
        expect(await client.check("other") == "held", f"the other hold, with {setting}")


async def busy_server(stage):
    server = await stage.start_server(*SOON_BUSY)
    client = await stage.client(server)
    raw = await stage.raw(server)
    await client.acquire("a")
    await client.acquire("other", "other")
    script = await stage.raw(server)
    script.send("EVAL", "while true do end", 0)

    async def is_busy():
        try:
            await server.ask("PING")
        except Exception as error:
            return str(error).startswith("BUSY")

    await eventually(is_busy, "the server is busy")
    await client.call("release", id="a")
    await client.call("acquire", id="b", keys=["l"])
    await asyncio.sleep(1)
    await server.ask("SCRIPT", "KILL")
    await client.event(granted="b")
    await asyncio.wait_for(raw.queue("k"), PATIENCE)
    expect(await client.check("other") == "held", "the other hold")


async def right_is_taken_away(stage):
    server, client = await simple(stage)
    admin = await stage.raw(server)
    await client.acquire("a")
    await client.acquire("other", "other")
    granted = admin.queue("k")
    await server.is_waited_for("k")
    await server.ask("ACL", "SETUSER", "default", "-lock.release")
    await client.call("release", id="a")
    await asyncio.sleep(0.5)
    expect(await client.check("other") == "held", "the other hold")
    await server.ask("ACL", "SETUSER", "default", "+lock.release")
    await asyncio.wait_for(granted, PATIENCE)
    expect(await client.check("other") == "held", "the other hold, later")


async def cancel_at_random(stage, server, client, number):
    held = await server.raw()
    rng = random.Random(37)
    for at in range(number):
        keys = ["k"] if rng.random() < 0.7 else ["k", "l"]
        await client.call("acquire", id=f"r{at}", keys=keys)
        if rng.random() < 0.2:  # Somebody else holds it, for a moment.
            held.send("LOCK.ACQUIRE", "k")
            held.send("LOCK.RELEASE", "k")
        if rng.random() < 0.5:
            await asyncio.sleep(rng.random() * 0.004)
        client.post("give_up", id=f"r{at}")
    held.close()

    async def is_empty():
        infos = [await server.info(key) for key in ("k", "l")]
        return not any(info[who] for info in infos for who in (b"holders", b"waiters"))

    await eventually(is_empty, "nobody holds or waits")


async def _2000_cancels_leave_nobody(stage):
    server, client = await simple(stage)
    await cancel_at_random(stage, server, client, 2000)
    await client.acquire("last", "k", "l")


async def cancels_while_the_server_refuses(stage):
    server, client = await simple(stage)
    await client.acquire("other", "other")

    async def trouble():
        while True:
            for number in (1, 0):
                await server.ask("CONFIG", "SET", "min-replicas-to-write", number)
                await asyncio.sleep(0.02)

    task = asyncio.create_task(trouble())
    try:
        for at in range(300):
            await client.call("acquire", id=f"r{at}", keys=["k"])
            client.post("give_up", id=f"r{at}")
    finally:
        task.cancel()
    await server.ask("CONFIG", "SET", "min-replicas-to-write", "0")

    async def is_empty():
        info = await server.info("k")
        return not info[b"holders"] and not info[b"waiters"]

    await eventually(is_empty, "nobody holds or waits")
    expect(await client.check("other") == "held", "the other hold")


async def close_frees_at_once(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    holder = await server.raw()
    await holder.ask("LOCK.ACQUIRE", "l")
    await client.call("acquire", id="b", keys=["l"])
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await client.call("close")
    await asyncio.wait_for(granted, 5)
    await client.event(lost="a", reason="closed")
    await client.event(refused="b", error="closed")


async def end_of_the_program(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    await client.end_input()
    await asyncio.wait_for(granted, 2)


async def killed_client(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    client.signal(signal.SIGKILL)
    await asyncio.wait_for(granted, 2)


async def fork(stage):
    server, client = await simple(stage)
    raw = await stage.raw(server)
    await client.acquire("a")
    child = await start_child(stage, client)
    answer = await told(client, child, -1, call="check", id="a")
    expect(answer["gives"] == {"lost": "fork"}, f"in the child check gives {answer['gives']}")
    await told(client, child, -2, call="release", id="a")
    expect(await client.check("a") == "held", "the parent's hold")
    expect(len((await server.info("k"))[b"holders"]) == 1, "the child released the parent's lock")
    granted = raw.queue("k")
    await server.is_waited_for("k")
    client.signal(signal.SIGKILL)
    await asyncio.wait_for(granted, 2)


async def start_child(stage, client):
    """Of a forked child the end by which it is told what to do; it ends with the case."""
    path = stage.folder / "child"
    os.mkfifo(path)
    await client.call("fork", input=str(path))
    child = os.open(path, os.O_RDWR)
    stage.ends.callback(os.close, child)
    return child


async def told(client, child, number, **call):
    os.write(child, json.dumps({"n": number, **call}).encode() + b"\n")
    return await client._until(lambda: client.answers.get(number), f"the child answers {call}")


async def fork_and_a_lock_of_its_own(stage):
    server, client = await simple(stage)
    await client.acquire("a")
    child = await start_child(stage, client)
    answer = await told(client, child, -1, call="acquire", id="b", keys=["l"])
    if answer.get("error") != "fork":
        expect("token" in answer, f"{answer}")
        holders = [(await server.info(key))[b"holders"][0][b"client"] for key in ("k", "l")]
        expect(holders[0] != holders[1], "parent and child hold by one connection")
    expect(await client.check("a") == "held", "the parent's hold")


async def exec_keeps_no_socket(stage):
    _, client = await simple(stage)
    await client.acquire("a")
    answer = await client.call("execute")
    expect(answer["sockets"] == [], f"the executed child has {answer['sockets']}")


async def unix_socket(stage):
    path = stage.folder / "socket"
    await stage.start_server("--unixsocket", str(path))
    client = await stage.client()
    await client.call("open", url=f"unix://{path}")
    await client.acquire("a")
    await asyncio.sleep(2)
    expect(await client.check("a") == "held", "lost")


WITHOUT_PUSHES = ("--tether.private-functions", "never")


async def server_without_pushes(stage):
    server = await stage.start_server(*WITHOUT_PUSHES)
    client = await stage.client(server)
    await client.call("acquire", id="a", keys=["k"], lease=60_000)
    event = await outcome(client, "a")
    if "granted" not in event:
        expect(event["error"] == "nopush", f"{event}")
        text = event.get("text", "")
        expect("tether qualify" in text, f"the text names no tether qualify: {event}")
    if "watch" in client.hello["calls"]:
        await client.call("watch", id="w", keys=["k"])
        ended = await client.event(ended="w", error="nopush")
        expect("tether qualify" in ended.get("text", ""), f"{ended}")


async def outcome(client, name):
    """The grant or the refusal."""

    def look():
        of_it = (e for e in client.events if name in (e.get("granted"), e.get("refused")))
        return next(of_it, None)

    return await client._until(look, f"what becomes of {name}")


async def holds_without_pushes(client, name, *keys, **fields):
    """A grant. A client may refuse to hold locks there (P-NOPUSH-2)."""
    await client.call("acquire", id=name, keys=list(keys), **fields)
    event = await outcome(client, name)
    if event.get("error") == "nopush":
        raise Skipped("the client holds no lock on a server without pushes")
    expect("granted" in event, f"{event}")
    return event


async def server_without_pushes_loses(stage):
    server = await stage.start_server(*WITHOUT_PUSHES, *LONG_PEER_TIMEOUT)
    client = await stage.client(server)
    await holds_without_pushes(client, "a", "k")
    await client.call("acquire", id="b", keys=["k"])
    await server.is_waited_for("k")
    await client.call("release", id="a")
    await client.event(released="a")
    await client.event(granted="b")
    began = now()
    await server.ask("DEL", "k")
    lost = await client.event(lost="b", reason="deleted")
    expect(lost["at"] - began < LONG_D, f"lost {lost['at'] - began:.2f} s after it was deleted")


async def server_without_pushes_has_a_limit(stage):
    server = await stage.start_server(*WITHOUT_PUSHES)
    client = await stage.client(server)
    for number in range(64):
        await holds_without_pushes(client, f"r{number}", f"k{number}")
    await client.call("acquire", id="more", keys=["more"])
    await client.event(refused="more", error="refused", code="CONNECTIONS")
    await client.call("release", id="r0")
    await client.event(released="r0")
    await holds_without_pushes(client, "again", "more")

"""`Locks(cluster=True)`: slots of two masters, and what moves between them.

The cases of clients/protocol/conform have redirections, losses and failovers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

import tether_locks.asyncio as aio
from tether_locks import Closed, CrossSlot, Locks, Lost, Stale, Taken
from tether_locks._cluster import Cluster
from tether_locks._state import slot_of

from .conftest import DEADLINE_S, Server, eventually, free_port

SLOTS = 16384
# Of the first master, and of the second.
LOW, HIGH = "{b}", "{a}"


class Pair:
    """Two masters of a cluster."""

    def __init__(self) -> None:
        self.nodes = [
            Server("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2)
        ]
        low, high = self.nodes
        low.run("CLUSTER", "ADDSLOTSRANGE", 0, SLOTS // 2 - 1)
        high.run("CLUSTER", "ADDSLOTSRANGE", SLOTS // 2, SLOTS - 1)
        high.run("CLUSTER", "SET-CONFIG-EPOCH", 2)
        bus = high.run("CONFIG", "GET", "cluster-port")
        bus = bus[b"cluster-port"] if isinstance(bus, dict) else bus[1]
        low.run("CLUSTER", "MEET", "127.0.0.1", high.port, int(bus))
        self.ids = [node.run("CLUSTER", "MYID").decode() for node in self.nodes]
        for node in self.nodes:
            eventually(lambda node=node: b"cluster_state:ok" in node.run("CLUSTER", "INFO"))  # type: ignore[misc]

    def move(self, key: str, to: int) -> None:
        slot, target = slot_of(key.encode()), self.nodes[to]
        target.run("CLUSTER", "SETSLOT", slot, "IMPORTING", self.ids[1 - to])
        target.run("CLUSTER", "SETSLOT", slot, "NODE", self.ids[to])
        eventually(lambda: self.owner(slot) == self.nodes[to].port)

    def owner(self, slot: int) -> int:
        """As the other one sees it."""
        ports = set()
        for node in self.nodes:
            raw = node.run("CLUSTER", "SLOTS")
            rows = [[first, last, nodes] for first, last, *nodes in rows_of(raw)]
            ports |= {nodes[0][1] for first, last, nodes in rows if first <= slot <= last}
        return ports.pop() if len(ports) == 1 else 0

    def free(self) -> None:
        for node in self.nodes:
            node.free()

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()


def rows_of(reply: Any) -> list[Any]:
    """What redis-py has made of it: a list, or a dictionary."""
    if isinstance(reply, dict):
        return [
            [*range_, [each["primary"][0], each["primary"][1]]] for range_, each in reply.items()
        ]
    return list(reply)


@pytest.fixture(scope="module")
def shared_pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.stop()


@pytest.fixture
def pair(shared_pair: Pair) -> Iterator[Pair]:
    for to, key in enumerate((LOW, HIGH)):
        if shared_pair.owner(slot_of(key.encode())) != shared_pair.nodes[to].port:
            shared_pair.move(key, to)
    yield shared_pair
    shared_pair.free()


def test_each_slot_is_locked_at_its_master(pair: Pair) -> None:
    low, high = pair.nodes
    for server in (low.url, [high.url, low.url]):
        with Locks(server, cluster=True) as locks, locks.lock(LOW) as one, locks.lock(HIGH) as two:
            assert (low.held(LOW), high.held(HIGH)) == (True, True)
            one.check_server()
            two.check_server()
            with pytest.raises(CrossSlot):
                locks.all(LOW, HIGH).acquire()
            with locks.all(LOW + "1", LOW + "2"):
                assert low.held(LOW + "1")
            with locks.temporary_key(HIGH + "t", "v"):
                assert high.client.get(HIGH + "t") == b"v"
        pair.free()


@pytest.mark.parametrize("kind", ["unknown-endpoint", "hostname"])
def test_a_node_that_names_no_host_means_the_one_that_answered(pair: Pair, kind: str) -> None:
    """That is null or empty, or `?` of who is to have a name and has none (P-CLUSTER-3)."""
    for node in pair.nodes:
        node.run("CONFIG", "SET", "cluster-preferred-endpoint-type", kind)
    try:
        with Locks(pair.nodes[0].url, cluster=True) as locks:
            for key, node in zip((LOW, HIGH), pair.nodes):
                with locks.lock(key, wait=DEADLINE_S):
                    assert node.held(key)
    finally:
        for node in pair.nodes:
            node.run("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


def test_close_gives_back_what_is_held_at_each(pair: Pair) -> None:
    locks = Locks(pair.nodes[0].url, cluster=True, grace=60)
    held = [locks.lock(key).acquire() for key in (LOW, HIGH)]
    locks.close()
    assert [each.lost for each in held] == ["closed", "closed"]
    pair.free()
    with locks.lock(HIGH):  # It connects anew.
        pass
    locks.close()


def test_a_hold_is_lost_with_its_slot_and_who_waits_goes_there(pair: Pair) -> None:
    low, high = pair.nodes
    with Locks(low.url, cluster=True) as locks, ThreadPoolExecutor(1) as pool:
        low.client.set(LOW + "old", "theirs", nx=True)
        waits = pool.submit(locks.lock(LOW + "old", compat="setnx").acquire)
        low.waiting(1)
        with pytest.raises(Lost, match="moved"), locks.lock(LOW) as held:
            pair.move(LOW, 1)
            held.until_lost()
        mine = waits.result(DEADLINE_S)
        assert high.held(LOW + "old")
        with locks.lock(LOW):
            assert high.held(LOW)
        mine.release()


def test_a_presence_goes_with_its_slot_and_tells_the_difference(pair: Pair) -> None:
    low, high = pair.nodes

    async def story() -> None:
        async with aio.Locks(low.url, cluster=True) as locks:
            for wrong in (locks.watch(LOW, HIGH), locks.presence("members"), locks.observe("a")):
                with pytest.raises(CrossSlot):
                    await wrong.__anext__()
            watch, presence = locks.watch(HIGH + "w", HIGH + "x"), locks.presence(LOW + "m")
            assert [(await watch.__anext__()).state for _ in "wx"] == ["missing", "missing"]
            high.run("SET", HIGH + "x", 1)
            assert (await watch.__anext__()).name == HIGH + "x"
            held = await locks.temporary_key(LOW + "m", "v").acquire()
            member = await presence.__anext__()
            assert (member.change, member.value) == ("add", b"v")
            await asyncio.to_thread(pair.move, LOW, 1)
            assert await held.until_lost() == "moved"
            member = await presence.__anext__()
            assert (member.change, member.name) == ("del", LOW + "m")
            async with locks.temporary_key(LOW + "m2", "w"):
                member = await presence.__anext__()
                assert (member.change, member.name) == ("add", LOW + "m2")
                leaders = locks.observe(LOW + "m2")
                leader = await leaders.__anext__()
                assert leader is not None
                assert leader.value == b"w"
            ends: list[Any] = [watch, presence, leaders]
            for each in ends:
                await each.aclose()
            high.run("DEL", HIGH + "x")

    asyncio.run(asyncio.wait_for(story(), DEADLINE_S))


@pytest.mark.parametrize("kind", ["watch", "presence", "observe"])
def test_a_watch_whose_slot_has_moved_ends_with_its_client(pair: Pair, kind: str) -> None:
    """Nobody read it between the two, and what is closed connects nowhere."""

    async def story() -> None:
        locks = aio.Locks(pair.nodes[0].url, cluster=True)
        changes: Any = getattr(locks, kind)(LOW + "w")
        async with locks.temporary_key(LOW + "w", "v"):
            await changes.__anext__()
        (cluster,) = locks._clients.values()
        assert isinstance(cluster, Cluster)
        core = cluster.client(LOW.encode()).core
        await asyncio.to_thread(pair.move, LOW, 1)
        while core.watches.is_wanted or core.presences.is_wanted:
            await asyncio.sleep(0.01)
        await locks.close()
        with pytest.raises(Closed):
            while True:
                await asyncio.wait_for(changes.__anext__(), DEADLINE_S)

    asyncio.run(story())


def test_data_in_a_cluster_has_its_fence_in_its_slot(pair: Pair) -> None:
    data: Any = redis.RedisCluster(host="127.0.0.1", port=pair.nodes[0].port)
    script = "return redis.call('SET', KEYS[1], ARGV[1])"
    with Locks(pair.nodes[0].url, cluster=True) as locks, locks.lock(LOW) as held:
        for tag in (LOW, HIGH):
            for value in ("1", "2"):
                held.run_on(data, script, fence=tag + "f", keys=[tag + "x"], args=[value])
            assert data.get(tag + "x") == b"2"
            data.set(tag + "f", held.token + 1)
            with pytest.raises(Stale):
                held.run_on(data, script, fence=tag + "f", keys=[tag + "x"], args=["3"])
            data.delete(tag + "f", tag + "x")
    data.close()


def test_who_is_cancelled_while_it_is_referred_leaves_nothing(pair: Pair) -> None:
    async def story() -> None:
        for delay in range(40):
            async with aio.Locks(pair.nodes[0].url, cluster=True) as locks:
                # The client knows no slots yet, and both go to the first master.
                tasks = [asyncio.ensure_future(locks.lock(key).acquire()) for key in (LOW, HIGH)]
                for _ in range(delay):
                    await asyncio.sleep(0)
                tasks[1].cancel()
                await (await tasks[0]).release()
                held = (await asyncio.gather(tasks[1], return_exceptions=True))[0]
                if isinstance(held, aio.Held):
                    await held.release()
                async with locks.lock(HIGH, wait=DEADLINE_S):
                    pass

    asyncio.run(story())


def test_who_does_not_wait_is_told_so_at_the_other_master(pair: Pair) -> None:
    with (
        Locks(pair.nodes[0].url, cluster=True) as locks,
        Locks(pair.nodes[1].url, cluster=True) as others,
        locks.lock(HIGH),
    ):
        for wait in (0, 0.05):
            with pytest.raises(Taken):
                others.lock(HIGH, wait=wait).acquire()

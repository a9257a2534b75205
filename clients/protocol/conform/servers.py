"""Servers that know each other: Sentinels, a cluster; and certificates for a wire."""

import asyncio
import ssl
import tempfile
from pathlib import Path

from stage import PATIENCE, Error, Server, eventually, free_port

SLOTS = 16_384
AGREEMENT = 2 * PATIENCE  # How long servers may take to agree.
# Nobody is taken for dead for being slow.
NEVER_DEAD = 60_000


# ---- certificates ----


class Certificate:
    """Signed by an authority of its own, whose certificate is the file `authority`."""

    def __init__(self, folder):
        self.authority, self.chain, self.key = (
            folder / name for name in ("authority.pem", "chain.pem", "key.pem")
        )

    def context(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


async def certificate(stage, subject):
    """Of this subject: `IP:127.0.0.1` or `DNS:name`."""
    made = Certificate(Path(tempfile.mkdtemp(dir=stage.folder)))
    folder = made.chain.parent
    new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    private = folder / "authority-key.pem"
    await openssl(
        *new, "-keyout", private, "-out", made.authority, "-subj", "/CN=conform",
        "-addext", "keyUsage=critical,keyCertSign",
    )  # fmt: skip
    await openssl(
        *new, "-keyout", made.key, "-out", made.chain, "-subj", "/CN=server",
        "-CA", made.authority, "-CAkey", private, "-addext", "basicConstraints=critical,CA:FALSE",
        "-addext", f"subjectAltName={subject}",
    )  # fmt: skip
    return made


async def openssl(*words):
    process = await asyncio.create_subprocess_exec(
        "openssl",
        *map(str, words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(said.decode())


# ---- Sentinels ----


class Sentinel(Server):
    NAME = "mine"

    async def watch(self, master):
        file = self.folder / "sentinel.conf"
        lines = [
            f"port {self.port}",
            f"dir {self.folder}",
            f"sentinel monitor {self.NAME} 127.0.0.1 {master.port} 2",
            f"sentinel down-after-milliseconds {self.NAME} {NEVER_DEAD}",
            f"sentinel failover-timeout {self.NAME} 10000",
        ]
        file.write_text("\n".join(lines) + "\n")
        await self.run([self.stage.server, str(file), "--sentinel"])
        return self

    async def knows(self, replicas, others):
        """So many replicas of the master, and so many other Sentinels."""
        about = await self.ask("SENTINEL", "MASTER", self.NAME)
        about = dict(zip(about[::2], about[1::2]))
        counts = int(about[b"num-slaves"]), int(about[b"num-other-sentinels"])
        return counts == (replicas, others) and about[b"flags"] == b"master"

    async def take_for_dead_after(self, milliseconds):
        await self.ask("SENTINEL", "SET", self.NAME, "down-after-milliseconds", str(milliseconds))


async def sentinel(stage, master):
    """One that watches this master."""
    made = Sentinel(stage, Path(tempfile.mkdtemp(dir=stage.folder)))
    stage.ends.push_async_callback(made.stop)
    return await made.watch(master)


# ---- a cluster ----


class Cluster:
    def __init__(self, nodes, ids):
        self.nodes, self.ids = nodes, ids

    async def agree(self):
        """Waits until every node sees all slots served, and by the same masters."""

        async def is_agreed():
            maps = []
            for node in self.nodes:
                if b"cluster_state:ok" not in await node.ask("CLUSTER", "INFO"):
                    return False
                maps.append(sorted(row[:3] for row in await node.ask("CLUSTER", "SLOTS")))
            return all(map == maps[0] for map in maps)

        await eventually(is_agreed, "the nodes agree", AGREEMENT)

    async def take_for_dead_after(self, milliseconds):
        for node in self.nodes:
            await node.ask("CONFIG", "SET", "cluster-node-timeout", str(milliseconds))

    async def slot(self, key):
        return await self.nodes[0].ask("CLUSTER", "KEYSLOT", key)

    async def key_of(self, number):
        """A key whose slot this master was given at the start."""
        share = SLOTS // len(self.ids)
        at = 0
        while await self.slot(f"k{at}") // share != number:
            at += 1
        return f"k{at}"

    async def set_slot(self, node, slot, *words):
        await self.nodes[node].ask("CLUSTER", "SETSLOT", slot, *words)

    async def open_slot(self, slot, source, target):
        """Each of the two knows that the slot is on its way."""
        await self.set_slot(target, slot, "IMPORTING", self.ids[source])
        await self.set_slot(source, slot, "MIGRATING", self.ids[target])

    async def take_slot(self, slot, source, target):
        """The target takes a slot with all keys in it; the source hears of it by the bus."""
        await self.set_slot(target, slot, "IMPORTING", self.ids[source])
        await self.set_slot(target, slot, "NODE", self.ids[target])
        await self.agree()

    async def is_in_step(self, master, key):
        """Whether its replica acknowledged everything so far within a second."""
        raw = await self.nodes[master].raw()
        try:
            await raw.ask("SET", f"{{{key}}}in-step", "1")
            return await raw.ask("WAIT", 1, 1000) >= 1
        finally:
            raw.close()

    async def add_replica(self, stage, master):
        """A replica of this master, in step with it."""
        node, source = await start_node(stage), self.nodes[master]
        await meet(node, source)

        async def is_replica():
            try:
                return await node.ask("CLUSTER", "REPLICATE", self.ids[master]) == b"OK"
            except Error:  # It does not know the master yet.
                return False

        await eventually(is_replica, "the replica's master")
        self.nodes.append(node)
        own = await node.ask("CLUSTER", "MYID")

        async def is_known():
            """To all that elect: they give no vote to a node that they do not know."""
            return all([own in await each.ask("CLUSTER", "NODES") for each in self.nodes])

        await eventually(is_known, "all nodes know the replica", AGREEMENT)
        key = await self.key_of(master)
        await eventually(lambda: self.is_in_step(master, key), "the replica is in step", AGREEMENT)
        await self.agree()
        return node


async def start_node(stage):
    return await stage.start_server(
        "--cluster-enabled", "yes", "--cluster-port", str(free_port()),
        "--cluster-node-timeout", "2000", "--cluster-replica-validity-factor", "0",
    )  # fmt: skip


async def meet(node, other):
    bus = (await other.ask("CONFIG", "GET", "cluster-port"))[1]
    await node.ask("CLUSTER", "MEET", "127.0.0.1", other.port, bus)


async def cluster(stage, masters):
    """Masters that share the slots evenly, in their order."""
    nodes = await asyncio.gather(*(start_node(stage) for _ in range(masters)))
    share = SLOTS // masters
    for number, node in enumerate(nodes):
        last = SLOTS - 1 if number == masters - 1 else share * (number + 1) - 1
        await node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        await node.ask("CLUSTER", "ADDSLOTSRANGE", share * number, last)
        if number:
            await meet(node, nodes[0])
    made = Cluster(list(nodes), [(await node.ask("CLUSTER", "MYID")).decode() for node in nodes])
    await made.agree()
    await made.take_for_dead_after(NEVER_DEAD)
    return made

"""Clients of one lock, and faults of every kind around them.

No two hold it at one time, and nothing is left. An overlap is a `check` that was sent after a
greater token was granted, and that says `held`: so nothing depends on how fast processes run.
TETHER_FAULTS says how many faults there are.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from types import SimpleNamespace

from stage import PATIENCE, Failed, abort, eventually, expect, free_port

FAULTS = int(os.environ.get("TETHER_FAULTS", 18))
# The length of the fence is 1.5 s, with a session and without one.
FENCE, STOP_WITHIN, GRACE, PEER_TIMEOUT = 1.5, 500, 3000, 3000
CLIENTS = 3
# Refusals that a request may end with while the server is in trouble.
MAY_BE_REFUSED = {"taken", "unreachable"}
MAY_BE_CODE = {"NOACKS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "BUSY"}


class Contender:
    """A client on a wire of its own, which asks for the lock again and again."""

    def __init__(self, play, wire):
        self.play, self.wire = play, wire
        self.client, self.held, self.grants = None, None, 0
        self.is_alive = asyncio.Event()

    async def open(self):
        grace = {"grace": GRACE} if self.play.has_session else {}
        self.client = await self.play.stage.client(self.wire, stop_within=STOP_WITHIN, **grace)
        self.is_alive.set()

    async def live(self):
        number = 0
        while not self.play.is_over:
            number += 1
            client = self.client
            try:
                await self.ask(f"r{number}")
            except Failed:
                if client is self.client and self.is_alive.is_set():
                    raise
            self.held = None
            await self.is_alive.wait()  # If it was killed, another comes for it.

    async def ask(self, id):
        client, rng = self.client, self.play.rng
        client.events.clear()  # Those of earlier requests.
        wait = rng.choice([{}, {"wait": rng.randrange(2000)}])
        acks = {"acks": 1} if self.play.has_session else {}
        await client.call("acquire", id=id, keys=["k"], **wait, **acks)
        is_patient = rng.random() < 0.8

        def answer():
            return next(
                (e for e in client.events if id in (e.get("granted"), e.get("refused"))), None
            )

        try:
            event = await client._until(answer, id, None if is_patient else rng.random())
        except Failed:
            if is_patient or not self.is_alive.is_set():
                raise
            client.post("give_up", id=id)
            return
        if "granted" in event:
            await self.hold(id, event["token"])
            return
        is_expected = event["error"] in MAY_BE_REFUSED or event["code"] in MAY_BE_CODE
        expect(is_expected, f"refused: {event}")
        await asyncio.sleep(rng.random() * 0.1)

    async def hold(self, id, token):
        play, client = self.play, self.client
        self.held = id, token
        self.grants += 1
        play.greatest = max(play.greatest, token)
        # A fence that is too long shows while a hold outlasts its fault.
        until, outlasts = play.now() + play.rng.random(), play.rng.random() < 0.8
        gives = "held"
        while gives == "held" and (play.now() < until or (outlasts and play.meets is self)):
            gives = await self.check(client, id, token)
            await asyncio.sleep(0.005)
        if gives == "held":
            await client.call("release", id=id)

        def is_told():
            return any(client.has(**{word: id}) for word in ("lost", "released", "not_released"))

        await client._until(is_told, f"{id} is lost or released", 2 * PATIENCE)

    async def check(self, client, id, token):
        greatest = self.play.greatest  # Before it is sent.
        gives = await client.check(id)
        if gives == "held":
            self.play.checks += 1
            if greatest > token:
                self.play.overlaps.append((token, greatest, self.play.last))
        return gives


class Play:
    def __init__(self, stage, has_session):
        self.stage, self.has_session = stage, has_session
        self.rng = random.Random(53)
        self.now = asyncio.get_running_loop().time
        self.contenders = []
        self.greatest = self.checks = 0
        self.overlaps, self.last, self.is_over = [], None, False
        self.meets = None  # Whom the fault of now meets.
        self.settings = [
            "--appendonly", "yes", "--appendfsync", "always",
            "--tether.peer-timeout", str(PEER_TIMEOUT),
        ]  # fmt: skip
        if not has_session:  # What no session holds is in no file.
            self.settings += ["--tether.quarantine", str(int(FENCE * 1000) + 500)]

    async def begin(self):
        self.master = await self.stage.start_server(*self.settings)
        self.replica = await self.stage.start_server(*self.settings, *self.following(self.master))
        await eventually(self.master.has_replica_in_step, "the replica is in step", 2 * PATIENCE)
        for _ in range(CLIENTS):
            contender = Contender(self, await self.stage.wire(self.master))
            self.contenders.append(contender)
            await contender.open()

    @staticmethod
    def following(master):
        return "--replicaof", f"127.0.0.1 {master.port}"

    def grants(self):
        return sum(each.grants for each in self.contenders)

    async def pause(self):
        """Every other time until the server gives the lock to another."""
        await asyncio.sleep(self.rng.choice([self.rng.random(), 1]) * 2 * GRACE / 1000)

    # ---- faults: each says what it did, and leaves everything whole ----

    async def client_is_killed(self, whose):
        whose.is_alive.clear()
        whose.client.signal(signal.SIGKILL)
        await whose.client.process.wait()
        await whose.open()

    async def client_is_stopped(self, whose):
        client, held = whose.client, whose.held
        client.signal(signal.SIGSTOP)
        await self.pause()
        # The first thing that it does when it goes on.
        checked = held and asyncio.create_task(whose.check(client, *held))
        await asyncio.sleep(0)
        client.signal(signal.SIGCONT)
        if checked:
            await checked

    async def link_is_cut(self, whose, meanwhile=None):
        wire = whose.wire
        wire.hole(*self.rng.choice([(True, True), (True, False), (False, True)]))
        # The server takes the client for dead: at worst at once, or, where that frees the lock,
        # after its peer time-out.
        after = self.rng.random() * FENCE if self.has_session else PEER_TIMEOUT / 1000
        gives_up = asyncio.create_task(wire.server_gives_up(after))
        await (meanwhile(whose) if meanwhile else self.pause())
        gives_up.cancel()
        await self.link_is_broken(whose)
        wire.up.is_hole = wire.down.is_hole = False

    async def machine_is_stopped(self, whose):
        await self.link_is_cut(whose, self.client_is_stopped)

    async def link_is_broken(self, whose):
        wire = whose.wire
        if self.has_session:
            wire.reset()
            return
        # A plain lock ends with the connection at the server: the client hears of it no later.
        broken = list(wire.connections)
        wire.connections.clear()
        for side in ("client", "server"):
            for connection in broken:
                abort(connection[side])
            await asyncio.sleep(0.2)

    async def server_is_stopped(self, _):
        self.master.signal(signal.SIGSTOP)
        await self.pause()
        self.master.signal(signal.SIGCONT)

    async def server_is_restarted(self, _):
        await self.master.stop()
        await asyncio.sleep(self.rng.random() * FENCE)
        await self.master.start(*self.settings)

    async def master_is_killed(self, _):
        self.point_to(SimpleNamespace(port=free_port()))
        await self.master.stop()
        former, self.master = self.master, self.replica
        await self.without_a_session_it_is_over()
        await self.master.ask("REPLICAOF", "NO", "ONE")
        self.point_to(self.master)
        await former.start(*self.settings, *self.following(self.master))
        self.replica = former

    async def master_changes(self, _):
        self.point_to(SimpleNamespace(port=free_port()))
        await self.master.ask("FAILOVER")

        async def is_master():
            return (await self.replica.ask("ROLE"))[0] == b"master"

        await eventually(is_master, "the replica is the master", 2 * PATIENCE)
        self.master, self.replica = self.replica, self.master
        await self.without_a_session_it_is_over()
        self.point_to(self.master)

    async def without_a_session_it_is_over(self):
        """A promotion starts no quarantine: whoever promotes waits for the fence."""
        if not self.has_session:
            await asyncio.sleep(FENCE)

    def point_to(self, server):
        for contender in self.contenders:
            contender.wire.server = server

    async def fault(self, kind):
        holder = next((each for each in self.contenders if each.held), None)
        whose = holder if holder and self.rng.random() < 0.8 else self.rng.choice(self.contenders)
        self.last, self.meets = kind.__name__, whose
        await kind(whose)
        self.meets = None
        # Acknowledged grants need the replica.
        await eventually(self.master.has_replica_in_step, "the replica is in step", 2 * PATIENCE)
        before = self.grants()

        async def goes_on():
            return self.grants() > before

        await eventually(goes_on, f"a grant after {self.last}", 2 * PATIENCE)

    async def faults(self):
        kinds = [
            self.client_is_killed, self.client_is_stopped, self.machine_is_stopped,
            self.link_is_cut, self.link_is_broken, self.server_is_stopped,
            self.server_is_restarted, self.master_is_killed, self.master_changes,
        ]  # fmt: skip
        kinds = [kinds[at % len(kinds)] for at in range(FAULTS)]
        self.rng.shuffle(kinds)
        for kind in kinds:
            await self.fault(kind)
        before = [each.grants for each in self.contenders]

        async def all_go_on():
            return all(each.grants > was for each, was in zip(self.contenders, before))

        await eventually(all_go_on, "each client is granted it again", 4 * PATIENCE)
        self.is_over = True
        return Counter(kind.__name__ for kind in kinds)

    async def is_empty(self):
        """Nobody holds or waits, at the master nor at the replica."""
        infos = [await server.info("k") for server in (self.master, self.replica)]
        return not any(info[who] for info in infos for who in (b"holders", b"waiters"))


async def play(stage, has_session):
    play = Play(stage, has_session)
    await play.begin()
    tasks = [asyncio.create_task(each.live()) for each in play.contenders]
    faults = asyncio.create_task(play.faults())
    try:
        done, _ = await asyncio.wait([faults, *tasks], return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in (faults, *tasks):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task
    counts = ", ".join(f"{number} {kind}" for kind, number in faults.result().items())
    said = f"{FAULTS} faults ({counts}): {play.grants()} grants, {play.checks} checks"
    expect(not play.overlaps, f"{said}, {len(play.overlaps)} overlaps: {play.overlaps[:5]}")
    await eventually(play.is_empty, "nobody holds or waits", 2 * PATIENCE)
    print(f"{said}, 0 overlaps, 0 orphans", flush=True)


async def faults_without_a_session(stage):
    await play(stage, False)


async def faults_with_a_session(stage):
    await play(stage, True)


# Each fault may take as long as a case.
faults_without_a_session.limit = faults_with_a_session.limit = FAULTS * 4 * PATIENCE

#!/usr/bin/env python3
"""Random histories of the model against a naive server and a bad wire.

Do the rules keep what they promise?

    fuzz.py [--histories N] [--seed S] [--break RULE]

Three clients ask for two keys on one server, while connections break, wires swallow bytes,
processes stop, the server is busy, an operator deletes and renames. Always: no lock that a client
calls held belongs to another at the server. At the end, when the faults are over and all clients
have given up, no client holds or waits. The same seed gives the same history.
"""

import argparse
import heapq
import random
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model.core import Core, Error

KEYS = (b"k", b"l")
PEER_TIMEOUT, GRACE, LEASE = 8000, 9000, 3600000
NOTHELD = "NOTHELD this owner does not hold the lock"


class Violation(Exception):
    pass


class Hold:
    def __init__(self, key, owner, label, token):
        self.key, self.owner, self.label, self.token = key, owner, label, token


class Wait:
    def __init__(self, connection, label, keys, until):
        self.connection, self.label, self.keys, self.until = connection, label, keys, until


class Session:
    def __init__(self, secret):
        self.secret, self.detached = secret, None


class Server:
    """Locks, sessions and pushes as docs/commands.md has them, in the simplest way."""

    def __init__(self, world):
        self.world = world
        self.holds, self.waits, self.sessions = [], [], {}
        self.token = self.secrets = 0
        self.is_busy = False

    def owner(self, connection):
        return connection.session or connection

    def of(self, key):
        return [hold for hold in self.holds if hold.key == key]

    def grant(self, connection, label, keys):
        self.token += 1
        self.holds += [Hold(key, self.owner(connection), label, self.token) for key in keys]
        return self.token

    def serve(self):
        for wait in list(self.waits):
            ahead = {key for other in self.waits[: self.waits.index(wait)] for key in other.keys}
            if not any(self.of(key) or key in ahead for key in wait.keys):
                self.waits.remove(wait)
                token = self.grant(wait.connection, wait.label, wait.keys)
                wait.connection.push(wait.keys[0], b"%d %s" % (token, wait.label))

    def tick(self, now):
        for wait in [wait for wait in self.waits if wait.until is not None and wait.until <= now]:
            self.waits.remove(wait)
            wait.connection.push(wait.keys[0], b"TIMEOUT " + wait.label)
        for session in [
            s
            for s in self.sessions.values()
            if s.detached is not None and s.detached + GRACE <= now
        ]:
            self.end_session(session)
        self.serve()

    def end_session(self, session):
        self.sessions.pop(session.secret, None)
        self.holds = [hold for hold in self.holds if hold.owner is not session]

    def closed(self, connection):
        self.waits = [wait for wait in self.waits if wait.connection is not connection]
        self.holds = [hold for hold in self.holds if hold.owner is not connection]
        if connection.session:
            connection.session.detached = self.world.now
        self.serve()

    def answer(self, connection, words):
        name, rest = words[0], words[1:]
        if self.is_busy and name not in ("LOCK.SERVER",):
            return Error("BUSY no")
        reply = getattr(self, "do_" + name.lower().replace(".", "_"))(connection, rest)
        self.serve()
        return reply

    def do_ping(self, connection, rest):
        return b"PONG"

    def do_lock_server(self, connection, rest):
        return {"map": {b"role": b"master", b"pushes": 1, b"peer-timeout-ms": PEER_TIMEOUT}}

    def do_session_start(self, connection, rest):
        self.secrets += 1
        connection.session = Session(b"s%d" % self.secrets)
        self.sessions[connection.session.secret] = connection.session
        return connection.session.secret

    def do_session_resume(self, connection, rest):
        session = self.sessions.get(rest[0])
        if session is None:
            return Error("NOSESSION no")
        for other in self.world.connections:
            if other.session is session:
                other.session = None
        connection.session, session.detached = session, None
        return len([hold for hold in self.holds if hold.owner is session])

    def do_session_end(self, connection, rest):
        session, connection.session = connection.session, None
        if session:
            self.end_session(session)
        return 1

    def do_lock_acquire(self, connection, rest):
        return self.acquire(connection, [rest[0]], rest[1:])

    def do_lock_macquire(self, connection, rest):
        return self.acquire(connection, rest[1 : 1 + rest[0]], rest[1 + rest[0] :])

    def acquire(self, connection, keys, options):
        label = options[options.index("OWNER") + 1]
        owner = self.owner(connection)
        is_own = any(
            hold.owner is owner and hold.label == label for key in keys for hold in self.of(key)
        )
        waits = any(
            w.connection is connection and w.label == label and set(w.keys) & set(keys)
            for w in self.waits
        )
        if is_own or waits:
            return Error("DEADLOCK it is its own") if "WAIT" in options else None
        if not any(self.of(key) or any(key in wait.keys for wait in self.waits) for key in keys):
            return self.grant(connection, label, keys)
        if "WAIT" in options:
            ms = options[options.index("WAIT") + 1]
            self.waits.append(Wait(connection, label, keys, self.world.now + ms if ms else None))
        return None

    def do_lock_release(self, connection, rest):
        key, label, owner = rest[0], rest[2], self.owner(connection)
        waits = [
            w
            for w in self.waits
            if w.connection is connection and w.label == label and key in w.keys
        ]
        holds = [hold for hold in self.of(key) if hold.owner is owner and hold.label == label]
        self.waits = [wait for wait in self.waits if wait not in waits]
        self.holds = [hold for hold in self.holds if hold not in holds]
        return 0 if waits or holds else Error(NOTHELD)

    def do_lock_extend(self, connection, rest):
        """Its lease is longer than a history."""
        key, label, owner = rest[0], rest[3], self.owner(connection)
        is_held = any(hold.owner is owner and hold.label == label for hold in self.of(key))
        return 1 if is_held else Error(NOTHELD)

    def do_lock_mine(self, connection, rest):
        owner = self.owner(connection)
        entries = [
            {
                b"key": hold.key,
                b"kind": b"lock",
                b"label": hold.label,
                b"token": hold.token,
                b"state": b"held",
                b"lease-ms": None,
            }
            for hold in self.holds
            if hold.owner is owner
        ]
        return [b"0", entries]

    def delete(self, key):
        for hold in self.of(key):
            self.holds.remove(hold)
            for connection in self.world.connections:
                if hold.owner in (connection, connection.session):
                    connection.push(key, b"LOST deleted " + hold.label)
        self.serve()

    def rename(self, key, name):
        for hold in self.of(key):
            hold.key = name


class Connection:
    """A wire from a client to the server; each direction keeps its order."""

    def __init__(self, world, client):
        self.world, self.client, self.session = world, client, None
        self.is_hole = self.is_over = False
        self.arrives = {"up": 0, "down": 0}
        self.heard = world.now

    def later(self, way, act):
        at = max(self.arrives[way], self.world.now + self.world.random.choice((0, 1, 5, 40, 300)))
        self.arrives[way] = at
        self.world.at(at, act)

    def up(self, words):
        def arrive():
            if self.is_over or self.is_hole or self not in self.world.connections:
                return
            self.heard = self.world.now
            reply = self.world.server.answer(self, words)
            self.later("down", lambda: self.deliver(reply))

        self.later("up", arrive)

    def push(self, key, text):
        frame = {"push": [b"lock", key, text]}
        self.later("down", lambda: self.deliver(frame))

    def deliver(self, frame):
        if not self.is_over and not self.is_hole and self.client.connection is self:
            self.client.hear(lambda: self.client.core.recv(frame))

    def end(self, is_heard):
        """The client's side is over; the server hears of it soon, or when its patience is."""
        self.is_over = True
        wait = (
            self.world.random.choice((1, 50))
            if is_heard and not self.is_hole
            else self.heard + PEER_TIMEOUT - self.world.now
        )
        self.world.at(self.world.now + max(0, wait), self.gone)

    def gone(self):
        if self in self.world.connections:
            self.world.connections.remove(self)
            self.world.server.closed(self)


class Client:
    def __init__(self, world, has_session, broken):
        self.world = world
        self.core = Core((world.now, world.now), {"grace": GRACE} if has_session else {}, broken)
        self.told = self.core.told = []
        self.connection, self.attempt, self.frozen, self.inbox = None, 0, 0, []
        self.is_cut = False  # Its connection ended while the process was stopped: it has not heard.
        self.number, self.asked, self.said, self.alarm = 0, {}, {}, None

    def hear(self, act):
        """At once, or when the process goes on."""
        if self.frozen > self.world.now:
            self.inbox.append(act)
        else:
            self.do(act)

    def do(self, act):
        core, now = self.core, (self.world.now, self.world.now)
        core.tick(now)
        act()
        core.tick(now)
        events, out, orders = core.events, core.out, core.orders
        core.events, core.out, core.orders = [], [], []
        for event in events:
            self.told.append(event)
            self.heard_of(event)
        if self.connection:
            for words in out:
                self.connection.up(words)
        for order in orders:
            if order == "connect":
                self.attempt += 1
                reached = partial(self.reached, self.attempt)
                after = self.world.random.choice((1, 30, 400))
                self.world.at(self.world.now + after, partial(self.hear, reached))
            else:
                self.leave()
        tick = core.next_tick()
        self.alarm = None if tick is None else max(tick, self.world.now + 1)
        if tick is not None:
            self.world.at(self.alarm, self.ring)

    def ring(self):
        if self.alarm == self.world.now and self.frozen <= self.world.now:
            self.do(lambda: None)

    def reached(self, attempt):
        if attempt != self.attempt or self.connection:
            return None
        if self.world.is_down:
            return self.core.unreached()
        self.connection = Connection(self.world, self)
        self.world.connections.append(self.connection)
        self.core.connected()
        return None

    def leave(self):
        self.attempt += 1
        connection, self.connection = self.connection, None
        if connection:
            connection.end(True)

    def broke(self):
        if self.connection:
            connection, self.connection = self.connection, None
            connection.end(True)
            self.is_cut = self.frozen > self.world.now
            attempt = self.attempt
            self.hear(lambda: attempt == self.attempt and self.core.broke())

    def heard_of(self, event):
        name = next(
            (
                event[kind]
                for kind in ("granted", "refused", "lost", "released", "over")
                if kind in event
            ),
            None,
        )
        if name is None:
            return
        kind = next(iter(event))
        before = self.said.setdefault(name, [])
        before.append(kind)
        allowed = (
            ["granted"],
            ["refused"],
            ["over"],
            ["granted", "lost"],
            ["granted", "released"],
            ["granted", "over"],
        )
        if before not in allowed:
            raise Violation(f"{name} was told {before}")

    def held(self):
        for name in self.asked:
            if self.said.get(name) == ["granted"]:
                core, now = self.core, self.core.now
                core.now = (self.world.now, self.world.now)
                gives = core.check(name)
                core.now = now
                if gives == "held":
                    yield name

    def act(self):
        pick = self.world.random.random()
        open_ones = [
            name for name in self.asked if name not in self.said or self.said[name] == ["granted"]
        ]
        if pick < 0.5 and len(open_ones) < 4:
            self.number += 1
            name = f"r{self.number}"
            keys = self.world.random.choice((KEYS[:1], KEYS[1:], KEYS))
            call = {"keys": list(keys)}
            wait = self.world.random.choice((None, None, 0, 2000))
            if wait is not None:
                call["wait"] = wait
            if self.world.random.random() < 0.3:
                call["owner"] = b"named"
            self.asked[name] = keys
            self.hear(lambda: self.core.acquire(name, call))
        elif open_ones:
            name = self.world.random.choice(open_ones)
            pick = self.world.random.random()
            if pick < 0.2:
                self.hear(lambda: self.core.extend(name, LEASE))
            elif pick < 0.7:
                self.hear(lambda: self.core.find(name) and self.core.release_call(name))
            else:
                self.hear(lambda: self.core.give_up_call(name))


class World:
    def __init__(self, seed, broken):
        self.random = random.Random(seed)
        self.now, self.queue, self.order = 0, [], 0
        self.connections, self.is_down = [], False
        self.server = Server(self)
        self.clients = [Client(self, self.random.random() < 0.6, broken) for _ in range(3)]
        self.deletes = self.random.random() < 0.4

    def at(self, time, act):
        self.order += 1
        heapq.heappush(self.queue, (time, self.order, act))

    def run_until(self, time):
        while self.queue and self.queue[0][0] <= time:
            self.now, _, act = heapq.heappop(self.queue)
            act()
            self.server.tick(self.now)
            self.look()
        self.now = time
        self.server.tick(time)
        self.look()

    def look(self):
        """What a client calls held is not another's."""
        if self.deletes:
            return  # A loss by deletion is told when it has happened.
        for client in self.clients:
            if client.is_cut:
                continue
            owners = [c for c in self.connections if c.client is client]
            own = set(owners) | {c.session for c in owners if c.session} | {client.core.secret}
            for name in client.held():
                for key in client.asked[name]:
                    for hold in self.server.of(key):
                        secret = getattr(hold.owner, "secret", None)
                        if (
                            hold.owner not in own
                            and secret not in own
                            and getattr(hold.owner, "client", None) is not client
                        ):
                            raise Violation(
                                f"{name} is held, and {key} is another's since {self.now}"
                            )

    def fault(self):
        pick, client = self.random.random(), self.random.choice(self.clients)
        if pick < 0.25:
            client.broke()
        elif pick < 0.4 and client.connection:
            connection = client.connection
            connection.is_hole = True
            self.at(connection.heard + PEER_TIMEOUT, connection.gone)
        elif pick < 0.55 and client.frozen <= self.now:
            client.frozen = self.now + self.random.choice((100, 3000, 12_000))
            self.at(client.frozen, lambda: self.thaw(client))
        elif pick < 0.7:
            self.server.is_busy = not self.server.is_busy
        elif pick < 0.8:
            self.is_down = not self.is_down
        elif self.deletes:
            key = self.random.choice(KEYS)
            if self.random.random() < 0.5:
                self.server.delete(key)
            elif not self.server.of(key + b"'"):
                self.server.rename(key, key + b"'")

    def thaw(self, client):
        inbox, client.inbox, client.is_cut = client.inbox, [], False
        client.do(lambda: None)
        for act in inbox:
            client.hear(act)

    def history(self):
        for _ in range(120):
            self.run_until(self.now + self.random.choice((0, 1, 20, 200, 1500)))
            for client in self.clients:
                client.act()
            if self.random.random() < 0.25:
                self.fault()
        self.server.is_busy = self.is_down = False
        self.run_until(self.now + 15_000)
        for client in self.clients:
            for name in client.asked:
                client.hear(
                    lambda client=client, name=name: client.core.find(name)
                    and client.core.give_up(client.core.find(name))
                )
        self.run_until(self.now + 60_000)
        left = [(hold.key, hold.label) for hold in self.server.holds] + [
            (wait.keys, wait.label) for wait in self.server.waits
        ]
        if left:
            raise Violation(f"left at the end: {left}")
        open_ones = [
            name
            for c in self.clients
            for name in c.asked
            if name not in c.said or c.said[name] == ["granted"]
        ]
        if open_ones:
            raise Violation(f"nobody was told what became of {open_ones}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--break", dest="broken", default="")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.histories):
        try:
            World(seed, filter(None, options.broken.split(","))).history()
        except Violation as violation:
            failed += 1
            print(f"seed {seed}: {violation}", flush=True)
            if failed == 10:
                break
    print(
        f"{options.histories - failed} passed, {failed} failed"
        if failed < 10
        else "10 failed, and no more were run"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

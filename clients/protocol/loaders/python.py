#!/usr/bin/env python3
"""Runs the vectors against the core of tether-locks, which must be in PYTHONPATH.

Prints each vector that fails, and where. That core has no L4 (a quorum).
"""

import sys
from pathlib import Path

from tether_locks._ask import Ask, Settings
from tether_locks.clock import ROUNDED_MS, Elapsed
from tether_locks.core import Core
from tether_locks.errors import Refused, Unreachable
from tether_locks.resp import Push, ReplyError

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import check
from model import run

# What the value of an event is, by its kind.
FIELDS = {
    "granted": ("key", "token"),
    "watch": ("key", "is"),
    "presence": ("key", "is", "token", "value"),
    "leader": ("token", "value"),
}


def decoded(frame):
    return run.decoded(frame, ReplyError, Push)


class World(run.Loader):
    def __init__(self, client):
        clock, chance = client.pop("boot_clock", True), client.pop("random", 0)
        self.elapsed = Elapsed(ROUNDED_MS if clock == "uptime" else 0.0)
        self.clocks, self.is_monotonic_only = (0, 0), clock is False
        self.is_unix = client.pop("unix", False)
        is_cluster = client.pop("cluster", False)
        settings = Settings(
            **client, is_cluster=is_cluster, knows_suspend=bool(clock), random=lambda: chance
        )
        self.core = Core(self.read(), settings)
        self.sequences, self.elections, self.losses, self.left = set(), {}, {}, set()

    def read(self):
        mono, boot = self.clocks
        return self.elapsed.at(mono, mono if self.is_monotonic_only else boot)

    def acquire(self, name, terms):
        terms = dict(terms)
        if terms.pop("seq", False):
            self.sequences.add(name)
        if terms.pop("elect", False):
            self.elections[name] = dict(terms)
        mode = ("SHARED",) if terms.pop("shared", False) else ()
        if "permits" in terms:
            permits, of = terms.pop("permits")
            mode = ("PERMITS", permits, "OF", of)
        for its, ours in (("owner", "owner"), ("task", "task"), ("temporary", "value")):
            if its in terms:
                terms[ours] = decoded(terms.pop(its))
        keys, ack_timeout = tuple(decoded(terms.pop("keys"))), terms.pop("acktimeout", None)
        is_sequence = name in self.sequences
        self.core.acquire(
            name, Ask(keys, mode, ack_timeout=ack_timeout, is_sequence=is_sequence, **terms)
        )

    def call(self, call, id=None, **terms):
        core = self.core
        keys, prefix = tuple(decoded(terms.get("keys", []))), decoded(terms.get("prefix"))
        if call == "check":
            gives = core.check(self.read(), id) or self.losses.get(id, "released")
            return gives if gives in ("held", "waiting", "released") else {"lost": gives}
        if call == "give_up" and self.elections.pop(id, None) and id in self.losses:
            self.left.add(id)  # `elect` had not asked for the next term yet, nor waits for its end.
        acts = {
            "open": core.need_link,
            "acquire": lambda: self.acquire(id, terms),
            "release": lambda: core.release(id),
            "give_up": lambda: core.release(id),
            "extend": lambda: core.extend(id, terms["lease"]),
            "watch": lambda: core.watches.watch(id, keys),
            "unwatch": lambda: core.watches.end(id),
            "presence": lambda: core.presences.watch(id, prefix),
            "observe": lambda: core.presences.watch(id, prefix, True),
            "end": lambda: core.presences.end(id),
            "close": core.close,
        }
        acts[call]()
        return None

    def recv(self, frame):
        self.core.receive(decoded(frame))

    def at(self, to):
        """By all that is due on the way; where the two clocks differ, in a leap."""
        mono, boot = self.clocks
        while not isinstance(to, dict) and self.core.next_tick is not None:
            due = self.clocks[0] + max(0, self.core.next_tick - self.read())
            if due > to:
                break
            self.clocks = (due, due + boot - mono)
            self.core.tick(self.read())
        self.clocks = run.clocks(to) if isinstance(to, dict) else (to, to + boot - mono)
        self.core.tick(self.read())

    def stop(self, to):
        self.clocks = run.clocks(to)
        self.core.now = self.read()

    def connected(self, _):
        self.core.connected(self.is_unix)

    def broke(self, _):
        self.core.broke()

    def unreached(self, why):
        is_final = isinstance(why, dict)
        self.core.unreached(Refused("", why["code"]) if is_final else Unreachable(""))

    def said(self, event):
        """An event as vectors have it."""
        kind, name, value, error = event
        if kind == "warning":
            return {"warning": error.code}
        said = {kind: name, **dict(zip(FIELDS.get(kind, ()), value or ()))}
        if kind == "granted" and name not in self.sequences:
            del said["key"]
        elif kind == "presence" and said["is"] == "del":
            said["reason"] = said.pop("value")
            del said["token"]
        elif kind == "leader" and said["token"] is None:
            said = {kind: name, "token": None}
        elif kind == "lost":
            said["reason"] = self.losses[name] = error.reason
        elif error is not None:
            said["code"] = "LOST" if error.name == "lost" else error.code
            if kind != "releasing":
                said["error"] = error.name
        return run.encoded(said)

    def take(self):
        core = self.core
        for kind, name, *_ in list(core.events):
            if kind in ("lost", "released") and name in self.elections:
                self.acquire(name, self.elections[name])  # As `elect` does with the next term.
        said = {
            "sent": [[run.word(each) for each in words] for words in core.output],
            "events": [
                self.said(event)
                for event in core.events
                if not (event[0] == "over" and event[1] in self.left)
            ],
            "orders": [
                {"leave_after": order.after} if order.after else order.kind for order in core.orders
            ],
        }
        for each in (core.output, core.events, core.orders):
            each.clear()
        return said


wanted = [vector for _, vector in check.vectors() if vector["level"] != "L4"]
sys.exit(run.play(wanted, check.preludes(), World) > 0)

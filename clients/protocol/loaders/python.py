#!/usr/bin/env python3
"""Runs the vectors against the core of tether-locks, which must be in PYTHONPATH.

Prints each vector that fails, and where. That core has no L4 (a quorum).
"""

import json
import sys
from pathlib import Path

from tether_locks._ask import Ask, Settings
from tether_locks.clock import ROUNDED_MS, Elapsed
from tether_locks.core import Core
from tether_locks.errors import Refused, Unreachable
from tether_locks.resp import Push, ReplyError

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

import check  # noqa: E402
from model.run import encoded, word  # noqa: E402


def decoded(frame):
    """A frame of a vector as the core takes it."""
    if isinstance(frame, list):
        return [decoded(each) for each in frame]
    if isinstance(frame, str):
        return frame.encode()
    if not isinstance(frame, dict):
        return frame
    kind, value = next(iter(frame.items()))
    kinds = {
        "hex": lambda: bytes.fromhex(value),
        "simple": lambda: value.encode(),
        "error": lambda: ReplyError(value),
        "push": lambda: Push(decoded(value)),
        "map": lambda: {name.encode(): decoded(each) for name, each in value.items()},
    }
    return kinds[kind]()


def said(event, sequences):
    """An event as vectors have it."""
    kind, name, value, error = event
    if kind == "warning":
        return {"warning": error.code}
    told = {kind: name}
    if kind == "granted":
        told["token"] = value[1]
        if name in sequences:
            told["key"] = value[0]
    elif kind == "lost":
        told["reason"] = error.reason
    elif kind == "releasing":
        told["code"] = error.code
    elif kind == "watch":
        told["key"], told["is"] = value
    elif kind == "presence":
        told["key"], told["is"] = value[:2]
        told.update(
            {"reason": value[3]} if value[1] == "del" else zip(("token", "value"), value[2:])
        )
    elif kind == "leader":
        told.update({"token": None} if value[0] is None else zip(("token", "value"), value))
    elif error is not None:
        told.update(error=error.name, code="LOST" if error.name == "lost" else error.code)
    return encoded(told)


class World:
    def __init__(self, client):
        clock = client.get("boot_clock", True)
        self.elapsed = Elapsed(ROUNDED_MS if clock == "uptime" else 0.0)
        self.is_monotonic_only = clock is False
        self.clocks, self.is_unix = (0, 0), client.get("unix", False)
        chance = client.get("random", 0)
        times = {name: client[name] for name in ("grace", "stop_within", "fence") if name in client}
        self.core = Core(
            self.read(),
            Settings(
                **times,
                is_cluster=client.get("cluster", False),
                knows_suspend=bool(clock),
                random=lambda: chance,
            ),
        )
        self.sequences, self.elections, self.ends = set(), {}, {}

    def read(self):
        mono, boot = self.clocks
        return self.elapsed.at(mono, mono if self.is_monotonic_only else boot)

    def acquire(self, step):
        mode = ("SHARED",) if step.get("shared") else ()
        if step.get("permits"):
            mode = ("PERMITS", step["permits"][0], "OF", step["permits"][1])
        same = ("wait", "lease", "acks", "at_least", "reentrant")
        more = {name: step[name] for name in same if name in step}
        for name, ours in (("owner", "owner"), ("task", "task"), ("temporary", "value")):
            if name in step:
                more[ours] = decoded(step[name])
        if step.get("seq"):
            self.sequences.add(step["id"])
        if step.get("elect"):
            self.elections[step["id"]] = step
        self.core.acquire(
            step["id"],
            Ask(
                tuple(decoded(step["keys"])),
                mode,
                **more,
                ack_timeout=step.get("acktimeout"),
                is_sequence=step.get("seq", False),
            ),
        )

    def give_up(self, name):
        self.elections.pop(name, None)
        self.core.release(name)

    def call(self, step):
        core, name, kind = self.core, step.get("id"), step["call"]
        if kind == "check":
            gives = core.check(self.read(), name) or self.ends.get(name, "released")
            return gives if gives in ("held", "waiting", "released") else {"lost": gives}
        acts = {
            "open": core.need_link,
            "acquire": lambda: self.acquire(step),
            "release": lambda: core.release(name),
            "give_up": lambda: self.give_up(name),
            "extend": lambda: core.extend(name, step["lease"]),
            "watch": lambda: core.watches.watch(name, tuple(decoded(step["keys"]))),
            "unwatch": lambda: core.watches.end(name),
            "presence": lambda: core.presences.watch(name, decoded(step["prefix"])),
            "observe": lambda: core.presences.watch(name, decoded(step["prefix"]), True),
            "end": lambda: core.presences.end(name),
            "close": core.close,
        }
        acts[kind]()
        return None

    def go_to(self, to):
        """By all that is due on the way; where the two clocks differ, in a leap."""
        if isinstance(to, dict):
            self.clocks = (to["mono"], to["boot"])
        else:
            ahead = self.clocks[1] - self.clocks[0]
            while True:
                tick = self.core.next_tick
                if tick is None:
                    break
                wait = max(0, tick - self.read())
                if self.clocks[0] + wait > to:
                    break
                self.clocks = tuple(each + wait for each in self.clocks)
                self.core.tick(self.read())
            self.clocks = (to, to + ahead)

    def step(self, step):
        core, given = self.core, None
        if "at" in step:
            self.go_to(step["at"])
            core.tick(self.read())
        elif "stop" in step:
            stop = step["stop"]
            self.clocks = (stop["mono"], stop["boot"]) if isinstance(stop, dict) else (stop, stop)
        core.now = self.read()
        if "call" in step:
            given = self.call(step)
        elif "recv" in step:
            core.receive(decoded(step["recv"]))
        elif "connected" in step:
            core.connected(self.is_unix)
        elif "broke" in step:
            core.broke()
        elif "unreached" in step:
            why = step["unreached"]
            final = Refused("no connection", why["code"]) if isinstance(why, dict) else None
            core.unreached(final or Unreachable("no connection"))
        for event in list(core.events):
            if event.kind == "lost":
                self.ends[event.handle] = event.error.reason
            if event.kind in ("lost", "released") and event.handle in self.elections:
                self.acquire(self.elections[event.handle])  # As `elect` does with the next term.
        gives = {
            "sent": [[word(each) for each in words] for words in core.output],
            "events": [said(event, self.sequences) for event in core.events],
            "orders": [
                {"leave_after": order.after} if order.after else order.kind for order in core.orders
            ],
        }
        for each in (core.output, core.events, core.orders):
            each.clear()
        wrong = [
            f"{what}: {json.dumps(gives[what])}, not {json.dumps(step.get(what, []))}"
            for what in gives
            if gives[what] != step.get(what, [])
        ]
        return wrong + (
            [f"gives {given}, not {step['gives']}"] if step.get("gives", given) != given else []
        )


def verdict(vector, preludes):
    prelude = preludes[vector["begin"]]
    world = World({**prelude["client"], **vector.get("client", {})})
    for step in [*prelude["steps"], *vector["steps"]]:
        try:
            wrong = world.step(step)
        except Exception as error:
            wrong = [repr(error)]
        if wrong:
            return f"{json.dumps(step)}\n      " + "\n      ".join(wrong)
    return None


preludes = json.loads((HERE / "vectors" / "preludes.json").read_text())
wanted = [vector for _, vector in check.vectors() if vector["level"] != "L4"]
failed = 0
for vector in wanted:
    why = verdict(vector, preludes)
    failed += bool(why)
    if why:
        print(f"  {vector['name']} ({', '.join(vector['rules'])}): {why}")
print(
    f"test result: {'FAILED' if failed else 'ok'}. {len(wanted) - failed} passed; {failed} failed"
)
sys.exit(failed > 0)

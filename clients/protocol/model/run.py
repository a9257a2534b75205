"""Runs vectors against a core; `World` is the loader of the model, whose core is in core.py."""

import json
import traceback
from functools import partial

from .core import Core, Error

INPUTS = ("call", "recv", "at", "stop", "connected", "broke", "unreached")
OUTPUTS = ("sent", "events", "orders", "gives")

# Rules that the model can break. Each is noticed by a vector.
MUTANTS = [
    "P-ACQ-6",
    "P-ACQ-7",
    "P-CLUSTER-7",
    "P-FENCE-2",
    "P-FENCE-3",
    "P-FENCE-4",
    "P-FENCE-6",
    "P-FENCE-7",
    "P-FENCE-8",
    "P-FENCE-9",
    "P-FENCE-10",
    "P-LEASE-2",
    "P-LEAST-2",
    "P-LEAST-3",
    "P-LOSS-3",
    "P-LOSS-4",
    "P-LOSS-5",
    "P-LOSS-6",
    "P-LOSS-7",
    "P-OWNER-1",
    "P-OWNER-4",
    "P-OWNER-8",
    "P-PRES-2",
    "P-REL-2",
    "P-REL-4",
    "P-REL-5",
    "P-REL-7",
    "P-SESS-2",
    "P-SESS-6",
    "P-SESS-8",
    "P-SESS-10",
    "P-SESS-11",
    "P-WATCH-3",
]


def decoded(frame, error=Error, push=lambda items: {"push": items}):
    """A frame of a vector as the model has it, or a core with errors and pushes of its own."""
    if isinstance(frame, str):
        return frame.encode()
    if isinstance(frame, list):
        return [decoded(each, error, push) for each in frame]
    if not isinstance(frame, dict):
        return frame
    kind, value = next(iter(frame.items()))
    kinds = {
        "hex": bytes.fromhex,
        "simple": str.encode,
        "error": error,
        "push": lambda items: push(decoded(items, error, push)),
        "map": lambda pairs: {k.encode(): decoded(v, error, push) for k, v in pairs.items()},
    }
    return kinds[kind](value)


def encoded(value):
    """What a core says, as a vector has it."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"hex": value.hex()}
    if isinstance(value, dict):
        return {name: encoded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [encoded(each) for each in value]
    return value


def word(value):
    return encoded(value if isinstance(value, bytes) else str(value).encode())


def clocks(to):
    return (to["mono"], to["boot"]) if isinstance(to, dict) else (to, to)


class Loader:
    """One core. Each has a method for each input, and `take`: what came out of it."""

    def step(self, step):
        """What is wrong with it."""
        kind = next(kind for kind in INPUTS if kind in step)
        terms = {name: value for name, value in step.items() if name not in OUTPUTS}
        given = self.call(**terms) if kind == "call" else getattr(self, kind)(step[kind])
        said = {**self.take(), "gives": given}
        wanted = {"sent": [], "events": [], "orders": [], "gives": None, **step}
        return [
            f"{what}: {json.dumps(said[what])}, not {json.dumps(wanted[what])}"
            for what in OUTPUTS
            if said[what] != wanted[what]
        ]


class World(Loader):
    def __init__(self, client, broken=()):
        self.core = Core((0, 0), client, broken)
        self.told = self.core.told = []

    def call(self, call, id=None, **terms):
        core = self.core
        for what in {"keys", "temporary", "owner", "prefix"} & set(terms):
            terms[what] = decoded(terms[what])
        actions = {
            "open": core.open,
            "acquire": lambda: core.acquire(id, terms),
            "release": lambda: core.release_call(id),
            "give_up": lambda: core.give_up_call(id),
            "extend": lambda: core.extend(id, terms["lease"]),
            "raise": lambda: core.raise_token(id, terms["token"]),
            "watch": lambda: core.watch(id, terms["keys"]),
            "unwatch": lambda: core.unwatch(id),
            "presence": lambda: core.presence(id, terms["prefix"]),
            "observe": lambda: core.presence(id, terms["prefix"], is_leader=True),
            "end": lambda: core.end_presence(id),
            "close": core.close,
        }
        return core.check(id) if call == "check" else actions[call]() and None

    def recv(self, frame):
        frame = decoded(frame)
        is_map = isinstance(frame, dict) and "push" not in frame
        self.core.recv({"map": frame} if is_map else frame)

    def at(self, to):
        """Goes there by all that is due on the way; two clocks that differ are a leap."""
        core, until = self.core, clocks(to)
        if not isinstance(to, dict):
            ahead = core.now[1] - core.now[0]
            until = (to, to + ahead)
            for _ in range(10_000):
                tick = core.next_tick()
                if tick is None or tick > to:
                    break
                core.tick((tick, tick + ahead))
        core.tick(until)

    def stop(self, to):
        self.core.now = clocks(to)

    def connected(self, _):
        self.core.connected()

    def broke(self, _):
        self.core.broke()

    def unreached(self, why):
        self.core.unreached(*[(why["error"], why["code"])] if isinstance(why, dict) else [])

    def take(self):
        core = self.core
        self.told += core.events
        said = {
            "sent": [[word(each) for each in words] for words in core.out],
            "events": encoded(core.events),
            "orders": encoded(core.orders),
        }
        core.out, core.events, core.orders = [], [], []
        return said


def verdict(vector, preludes, new_world=World):
    """None, or where it fails."""
    prelude = preludes[vector["begin"]]
    world = new_world({**prelude["client"], **vector.get("client", {})})
    for number, step in enumerate([*prelude["steps"], *vector["steps"]]):
        try:
            wrong = world.step(step)
        except Exception:
            wrong = [traceback.format_exc()]
        if wrong:
            at = f"step {number - len(prelude['steps'])} {json.dumps(step)}"
            return "\n      ".join([at, *wrong])
    return None


def play(found, preludes, new_world=World):
    """How many fail; says which, and where."""
    failed = 0
    for vector in found:
        why = verdict(vector, preludes, new_world)
        if why:
            failed += 1
            print(f"  {vector['name']}: {why}")
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {len(found) - failed} passed; {failed} failed")
    return failed


def run(found, preludes, with_mutants):
    """Whether something failed."""
    failed = play(found, preludes)
    for rule in MUTANTS if with_mutants else ():
        without = partial(World, broken={rule})
        by = [v["name"] for v in found if rule in v["rules"] and verdict(v, preludes, without)]
        print(f"  without {rule}: " + (", ".join(by) if by else "NOBODY NOTICES"))
        failed += not by
    return failed > 0

"""The loader: runs vectors against the model. One for another language is as long."""

import json

from .core import Core, Error

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


def decoded(frame):
    """A frame of a vector as the model has it."""
    if isinstance(frame, str):
        return frame.encode()
    if isinstance(frame, list):
        return [decoded(each) for each in frame]
    if not isinstance(frame, dict):
        return frame
    kind, value = next(iter(frame.items()))
    if kind == "hex":
        return bytes.fromhex(value)
    if kind == "simple":
        return value.encode()
    if kind == "error":
        return Error(value)
    if kind == "push":
        return {"push": decoded(value)}
    return {name.encode(): decoded(each) for name, each in value.items()}


def encoded(value):
    """What the model says, as a vector has it."""
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


class World:
    def __init__(self, client, broken):
        self.core = Core((0, 0), client, broken)
        self.told = []
        self.core.told = self.told

    def clocks(self, to):
        return (to["mono"], to["boot"]) if isinstance(to, dict) else (to, to)

    def at(self, to):
        """Goes there by all that is due on the way; two clocks that differ are a leap."""
        core, until = self.core, self.clocks(to)
        if not isinstance(to, dict):
            ahead = core.now[1] - core.now[0]
            until = (to, to + ahead)
            for _ in range(10_000):
                tick = core.next_tick()
                if tick is None or tick > to:
                    break
                core.tick((tick, tick + ahead))
        core.tick(until)

    def call(self, step):
        core, name = self.core, step.get("id")
        call = {
            k: v for k, v in step.items() if k not in ("call", "id", "sent", "events", "orders")
        }
        for what in ("keys", "temporary", "owner", "prefix"):
            if what in call:
                call[what] = decoded(call[what])
        kind = step["call"]
        if kind == "check":
            return core.check(name)
        actions = {
            "open": lambda: core.open(),
            "acquire": lambda: core.acquire(name, call),
            "release": lambda: core.release_call(name),
            "give_up": lambda: core.give_up_call(name),
            "extend": lambda: core.extend(name, call["lease"]),
            "raise": lambda: core.raise_token(name, call["token"]),
            "watch": lambda: core.watch(name, call["keys"]),
            "unwatch": lambda: core.unwatch(name),
            "presence": lambda: core.presence(name, call["prefix"]),
            "observe": lambda: core.presence(name, call["prefix"], is_leader=True),
            "end": lambda: core.end_presence(name),
            "close": lambda: core.close(),
        }
        return actions[kind]() and None

    def step(self, step):
        core = self.core
        given = None
        if "call" in step:
            given = self.call(step)
        elif "recv" in step:
            frame = decoded(step["recv"])
            core.recv({"map": frame} if isinstance(frame, dict) and "push" not in frame else frame)
        elif "at" in step:
            self.at(step["at"])
        elif "stop" in step:
            core.now = self.clocks(step["stop"])
        elif isinstance(step.get("unreached"), dict):
            core.unreached((step["unreached"]["error"], step["unreached"]["code"]))
        else:
            kind = next(kind for kind in ("connected", "broke", "unreached") if kind in step)
            getattr(core, kind)()
        said = {
            "sent": [[word(each) for each in words] for words in core.out],
            "events": encoded(core.events),
            "orders": encoded(core.orders),
        }
        self.told += core.events
        core.out, core.events, core.orders = [], [], []
        wrong = [
            f"{what}: {json.dumps(said[what])}, not {json.dumps(step.get(what, []))}"
            for what in said
            if said[what] != step.get(what, [])
        ]
        if "gives" in step and given != step["gives"]:
            wrong.append(f"gives {given}, not {step['gives']}")
        return wrong


def verdict(vector, preludes, broken=()):
    """None, or where it fails."""
    prelude = preludes[vector["begin"]]
    world = World({**prelude["client"], **vector.get("client", {})}, broken)
    for number, step in enumerate([*prelude["steps"], *vector["steps"]]):
        try:
            wrong = world.step(step)
        except Exception as error:  # A rule that is broken may break the model.
            if not broken:
                raise
            wrong = [repr(error)]
        if wrong:
            return (
                f"step {number - len(prelude['steps'])} {json.dumps(step)}\n      "
                + "\n      ".join(wrong)
            )
    return None


def run(found, preludes, with_mutants):
    """Whether something failed."""
    failed = 0
    for _, vector in found:
        why = verdict(vector, preludes)
        if why:
            failed += 1
            print(f"  {vector['name']}: {why}")
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {len(found) - failed} passed; {failed} failed")
    if not with_mutants:
        return failed > 0
    for rule in MUTANTS:
        by = [v["name"] for _, v in found if rule in v["rules"] and verdict(v, preludes, {rule})]
        print(f"  without {rule}: " + (", ".join(by) if by else "NOBODY NOTICES"))
        failed += not by
    return failed > 0

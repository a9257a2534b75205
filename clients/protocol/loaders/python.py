#!/usr/bin/env python3
"""Runs the vectors against the core of tether-locks, which must be in PYTHONPATH.

Prints each vector that fails, and where. That core begins with a connection that was greeted:
vectors that begin with `new` are not run, nor are those of other levels.
"""

import json
import sys
from pathlib import Path

from tether_locks.core import Core, Phase
from tether_locks.errors import Deadlock, Lost, Refused, Taken, Unreachable
from tether_locks.resp import Parser

HERE = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(HERE))

import check  # noqa: E402
from model.run import encoded  # noqa: E402


def data(value):
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else str(value).encode()


def resp(frame):
    """A frame of a vector as bytes."""
    if frame is None:
        return b"_\r\n"
    if isinstance(frame, int):
        return b":%d\r\n" % frame
    if isinstance(frame, list):
        return b"*%d\r\n" % len(frame) + b"".join(map(resp, frame))
    kind, value = (
        next(iter(frame.items())) if isinstance(frame, dict) else ("hex", data(frame).hex())
    )
    if kind == "hex":
        return b"$%d\r\n%s\r\n" % (len(value) // 2, bytes.fromhex(value))
    if kind == "map":
        return b"%%%d\r\n" % len(value) + b"".join(
            resp(name) + resp(each) for name, each in value.items()
        )
    if kind == "push":
        return b">" + resp(value)[1:]
    return {"simple": b"+", "error": b"-"}[kind] + value.encode() + b"\r\n"


ERRORS = {Deadlock: "deadlock", Taken: "taken", Refused: "refused", Unreachable: "unreachable"}


class World:
    def __init__(self, begin, client):
        self.core = Core(0.0)
        self.core.fence = client.get("fence", 8000 if begin == "session" else 4000) / 1000
        if begin == "session":
            self.core.secret = b"s"
        self.now, self.labels, self.wants, self.ids, self.events = 0.0, 0, {}, {}, []
        self.was_down = self.was_over = False

    def acquire(self, step):
        self.labels += 1
        owner = step.get("owner")
        label = b".%d" % self.labels if owner is None else data(owner)
        mode = ("SHARED",) if step.get("shared") else ()
        if step.get("permits"):
            mode = ("PERMITS", step["permits"][0], "OF", step["permits"][1])
        wait = step.get("wait")
        wait = None if wait == 0 else -(-wait // 1) if wait else 0
        try:
            want = self.core.ask(
                self.now, tuple(map(data, step["keys"])), label, mode, wait, step.get("lease")
            )
        except (Deadlock, Unreachable) as error:
            self.events.append(
                {
                    "refused": step["id"],
                    "error": ERRORS[type(error)],
                    "code": ERRORS[type(error)].upper(),
                }
            )
            return
        self.wants[step["id"]], self.ids[want] = want, step["id"]

    def changes(self):
        for want in self.core.changed():
            name, error = self.ids.get(want), want.error
            if want.phase is Phase.HELD:
                self.events.append({"granted": name, "token": want.token})
            elif want.phase is not Phase.ENDED:
                if want.is_put_off:
                    self.events.append({"releasing": name})
            elif error is None:
                self.events.append({"over" if want.given_up else "released": name})
            elif isinstance(error, Lost):
                self.events.append({"lost": name, "reason": error.reason})
            else:
                code = getattr(error, "code", ERRORS[type(error)].upper())
                self.events.append({"refused": name, "error": ERRORS[type(error)], "code": code})

    def call(self, step):
        core, want = self.core, self.wants.get(step.get("id"))
        if step["call"] == "acquire":
            return self.acquire(step)
        if step["call"] == "check":
            reason = core.lost(self.now, want)
            return (
                "held"
                if reason is None
                else "released"
                if reason == "released"
                else {"lost": reason}
            )
        if step["call"] == "close":
            return core.end("closed")
        if step["call"] == "extend":

            def then(reply):
                self.events.append({"extended" if reply == 1 else "not_extended": step["id"]})

            for key in want.keys:
                core.call(
                    self.now,
                    ("LOCK.EXTEND", key, step["lease"], "OWNER", want.label),
                    then,
                    again=True,
                )
            return None
        return {"release": core.release, "give_up": core.give_up}[step["call"]](self.now, want)

    def step(self, step):
        core, given = self.core, None
        if "call" in step:
            given = self.call(step)
        elif "recv" in step:
            core.receive(self.now, resp(step["recv"]))
        elif "at" in step or "stop" in step:
            to = step.get("at", step.get("stop"))
            to = (to["boot"] if isinstance(to, dict) else to) / 1000
            while "at" in step and not isinstance(step["at"], dict) and self.now < to:
                self.now = min(to, round(self.now + 0.001, 6))
                core.tick(self.now)
            self.now = to
            if "at" in step:
                core.tick(to)
        elif "broke" in step:
            core.broke(self.now)
        elif "connected" in step:
            core.connected(self.now)
        self.changes()
        orders = []
        if core.ended and not self.was_over and "broke" not in step:
            orders.append("leave")
        if core.is_down and not self.was_down:
            orders += ["connect"] if "broke" in step else ["leave", "connect"]
        self.was_down, self.was_over = core.is_down, bool(core.ended)
        sent = [[encoded(each) for each in words] for words in Parser().feed(core.output())]
        said = {"sent": sent, "events": self.events, "orders": orders}
        self.events = []
        wrong = [
            f"{what}: {json.dumps(said[what])}, not {json.dumps(step.get(what, []))}"
            for what in said
            if said[what] != step.get(what, [])
        ]
        return wrong + (
            [f"gives {given}, not {step['gives']}"] if step.get("gives", given) != given else []
        )


def verdict(vector):
    world = World(vector["begin"], vector.get("client", {}))
    for step in vector["steps"]:
        try:
            wrong = world.step(step)
        except Exception as error:
            wrong = [repr(error)]
        if wrong:
            return f"{json.dumps(step)}\n      " + "\n      ".join(wrong)
    return None


passed = failed = skipped = 0
for _, each in check.vectors():
    is_known = not any(
        "temporary" in step or step.get("call") in ("raise", "watch", "presence", "observe")
        for step in each["steps"]
    )
    if each["level"] not in ("L1", "L2") or each["begin"] == "new" or not is_known:
        skipped += 1
        continue
    why = verdict(each)
    passed, failed = passed + (not why), failed + bool(why)
    if why and "--quiet" not in sys.argv:
        print(f"  {each['name']} ({', '.join(each['rules'])}): {why}")
    elif why:
        print(f"  {each['name']}")
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(failed > 0)

"""The adapter of the model: the rules of protocol.md with a socket below.

It shows that the cases ask for what the rules say.

BROKEN=P-FENCE-2,P-REL-5 breaks these rules, so that the suite can be seen to notice.
"""

import ast
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.cluster import Cluster
from model.plain import Plain, is_plain
from model.quorum import Quorum
from model.run import encoded
from model.shell import Shell, opened

LEVELS = ("L1", "L2", "L3", "L4", "CLUSTER")
CALLS = (
    "open", "acquire", "release", "give_up", "check", "close",
    "extend", "guard", "check_server", "run_on", "setnx", "fork", "execute",
    "watch", "unwatch", "presence", "observe", "end", "pause", "go_on",
)  # fmt: skip
WITHOUT_PUSHES = (
    "this server sends no pushes to this connection; on the server, run `tether qualify`"
)
MOST_UNTAKEN = 1024

# A program that prints what its descriptors are.
LOOK = """import os
folder = "/proc/self/fd"
links = [f"{folder}/{name}" for name in os.listdir(folder)]
print([os.readlink(link) for link in links if os.path.exists(link)])
"""


def say(**event):
    os.write(1, (json.dumps({**event, "at": time.monotonic()}) + "\n").encode())


class Untaken:
    """The events of a watch whose user takes none at the moment (P-WATCH-5)."""

    def __init__(self):
        self.events = []

    def add(self, event):
        self.events.append(event)
        if len(self.events) > MOST_UNTAKEN:
            last = {each["key"]: each for each in self.events}
            first = {each["key"]: each for each in reversed(self.events)}
            # Two states in turn: of an even number of changes nothing is left.
            self.events = [last[key] for key in last if last[key]["is"] == first[key]["is"]]


class Adapter:
    """`client` has the calls of a shell."""

    client = plain = None

    def __init__(self):
        self.calls, self.untaken = {}, {}

    def line(self, text):
        call = json.loads(text)
        answer = {"unknown": True}
        if call["call"] in CALLS:
            try:
                answer = self.answer(call)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
        say(done=call["n"], **answer)

    def tell(self, event):
        event = encoded(event)
        if event.get("error") == "nopush":
            call = self.calls.get(event.get("refused"))
            if call and is_plain(call):
                return self.plain.acquire(event["refused"], call)
            event = {**event, "text": WITHOUT_PUSHES}
        untaken = self.untaken.get(event.get("watch"))
        return say(**event) if untaken is None else untaken.add(event)

    def answer(self, call):
        kind, name = call["call"], call.get("id")
        if kind == "open":
            return self.open(call)
        if kind == "execute":
            return self.execute()
        if kind == "fork":
            if not os.fork():
                self.child(call["input"])
            return {}
        if kind == "pause":
            self.untaken[name] = Untaken()
            return {}
        if kind == "go_on":
            for event in self.untaken.pop(name).events:
                say(**event)
            return {}
        one = self.plain and self.plain.requests.get(name)
        if kind == "check":
            time.sleep(call.get("stall", 0) / 1000)
            return {"gives": one.check() if one else encoded(self.client.check(name))}
        if one and kind in ("release", "give_up"):
            one.end()
            return {}
        self.calls[name] = self.fields(call)
        self.client.call(name, self.calls[name])
        return {}

    def open(self, call):
        if call.get("quorum"):
            self.client = Quorum(call, self.tell)
        elif call.get("cluster"):
            self.client = Cluster(call, self.tell)
        else:
            self.client = Shell(call, self.tell)
            self.plain = Plain(self.client)
        return {}

    def fields(self, call):
        call = dict(call)
        call["keys"] = [key.encode() for key in call.get("keys", [])]
        for name in ("temporary", "owner", "prefix"):
            if isinstance(call.get(name), str):
                call[name] = call[name].encode()
        if call.get("from"):
            call["task"] = call["from"]
        return call

    def execute(self):
        listing = subprocess.run(
            [sys.executable, "-c", LOOK],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            close_fds=False,
            check=True,
        )
        names = ast.literal_eval(listing.stdout.decode())
        return {"sockets": [name for name in names if name.startswith("socket")]}

    def child(self, path):
        """P-FORK-1, P-FORK-2: a dead socket stands in the place of each of the parent's."""
        for number in opened:
            with contextlib.suppress(OSError):
                dead = os.open(os.devnull, os.O_RDWR)
                os.dup2(dead, number, inheritable=False)
                os.close(dead)
        with open(path) as lines:
            for line in lines:
                call = json.loads(line)
                answer = {"check": {"gives": {"lost": "fork"}}}.get(call["call"], {"error": "fork"})
                say(done=call["n"], child=True, **answer)
        os._exit(0)


async def main():
    adapter, loop, over = Adapter(), asyncio.get_running_loop(), asyncio.Event()

    def read():
        for text in sys.stdin:
            loop.call_soon_threadsafe(adapter.line, text)
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=read, daemon=True).start()
    say(hello="model", levels=LEVELS, calls=CALLS[6:])
    await over.wait()


asyncio.run(main())

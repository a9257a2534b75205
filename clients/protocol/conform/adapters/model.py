"""The adapter of the model: the rules of protocol.md with a socket below.

It shows that the cases ask for what the rules say.

BROKEN=P-FENCE-2,P-REL-5 breaks these rules, so that the suite can be seen to notice.
"""

import ast
import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from model.core import Core, Error
from model.run import encoded

CALLS = (
    "open", "acquire", "release", "give_up", "check", "close",
    "extend", "guard", "check_server", "fork", "execute",
    "watch", "unwatch", "presence", "observe", "end",
)  # fmt: skip
HOPS = 2
WITHOUT_PUSHES = (
    "this server sends no pushes to this connection; on the server, run `tether qualify`"
)

# A program that prints what its descriptors are.
LOOK = """import os
folder = "/proc/self/fd"
links = [f"{folder}/{name}" for name in os.listdir(folder)]
print([os.readlink(link) for link in links if os.path.exists(link)])
"""


def clocks():
    return time.monotonic() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


def say(**event):
    os.write(1, (json.dumps({**event, "at": time.monotonic()}) + "\n").encode())


def packed(words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%s\r\n" % (len(word), word) for word in words
    )


class Malformed(Exception):
    """These bytes are no RESP3."""


async def frame(reader):
    line = await reader.readuntil(b"\r\n")
    kind, rest = line[:1], line[1:-2]
    try:
        if kind == b"+":
            return rest
        if kind == b"-":
            return Error(rest.decode())
        if kind in b":(":
            return int(rest)
        if kind == b"_" or rest == b"-1":
            return None
        if kind == b"$":
            return (await reader.readexactly(int(rest) + 2))[:-2]
        if kind in (b"*", b">", b"%"):
            items = [await frame(reader) for _ in range(int(rest) * (1 + (kind == b"%")))]
            if kind == b"%":
                return dict(zip(items[::2], items[1::2]))
            return {"push": items} if kind == b">" else items
        if kind in (b"#", b","):
            return rest
    except ValueError as error:
        raise Malformed(str(error)) from None
    raise Malformed(f"{line[:40]!r}")


class Shell:
    """Connections, the clock and the user, around a core."""

    def __init__(self, call):
        self.addresses = [urlsplit(url) for url in [call["url"], *call.get("others", [])]]
        client = {name: call[name] for name in ("grace", "stop_within", "fence") if name in call}
        client["unix"] = self.addresses[0].scheme == "unix"
        self.core = Core(clocks(), client, filter(None, os.environ.get("BROKEN", "").split(",")))
        self.told = self.core.told = []
        self.writer, self.number, self.timer, self.opening = None, 0, None, None
        self.sockets, self.tasks = set(), set()
        self.data = None

    def begin(self, coroutine):
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def do(self, act):
        """Something happens: what is due comes first, and what follows is done."""
        core = self.core
        core.tick(clocks())
        result = act()
        core.tick(clocks())
        self.settle()
        return result

    def settle(self):
        core = self.core
        events, core.events = core.events, []
        out, core.out = core.out, []
        orders, core.orders = core.orders, []
        for event in events:
            self.told.append(event)
            if event.get("error") == "nopush":
                event = {**event, "text": WITHOUT_PUSHES}
            say(**encoded(event))
        if out and self.writer:
            self.writer.write(b"".join(packed(words) for words in out))
        for order in orders:
            if order == "connect":
                self.number += 1
                self.opening = self.begin(self.connect(self.number))
            elif order == "leave":
                self.leave(0)
            else:
                self.leave(order["leave_after"] / 1000)
        if self.timer:
            self.timer.cancel()
        at = core.next_tick()
        if at is not None:
            after = max(0.001, (at - clocks()[0]) / 1000)
            self.timer = asyncio.get_running_loop().call_later(after, self.do, lambda: None)

    def leave(self, after):
        self.number += 1  # What that connection says is heard no more.
        writer, self.writer = self.writer, None
        if writer:
            asyncio.get_running_loop().call_later(after, writer.close)

    async def connect(self, number):
        for address in self.addresses:
            try:
                reader, writer = await asyncio.wait_for(self.greet(address), 5)
            except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, Malformed):
                continue
            except Error as error:
                if number == self.number:
                    self.do(partial(self.core.failed_attempt, ("refused", error.code)))
                return
            if number != self.number:
                writer.close()
                return
            self.writer = writer
            self.do(self.core.connected)
            await self.read(reader, number)
            return
        if number == self.number:
            self.do(self.core.unreached)

    async def read(self, reader, number):
        try:
            while number == self.number:
                received = await frame(reader)
                if number != self.number:
                    return
                is_map = isinstance(received, dict) and "push" not in received
                self.do(partial(self.core.recv, {"map": received} if is_map else received))
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, Malformed):
            if number == self.number:
                self.writer.close()
                self.writer = None
                self.do(self.core.broke)

    async def greet(self, address):
        """HELLO, the name, the database; to the master, where this is a replica (P-CONN-5)."""
        place = (address.hostname, address.port)
        for _ in range(HOPS + 1):
            if address.scheme == "unix":
                reader, writer = await asyncio.open_unix_connection(address.path)
            else:
                reader, writer = await asyncio.open_connection(*place)
            self.sockets.add(writer.get_extra_info("socket").fileno())
            words = ["HELLO", "3"]
            if address.password:
                words += ["AUTH", address.username or "default", address.password]
            name = f"tether:{socket.gethostname()}:{os.getpid()}:{os.path.basename(sys.argv[0])}"
            writer.write(packed(words) + packed(["CLIENT", "SETNAME", name]) + packed(["ROLE"]))
            hello, _, role = await frame(reader), await frame(reader), await frame(reader)
            if isinstance(hello, Error):
                writer.close()
                raise hello
            if not isinstance(role, list) or role[0] != b"slave":
                return reader, writer
            writer.close()
            place = (role[1].decode(), role[2])
        raise OSError("no master")

    # ---- calls ----

    def fields(self, call):
        call = dict(call)
        call["keys"] = [key.encode() for key in call.get("keys", [])]
        for name in ("temporary", "owner", "prefix"):
            if isinstance(call.get(name), str):
                call[name] = call[name].encode()
        if call.get("from"):
            call["task"] = call["from"]
        return call

    def call(self, call):
        core, name = self.core, call.get("id")
        kind, call = call["call"], self.fields(call)
        if kind == "check":
            time.sleep(call.get("stall", 0) / 1000)
            core.now = clocks()  # P-FENCE-4.
            answer = {"gives": encoded(core.check(name))}
            self.do(lambda: None)
            return answer
        if kind in ("guard", "check_server"):
            self.begin(self.guard(name, call.get("command")))
            return {}
        acts = {
            "acquire": lambda: core.acquire(name, call),
            "release": lambda: core.release_call(name),
            "give_up": lambda: core.find(name) and core.give_up(core.find(name)),
            "extend": lambda: core.extend(name, call["lease"]),
            "watch": lambda: core.watch(name, call["keys"]),
            "unwatch": lambda: core.unwatch(name),
            "presence": lambda: core.presence(name, call["prefix"]),
            "observe": lambda: core.presence(name, call["prefix"], is_leader=True),
            "end": lambda: core.end_presence(name),
            "close": core.close,
        }
        self.do(acts[kind])
        return {}

    async def guard(self, name, command):
        gives = self.core.check(name)
        request = self.core.find(name)
        if gives != "held":
            return (
                say(lost=name, reason=gives["lost"])
                if name not in [e.get("lost") for e in self.told]
                else None
            )
        try:
            if self.data is None:
                address = self.addresses[0]
                self.data = await asyncio.open_connection(address.hostname, address.port)
            reader, writer = self.data
            words = ["LOCK.CHECK", request.keys[0], request.token]
            if command:
                words = ["LOCK.GUARD", request.keys[0], request.token, *command]
            writer.write(packed(words))
            reply = await frame(reader)
        except (OSError, asyncio.IncompleteReadError):
            return say(not_run=name, error="unreachable", code="UNREACHABLE")
        if not isinstance(reply, Error):
            return say(ran=name, reply=encoded(reply)) if command else say(checked=name)
        if reply.code == "STALE":
            return (
                say(lost=name, reason="stale")
                if name not in [e.get("lost") for e in self.told]
                else None
            )
        return say(not_run=name, error="refused", code=reply.code)


class Adapter:
    shell = None

    def line(self, text):
        call = json.loads(text)
        answer = {"unknown": True}
        if call["call"] in CALLS:
            try:
                answer = self.answer(call)
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
        say(done=call["n"], **answer)

    def answer(self, call):
        if call["call"] == "open":
            self.shell = Shell(call)
            return {}
        if call["call"] == "execute":
            listing = subprocess.run(
                [sys.executable, "-c", LOOK],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                close_fds=False,
                check=True,
            )
            names = ast.literal_eval(listing.stdout.decode())
            return {"sockets": [name for name in names if name.startswith("socket")]}
        if call["call"] == "fork":
            if not os.fork():
                self.child(call["input"])
            return {}
        return self.shell.call(call)

    def child(self, path):
        """P-FORK-1, P-FORK-2: a dead socket stands in the place of each of the parent's."""
        for number in self.shell.sockets:
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
    say(hello="model", levels=["L1", "L2", "L3"], calls=CALLS[6:])
    await over.wait()


asyncio.run(main())

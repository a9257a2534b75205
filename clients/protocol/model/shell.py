"""A socket, a clock and a user around the core: what the adapter of conform runs.

`Shell` has one connection for locks; cluster.py and quorum.py have several of it.
"""

import asyncio
import collections
import contextlib
import os
import random
import socket
import ssl
import sys
import time
from functools import partial
from urllib.parse import urlsplit

from .core import Core, Error
from .run import encoded

HOPS = 2
CONNECT_WITHIN = 5
SENTINELS_WITHIN = 2
FAILURES = (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError)

# Goes before a user's script on another server (P-GUARD-3).
FENCE = """
local seen, token = redis.call('GET', KEYS[1]) or '', ARGV[1]
if #seen > #token or (#seen == #token and seen > token) then
  return redis.error_reply('STALE ' .. seen .. ' was here')
end
redis.call('SET', KEYS[1], token)
table.remove(KEYS, 1)
table.remove(ARGV, 1)
"""


def clocks():
    return time.monotonic() * 1000, time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


# ---- frames ----


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


async def ask(connection, *words):
    """One command and its reply; an error is raised."""
    reader, writer = connection
    writer.write(packed(words))
    reply = await frame(reader)
    if isinstance(reply, Error):
        raise reply
    return reply


# ---- where the master is ----


opened = set()  # The numbers of all sockets there ever were, for the child of a fork.


class Network:
    """How to come from addresses to a connection that is greeted (P-CONN-2, 5, 7, 8)."""

    def __init__(self, call):
        given = call.get("sentinels") or [call["url"], *call.get("others", [])]
        self.addresses = [urlsplit(url) for url in given]
        self.master = call["master"] if call.get("sentinels") else None
        self.user, self.password = call.get("user"), call.get("password")
        self.tls = None
        if self.addresses[0].scheme == "rediss":
            self.tls = ssl.create_default_context(cafile=call.get("ca"))
        self.is_unix = self.addresses[0].scheme == "unix"

    async def places(self):
        """To try, one after the other."""
        if self.is_unix:
            return [self.addresses[0].path]
        places = [(address.hostname, address.port) for address in self.addresses]
        return places if self.master is None else [await self.ask_sentinels(places)]

    async def ask_sentinels(self, places):
        """P-CONN-7."""

        async def asked(place):
            connection = await self.open(place)
            try:
                host, port = await ask(
                    connection, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.master
                )
                return host.decode(), int(port)
            finally:
                connection[1].close()

        votes = collections.Counter()
        waiting = {asyncio.ensure_future(asked(place)) for place in places}
        until = time.monotonic() + SENTINELS_WITHIN
        while waiting and max(votes.values(), default=0) <= len(places) / 2:
            within = max(0, until - time.monotonic())
            done, waiting = await asyncio.wait(
                waiting, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                break
            votes.update(task.result() for task in done if not task.exception())
        for task in waiting:
            task.cancel()
        if not votes:
            raise OSError("no Sentinel answers")
        return votes.most_common(1)[0][0]

    async def open(self, place):
        if self.is_unix:
            reader, writer = await asyncio.open_unix_connection(place)
        else:
            reader, writer = await asyncio.open_connection(*place, ssl=self.tls)
        opened.add(writer.get_extra_info("socket").fileno())
        return reader, writer

    async def greet(self, place):
        """HELLO and the name; to the master, where this is a replica (P-CONN-5)."""
        for _ in range(HOPS + 1):
            reader, writer = await self.open(place)
            words = ["HELLO", "3"]
            address = self.addresses[0]
            if self.password or address.password:
                user = self.user or address.username or "default"
                words += ["AUTH", user, self.password or address.password]
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


# ---- one connection for locks ----


class Shell:
    """The connection, the clock and the user, around a core. `tell` is called with each event."""

    def __init__(self, call, tell, make_core=Core):
        self.tell, self.network = tell, Network(call)
        client = {
            name: call[name]
            for name in ("grace", "stop_within", "fence", "cluster")
            if name in call
        }
        client["unix"] = self.network.is_unix
        broken = filter(None, os.environ.get("BROKEN", "").split(","))
        self.core = make_core(clocks(), client, broken)
        self.told = self.core.told = []
        self.writer, self.number, self.timer, self.opening = None, 0, None, None
        self.tasks = set()
        self.data = None
        self.values, self.lined_up = {}, []  # Of locks in the place of SET NX.

    def begin(self, coroutine):
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def do(self, act):
        """Something happens: what is due comes first, and what follows is done."""
        core = self.core
        core.client["random"] = random.random()  # P-RETRY-1.
        core.tick(clocks())
        result = act()
        core.tick(clocks())
        self.settle()
        return result

    def settle(self):
        core = self.core
        for event in [each for each in core.events if each.get("presence") in self.values]:
            core.events.remove(event)
            self.value_told(event["presence"], event)
        for event in [each for each in core.events if each.get("granted") in self.values]:
            self.value_told(event["granted"], {})
        lined_up, self.lined_up = self.lined_up, []
        for name, call in lined_up:
            self.setnx(name, call)
        events, core.events = core.events, []
        out, core.out = core.out, []
        orders, core.orders = core.orders, []
        for event in events:
            self.told.append(event)
            self.tell(event)
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

    def setnx(self, name, call):
        """P-SETNX-1, P-SETNX-3; requests for one name go one after the other (P-SETNX-2)."""
        key = call["keys"][0]
        if any(r.is_temporary and r.keys == [key] for r in self.core.requests):
            if call.get("wait") == 0:
                self.core.tell({"refused": name, "error": "taken", "code": "TAKEN"})
            else:
                self.lined_up.append((name, call))
            return
        value = b"%d" % (1 << 62 | random.getrandbits(62))
        self.values[name] = {"value": value, "seen": None}
        self.core.presence(name, key)
        self.core.acquire(name, {**call, "temporary": value})

    def value_told(self, name, event):
        """What a lock in the place of SET NX hears of its value."""
        mine, request = self.values[name], self.core.find(name)
        if event:
            mine["seen"] = (event.get("token"), event.get("value"))
        token, value = mine["seen"] or (None, None)
        is_held = request is not None and request.phase == "held"
        if is_held and token == request.token and value != mine["value"]:
            self.core.lose(request, "overwritten", [])

    def leave(self, after):
        self.number += 1  # What that connection says is heard no more.
        writer, self.writer = self.writer, None
        if writer:
            asyncio.get_running_loop().call_later(after, writer.close)

    async def connect(self, number):
        places = []
        with contextlib.suppress(*FAILURES, Error, Malformed):
            places = await self.places()
        for place in places:
            try:
                reader, writer = await asyncio.wait_for(self.network.greet(place), CONNECT_WITHIN)
            except ssl.SSLCertVerificationError:
                return self.not_connected(number, ("refused", "TLS"))
            except (*FAILURES, Malformed):
                continue
            except Error as error:
                return self.not_connected(number, ("refused", error.code))
            if number != self.number:
                writer.close()
                return None
            self.writer = writer
            self.do(self.core.connected)
            return await self.read(reader, number)
        return self.not_connected(number, ("unreachable", "UNREACHABLE"))

    async def places(self):
        return await self.network.places()

    def not_connected(self, number, error):
        if number == self.number:
            self.do(partial(self.core.failed_attempt, error))

    async def read(self, reader, number):
        try:
            while number == self.number:
                received = await frame(reader)
                if number != self.number:
                    return
                is_map = isinstance(received, dict) and "push" not in received
                self.do(partial(self.core.recv, {"map": received} if is_map else received))
        except (*FAILURES, Malformed):
            if number == self.number:
                self.writer.close()
                self.writer = None
                self.do(self.core.broke)

    # ---- calls ----

    def check(self, name):
        self.core.now = clocks()  # P-FENCE-4.
        gives = self.core.check(name)
        self.do(lambda: None)
        return gives

    def call(self, name, call):
        core = self.core
        acts = {
            "acquire": lambda: core.acquire(name, call),
            "release": lambda: core.release_call(name),
            "give_up": lambda: core.give_up_call(name),
            "extend": lambda: core.extend(name, call["lease"]),
            "watch": lambda: core.watch(name, call["keys"], call.get("told")),
            "unwatch": lambda: core.unwatch(name),
            "presence": lambda: core.presence(name, call["prefix"], told=call.get("told")),
            "observe": lambda: core.presence(name, call["prefix"], True, call.get("told")),
            "end": lambda: core.end_presence(name),
            "close": core.close,
            "setnx": lambda: self.setnx(name, call),
        }
        if call["call"] == "run_on":
            self.begin(self.run_on(name, call))
        elif call["call"] in ("guard", "check_server"):
            self.begin(self.guard(name, call.get("command")))
        else:
            self.do(acts[call["call"]])

    async def guard(self, name, command):
        """P-GUARD-1, P-GUARD-2."""
        gives, request = self.core.check(name), self.core.find(name)
        if gives != "held":
            return self.tell_lost(name, gives["lost"])
        try:
            if self.data is None:
                self.data = await self.network.open((await self.places())[0])
            words = ["LOCK.CHECK", request.keys[0], request.token]
            if command:
                words = ["LOCK.GUARD", request.keys[0], request.token, *command]
            reply = await ask(self.data, *words)
        except Error as error:
            if error.code == "STALE":
                return self.tell_lost(name, "stale")
            return self.tell({"not_run": name, "error": "refused", "code": error.code})
        except FAILURES:
            return self.tell({"not_run": name, "error": "unreachable", "code": "UNREACHABLE"})
        return self.tell({"ran": name, "reply": encoded(reply)} if command else {"checked": name})

    async def run_on(self, name, call):
        """P-GUARD-3."""
        gives, request = self.core.check(name), self.core.find(name)
        if gives != "held":
            return self.tell_lost(name, gives["lost"])
        address = urlsplit(call["url"])
        data = await self.network.open((address.hostname, address.port))
        keys = [call["fence"].encode(), *call["keys"]]
        try:
            words = ["EVAL", FENCE + call["script"], len(keys), *keys, request.token, *call["args"]]
            return self.tell({"ran": name, "reply": encoded(await ask(data, *words))})
        except Error as error:
            if error.code == "STALE":
                return self.tell_lost(name, "stale")
            return self.tell({"not_run": name, "error": "refused", "code": error.code})
        finally:
            data[1].close()

    def tell_lost(self, name, reason):
        if name not in [event.get("lost") for event in self.told]:
            self.tell({"lost": name, "reason": reason})

"""The adapter of tether-locks, the Python client (asyncio), which must be in PYTHONPATH."""

import ast
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import redis.asyncio

import tether_locks
from tether_locks.asyncio import Locks
from tether_locks.errors import LockError, Lost

# A program that prints what its descriptors are.
LOOK = """import os
folder = "/proc/self/fd"
links = [f"{folder}/{name}" for name in os.listdir(folder)]
print([os.readlink(link) for link in links if os.path.exists(link)])
"""


def say(**event):
    line = json.dumps({**event, "at": time.monotonic()}) + "\n"
    os.write(1, line.encode())


def error_of(error):
    """The name and code of protocol.md."""
    if not isinstance(error, LockError):
        return {"error": type(error).__name__, "code": str(error)}
    return {"error": error.name, "code": error.code, "text": str(error)}


def text(value):
    return None if value is None else value.decode()


class Adapter:
    def __init__(self):
        self.requests, self.held, self.tasks = {}, {}, set()
        self.lost, self.given_up = set(), set()
        self.data, self.sources, self.watches, self.pauses = None, {}, {}, {}

    def begin(self, coroutine):
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def open(self, call):
        options = {
            name: call[name] / 1000 for name in ("grace", "stop_within", "fence") if name in call
        }
        for name, option in (
            ("user", "username"),
            ("password", "password"),
            ("ca", "ssl_ca_certs"),
        ):
            if name in call:
                options[option] = call[name]
        if "sentinels" in call:
            sentinels = [(urlsplit(url).hostname, urlsplit(url).port) for url in call["sentinels"]]
            server = redis.asyncio.Sentinel(sentinels).master_for(call["master"])
        else:
            self.url = call["url"]
            server = [call["url"], *call.get("others", [])]
        self.locks = Locks(server, cluster=call.get("cluster", False), **options)

    def lock(self, call):
        wait, key = call.get("wait"), call["keys"][0]
        how = {"wait": None if wait is None else wait / 1000}
        if "temporary" in call:
            return self.locks.temporary_key(key, call["temporary"], **how)
        for name in ("lease", "at_least"):
            if name in call:
                how[name] = call[name] / 1000
        if "acks" in call:
            how["acks"] = call["acks"]
        if len(call["keys"]) > 1:
            return self.locks.all(*call["keys"], **how)
        if "permits" in call:
            number, total = call["permits"]
            return self.locks.semaphore(key, number, of=total, **how)
        return self.locks.lock(key, shared=call.get("shared", False), **how)

    def acquire(self, call):
        name, lock = call["id"], self.lock(call)
        source = call.get("from")
        if source is None:
            self.requests[name] = self.begin(self.acquired(name, lock.acquire))
            return
        if source not in self.sources:
            self.sources[source] = asyncio.Queue()
            self.begin(self.source(self.sources[source]))
        granted = asyncio.get_running_loop().create_future()
        self.sources[source].put_nowait((lock, granted))
        self.requests[name] = self.begin(self.acquired(name, lambda: granted))

    async def source(self, asked):
        """A task that makes one request after the other, as a task of a user would."""
        while True:
            lock, granted = await asked.get()
            try:
                granted.set_result(await lock.acquire())
            except Exception as error:
                granted.set_exception(error)

    async def acquired(self, name, acquire):
        try:
            held = await acquire()
        except asyncio.CancelledError:
            say(over=name)
            raise
        except Exception as error:
            say(refused=name, **error_of(error))
            return
        self.held[name] = held
        say(granted=name, token=held.token)
        if name in self.given_up:
            self.begin(self.released(name))
        reason = await held.until_lost()
        if reason != "released":
            self.say_lost(name, reason)

    def say_lost(self, name, reason):
        if name not in self.lost:
            self.lost.add(name)
            say(lost=name, reason=reason)

    def release(self, call):
        self.begin(self.released(call["id"]))

    async def released(self, name):
        try:
            await self.held[name].release()
            say(released=name)
        except Lost as lost:
            self.say_lost(name, lost.reason)
        except Exception as error:
            say(not_released=name, **error_of(error))

    def give_up(self, call):
        name = call["id"]
        if name in self.held:
            return self.release(call)
        self.given_up.add(name)
        return self.requests[name].cancel()

    def extend(self, call):
        self.begin(self.extended(call["id"], call["lease"] / 1000))

    async def extended(self, name, lease):
        try:
            await self.held[name].extend(lease)
            say(extended=name)
        except Exception as error:
            say(not_extended=name, **error_of(error))

    def watch(self, call):
        def told(change):
            return {"watch": call["id"], "key": change.name, "is": change.state}

        self.begin_watch(call["id"], self.locks.watch(*call["keys"]), told)

    def presence(self, call):
        def told(member):
            event = {"presence": call["id"], "key": member.name, "is": member.change}
            if member.change == "del":
                return {**event, "reason": member.reason}
            return {**event, "token": member.token, "value": text(member.value)}

        self.begin_watch(call["id"], self.locks.presence(call["prefix"]), told)

    def observe(self, call):
        def told(leader):
            if leader is None:
                return {"leader": call["id"], "token": None}
            return {"leader": call["id"], "token": leader.token, "value": text(leader.value)}

        self.begin_watch(call["id"], self.locks.observe(call["prefix"]), told)

    def begin_watch(self, name, changes, told):
        self.watches[name] = self.begin(self.watched(name, changes, told))

    async def watched(self, name, changes, told):
        reads = self.pauses[name] = asyncio.Event()
        reads.set()
        try:
            async for change in changes:
                await reads.wait()
                say(**told(change))
        except LockError as error:
            say(ended=name, **error_of(error))

    def unwatch(self, call):
        self.watches.pop(call["id"]).cancel()

    end = unwatch

    def pause(self, call):
        self.pauses[call["id"]].clear()

    def go_on(self, call):
        self.pauses[call["id"]].set()

    def check(self, call):
        time.sleep(call.get("stall", 0) / 1000)  # The loop stands still, and no timer runs.
        held = self.held.get(call["id"])
        if held is None:
            return {"gives": "waiting"}
        reason = held.lost
        return {
            "gives": "held"
            if reason is None
            else "released"
            if reason == "released"
            else {"lost": reason}
        }

    def guard(self, call):
        self.begin(self.guarded(call["id"], call["command"]))

    async def guarded(self, name, command):
        self.data = self.data or redis.asyncio.Redis.from_url(self.url, decode_responses=True)
        try:
            say(ran=name, reply=await self.held[name].run(*command, on=self.data))
        except Lost as lost:
            self.say_lost(name, lost.reason)
        except Exception as error:
            say(not_run=name, error="unreachable", code=type(error).__name__)

    def setnx(self, call):
        wait = call.get("wait")
        lock = self.locks.lock(
            call["keys"][0], wait=None if wait is None else wait / 1000, compat="setnx"
        )
        self.requests[call["id"]] = self.begin(self.acquired(call["id"], lock.acquire))

    def run_on(self, call):
        self.begin(self.fenced(call))

    async def fenced(self, call):
        name = call["id"]
        client = redis.asyncio.Redis.from_url(call["url"], decode_responses=True)
        fields = {field: call[field] for field in ("fence", "keys", "args")}
        try:
            say(ran=name, reply=await self.held[name].run_on(client, call["script"], **fields))
        except Lost as lost:
            self.say_lost(name, lost.reason)
        except Exception as error:
            say(not_run=name, error="refused", code=type(error).__name__)
        await client.connection_pool.disconnect()

    def check_server(self, call):
        self.begin(self.checked(call["id"]))

    async def checked(self, name):
        try:
            await self.held[name].check_server()
            say(checked=name)
        except Lost as lost:
            self.say_lost(name, lost.reason)

    def execute(self, call):
        """The sockets that an executed child has."""
        listing = subprocess.run(
            [sys.executable, "-c", LOOK],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            close_fds=False,
            check=True,
        )
        names = ast.literal_eval(listing.stdout.decode())
        return {"sockets": [name for name in names if name.startswith("socket")]}

    def fork(self, call):
        if os.fork():
            return
        with open(call["input"]) as lines:  # A named pipe.
            for line in lines:
                call = json.loads(line)
                if call["call"] == "check":
                    say(done=call["n"], child=True, **self.check(call))
                elif (
                    call["call"] == "acquire"
                ):  # The threads' client, since a loop does not survive a fork.
                    locks = tether_locks.Locks(self.url)
                    held = locks.lock(call["keys"][0]).acquire()
                    say(done=call["n"], child=True, token=held.token)
                elif call["call"] == "release":
                    try:  # What a user could do there: run the coroutine by hand.
                        self.held[call["id"]].release().send(None)
                        say(done=call["n"], child=True)
                    except BaseException as error:
                        say(done=call["n"], child=True, raised=f"{type(error).__name__}: {error}")
        os._exit(0)

    def close(self, call):
        self.begin(self.closed())

    async def closed(self):
        await self.locks.close()
        say(closed=True)

    def line(self, text):
        call = json.loads(text)
        handle = getattr(self, call["call"], None)
        answer = {"unknown": True}
        if call["call"] in CALLS:
            try:
                answer = handle(call) or {}
                answer = answer if isinstance(answer, dict) else {}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
        say(done=call["n"], **answer)


CALLS = (
    "open",
    "acquire",
    "release",
    "give_up",
    "check",
    "close",
    "extend",
    "guard",
    "check_server",
    "run_on",
    "setnx",
    "fork",
    "execute",
    "watch",
    "unwatch",
    "presence",
    "observe",
    "end",
    "pause",
    "go_on",
)


async def main():
    adapter, loop, over = Adapter(), asyncio.get_running_loop(), asyncio.Event()

    def read():
        for text in sys.stdin:
            loop.call_soon_threadsafe(adapter.line, text)
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=read, daemon=True).start()
    say(hello="tether-locks 0.2.0", levels=["L1", "L2", "L3", "CLUSTER"], calls=CALLS[6:])
    await over.wait()


asyncio.run(main())

"""What a case plays on: a server, a faulty wire, raw connections, the client and its adapter.

Several servers that know each other are in servers.py.

Everything is on one clock, `now()`, the system's monotonic one, which adapters give their times on.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
import struct
import tempfile
import time
from pathlib import Path

now = time.monotonic
PATIENCE = float(os.environ.get("TETHER_PATIENCE", 30))  # How long a case waits for what must come.


class Failed(Exception):
    """What a case expects is not so."""


class Skipped(Exception):
    """The client may, and does, leave out what the case is about."""


def expect(is_so, text):
    if not is_so:
        raise Failed(text)


async def eventually(look, text, within=PATIENCE):
    """Asks again and again until it is so; what it gave."""
    until = now() + within
    while True:
        found = await look()
        if found:
            return found
        if now() > until:
            raise Failed(f"never: {text}")
        await asyncio.sleep(0.01)


class Ports:
    """Ports for servers, in blocks that this program has for itself.

    They are below those that systems give to outgoing connections: nobody's connection takes the
    port of a server that is down for a moment. The first port of a block stays bound for UDP,
    which no server needs; the tests of the module reserve theirs in the same way.
    """

    FIRST, LAST, BLOCK = 10_000, 20_000, 50

    def __init__(self):
        self.blocks, self.left = [], iter(())

    def free(self):
        while True:
            for port in self.left:
                with socket.socket() as probe, contextlib.suppress(OSError):
                    probe.bind(("127.0.0.1", port))
                    return port
            self.left = iter(self._reserve())

    def _reserve(self):
        blocks = (self.LAST - self.FIRST) // self.BLOCK
        for number in range(blocks):
            first = self.FIRST + (os.getpid() * 7 + number) % blocks * self.BLOCK
            block = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            try:
                block.bind(("127.0.0.1", first))
            except OSError:
                block.close()
            else:
                self.blocks.append(block)
                return range(first, first + self.BLOCK)
        raise Failed("no port is free")


free_port = Ports().free


class Error(Exception):
    @property
    def code(self):
        return str(self).split(" ", 1)[0]


class Raw:
    """A connection without a client library.

    It queues for the client's keys, and says when it got them.
    """

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.writer.write(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        )

    async def ask(self, *words):
        """The reply; an error is raised."""
        self.send(*words)
        reply = await asyncio.wait_for(self.reply(), PATIENCE)
        if isinstance(reply, Error):
            raise reply
        return reply

    async def reply(self):
        line = (await self.reader.readline())[:-2]
        if not line:
            raise Failed("the server closed a raw connection")
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else (await self.reader.readexactly(int(rest) + 2))[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [await self.reply() for _ in range(int(rest))]
        return rest

    def queue(self, key, *options):
        """Waits for this lock; a task that gives the token and when it came."""

        async def granted():
            self.send("LOCK.ACQUIRE", key, *options, "WAIT", 0)
            reply = await self.reply()
            if isinstance(reply, Error):
                raise reply
            return reply, now()

        task = asyncio.create_task(granted())
        task.add_done_callback(
            lambda task: task.cancelled() or task.exception()
        )  # A case may be over before.
        return task

    def close(self):
        self.writer.close()


class Server:
    def __init__(self, stage, folder):
        self.stage, self.folder = stage, folder
        self.port, self.process, self.options = free_port(), None, []

    async def start(self, *options, module=True):
        self.options = options or self.options
        words = [
            self.stage.server,
            "--port",
            str(self.port),
            "--save",
            "",
            "--appendonly",
            "no",
            "--dir",
            str(self.folder),
        ]
        words += ["--repl-diskless-sync-delay", "0", *self.options]
        if module:
            words += ["--loadmodule", str(self.stage.module)]
        await self.run(words)
        return self

    async def run(self, words):
        """Starts this program and waits until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*words, stdout=log, stderr=log)

        async def answers():
            if self.process.returncode is not None:
                raise Failed("the server ended: " + (self.folder / "log").read_text()[-500:])
            with contextlib.suppress(OSError, Failed, asyncio.IncompleteReadError):
                try:
                    return await self.ask("PING") == b"PONG"
                except Error as error:
                    return error.code == "NOAUTH"
            return False

        await eventually(answers, "the server starts")

    async def raw(self):
        return Raw(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, *words):
        raw = await self.raw()
        try:
            return await raw.ask(*words)
        finally:
            raw.close()

    async def info(self, key):
        """LOCK.INFO as a dictionary, holders and waiters too."""

        def pairs(flat):
            return dict(zip(flat[::2], flat[1::2]))

        reply = await self.ask("LOCK.INFO", key)
        if reply is None:
            return {b"holders": [], b"waiters": []}
        info = pairs(reply)
        for who in (b"holders", b"waiters"):
            info[who] = [pairs(each) for each in info[who]]
        return info

    async def has_replica_in_step(self):
        """Whether a replica acknowledged everything so far within a second."""
        raw = await self.raw()
        try:
            await raw.ask("SET", "in-step", "1")  # WAIT waits for what its own connection wrote.
            return await raw.ask("WAIT", 1, 1000) >= 1
        finally:
            raw.close()

    async def is_waited_for(self, key, by=1):
        await eventually(lambda: self._waits(key, by), f"{by} wait for {key}")

    async def _waits(self, key, by):
        return len((await self.info(key))[b"waiters"]) >= by

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.signal(signal.SIGKILL)
            await self.process.wait()

    def signal(self, number):
        os.kill(
            self.process.pid, number
        )  # Popen's own would reap a process that asyncio waits for.


class Devserver(Server):
    """`tether devserver`, which takes some of a server's settings, each as an option of its own."""

    LACKS = frozenset(("replica", "sentinels", "cluster", "files", "acl", "scripts"))

    async def start(self, *options, module=True):
        self.options = options or self.options
        words = [self.stage.server, "devserver", "--port", str(self.port)]
        for name, value in zip(self.options[::2], self.options[1::2]):
            words += {
                "--requirepass": ["--password", value],
                "--unixsocket": ["--unix-socket", value],
                "--tether.peer-timeout": ["--peer-timeout", f"{value}ms"],
                "--tether.quarantine": ["--quarantine", f"{value}ms"],
                "--tether.private-functions": ["--no-pushes"],
            }[name]
        await self.run(words if module else [*words, "--no-module"])
        return self


class Direction:
    def __init__(self):
        self.delay = 0.0
        self.is_hole = False
        self.size = 0  # Of a segment; 0: as it comes.
        self.cut_after = None
        self.open = asyncio.Event()
        self.open.set()

    def hold(self):
        self.open.clear()

    def let_go(self):
        self.open.set()


class Wire:
    """A proxy whose two directions can be set apart: `up` to the server, `down` to the client."""

    def __init__(self, server):
        self.server = server
        self.up, self.down = Direction(), Direction()
        self.connections = []
        self.attempts = []  # When the client connected, whatever became of it.
        self.pings, self.pongs = (
            [],
            [],
        )  # When a PING came from the client, and its answer went there.
        self.listener = None
        self.tasks = set()

    async def start(self, certificate=None):
        """With a certificate the client's side speaks TLS."""
        self.listener = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=certificate and certificate.context()
        )
        self.port = self.listener.sockets[0].getsockname()[1]
        return self

    async def _accept(self, reader, writer):
        self.attempts.append(now())
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        except OSError:
            abort(writer)
            return
        connection = {"client": writer, "server": far_writer, "is_lost": False}
        self.connections.append(connection)
        for way, source, sink in ((self.up, reader, far_writer), (self.down, far_reader, writer)):
            task = asyncio.create_task(self._pump(way, source, sink, connection))
            self.tasks.add(task)

    async def _pump(self, way, source, sink, connection):
        queue = asyncio.Queue()
        writer = asyncio.create_task(self._write(way, queue, sink, connection))
        self.tasks.add(writer)
        try:
            while True:
                data = await source.read(1 << 16)
                if not data:
                    break
                if way.is_hole or connection["is_lost"]:
                    continue
                if way is self.up:
                    self.pings += [now()] * data.count(b"PING\r\n")
                size = way.size or len(data)
                for at in range(0, len(data), size):
                    queue.put_nowait((now() + way.delay, data[at : at + size]))
        except OSError:
            pass
        queue.put_nowait((now() + way.delay, None))

    async def _write(self, way, queue, sink, connection):
        with contextlib.suppress(OSError):
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0, due - now()))
                await way.open.wait()
                if way.is_hole or connection["is_lost"]:
                    continue  # Neither bytes nor the end get through.
                if data is None:
                    break
                if way.cut_after is not None:
                    data = data[: way.cut_after]
                    way.cut_after -= len(data)
                if way is self.down:
                    self.pongs += [now()] * data.count(b"+PONG\r\n")
                sink.write(data)
                await sink.drain()
                if way.size:
                    await asyncio.sleep(0)
                if way.cut_after == 0:
                    way.cut_after = None
                    abort(connection["client"])
                    abort(connection["server"])
        sink.close()

    def put(self, data):
        """The client reads these bytes on its latest connection, before all that is held."""
        self.connections[-1]["client"].write(data)

    def reset(self):
        for connection in self.connections:
            abort(connection["client"])
            abort(connection["server"])
        self.connections.clear()

    def hole(self, up=True, down=True):
        self.up.is_hole = self.up.is_hole or up
        self.down.is_hole = self.down.is_hole or down

    def lose_connections(self):
        """A hole for the connections that there are; a new one gets through."""
        for connection in self.connections:
            connection["is_lost"] = True

    def longest_silence(self, since, until):
        """How long, at most, the sending of the last answered PING lay back, as seen from here."""
        answered = [at for at in self.pongs if at < until]
        asked = [since, *self.pings[: len(answered)]]
        return max(later - sent for sent, later in zip(asked, [*answered, until]))

    async def server_gives_up(self, after):
        """The server of the least patience: it takes the peer for dead after that time."""
        await asyncio.sleep(after)
        for connection in self.connections:
            abort(connection["server"])

    def close(self):
        self.listener.close()
        for task in self.tasks:
            task.cancel()
        self.reset()


def abort(writer):
    with contextlib.suppress(OSError, AttributeError):
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


class Client:
    """A client under test, behind its adapter."""

    def __init__(self, process):
        self.process = process
        self.lines, self.events, self.answers = [], [], {}
        self.number = 0
        self.news = asyncio.Condition()
        self.hello = None

    async def begin(self):
        self.reader = asyncio.create_task(self._read())
        await self._until(lambda: self.hello, "the adapter says hello")
        return self

    async def _read(self):
        while True:
            line = await self.process.stdout.readline()
            async with self.news:
                if line:
                    said = json.loads(line)
                    self.lines.append(said)
                    if "hello" in said:
                        self.hello = said
                    elif "done" in said:
                        self.answers[said["done"]] = said
                    else:
                        self.events.append(said)
                self.news.notify_all()
            if not line:
                return

    async def _until(self, look, text, within=PATIENCE):
        async def found():
            async with self.news:
                while not look():
                    if self.reader.done():
                        raise Failed(f"the adapter ended before: {text}")
                    await self.news.wait()
                return look()

        try:
            return await asyncio.wait_for(found(), within)
        except asyncio.TimeoutError:
            raise Failed(f"never: {text}; last said: {self.lines[-5:]}") from None

    def post(self, call, **fields):
        """Without waiting for the answer; its number."""
        self.number += 1
        line = json.dumps({"n": self.number, "call": call, **fields})
        self.process.stdin.write(line.encode() + b"\n")
        return self.number

    async def call(self, call, **fields):
        number = self.post(call, **fields)
        answer = await self._until(lambda: self.answers.get(number), f"{call} is answered")
        expect("error" not in answer, f"{call}: {answer.get('error')}")
        expect(not answer.get("unknown"), f"the adapter does not know {call}")
        return answer

    async def event(self, within=PATIENCE, **like):
        """The first event that has these fields."""

        def look():
            return next((e for e in self.events if like.items() <= e.items()), None)

        return await self._until(look, f"an event with {like}", within)

    def has(self, **like):
        return any(like.items() <= event.items() for event in self.events)

    async def acquire(self, id, *keys, **fields):
        """Asks and waits for the grant."""
        await self.call("acquire", id=id, keys=list(keys) or ["k"], **fields)
        return await self.event(granted=id)

    async def check(self, id):
        return (await self.call("check", id=id))["gives"]

    def signal(self, number):
        os.kill(self.process.pid, number)

    async def end_input(self):
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), PATIENCE)

    async def stop(self):
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
                self.signal(signal.SIGKILL)
            await self.process.wait()
        self.reader.cancel()


class Stage:
    """`server` is its program; without a module, that of the devserver."""

    def __init__(self, server, module, adapter, broken=""):
        self.server, self.module, self.adapter = server, module, adapter
        self.environment = {**os.environ, "PYTHONUNBUFFERED": "1", "BROKEN": broken}
        self.ends = contextlib.AsyncExitStack()
        self.clients = []

    async def __aenter__(self):
        self.folder = Path(self.ends.enter_context(tempfile.TemporaryDirectory(prefix="conform-")))
        return self

    async def __aexit__(self, *_):
        await self.ends.aclose()

    async def start_server(self, *options, module=True):
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        server = Server(self, folder) if self.module else Devserver(self, folder)
        self.ends.push_async_callback(server.stop)
        return await server.start(*options, module=module)

    async def start_replica(self, master):
        """One that acknowledges, which it does some time after its link is up."""
        replica = await self.start_server("--replicaof", f"127.0.0.1 {master.port}")
        await eventually(master.has_replica_in_step, "the replica is in step")
        return replica

    async def wire(self, server, certificate=None):
        wire = await Wire(server).start(certificate)
        self.ends.callback(wire.close)
        return wire

    async def raw(self, server):
        raw = await server.raw()
        self.ends.callback(raw.close)
        return raw

    async def client(self, at=None, **options):
        """An adapter; with a server or wire, one that has opened it."""
        process = await asyncio.create_subprocess_exec(
            *self.adapter,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=(self.folder / "stderr").open("ab"),
            limit=1 << 24,
            env=self.environment,
        )
        client = Client(process)
        self.clients.append(client)
        self.ends.push_async_callback(client.stop)
        await client.begin()
        if at is not None:
            await client.call("open", url=f"redis://127.0.0.1:{at.port}", **options)
        return client

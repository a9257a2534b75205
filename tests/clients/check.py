#!/usr/bin/env python3
"""Holds stock clients against what docs/clients.md says of them. `make clients` calls this, when all of them are there.

    tests/clients/check.py SERVER MODULE FOLDER [WORD...]    the clients with one of these words in their names; or all
    tests/clients/check.py --languages [WORD...]             the folders that these need

Each client is driven by a program of this folder, which prints its version and then carries out what it reads, line by line:

    call WORD...    one command, by the client as it comes; prints the reply
    width           prints how many threads or tasks the next one has: eight, or one where the language has none
    pool WORD...    eight times the same by as many threads or tasks, `%` being their number
    lines           the lines of docs/clients.md: a connection that can hold a lock, and asks for `report`; prints the token
    holder WORD...  one command on that connection; prints the reply

A reply is a line: `nil`, or `! ` and the error, or its text. FOLDER has `NAME/run` for each folder here (see scripts/clients.sh).
"""

import queue
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
REDIS_SERVER = MODULE = FOLDER = None  # paths, see main
PATIENCE = 20

# Name in docs/clients.md, folder, program, RESP version (0: the one that it speaks as it comes, there is no other).
CLIENTS = [
    ("redis-py, RESP2", "python", "redis_py.py", 2),
    ("redis-py, RESP3", "python", "redis_py.py", 3),
    ("redis-py asyncio", "python", "redis_py_asyncio.py", 3),
    ("valkey-py, RESP2", "python", "valkey_py.py", 2),
    ("valkey-py, RESP3", "python", "valkey_py.py", 3),
    ("coredis", "python", "coredis_py.py", 0),
    ("GLIDE for Python", "python", "glide_py.py", 3),
    ("ioredis", "node", "ioredis.mjs", 0),
    ("iovalkey", "node", "iovalkey.mjs", 0),
    ("node-redis, RESP2", "node", "node-redis.mjs", 2),
    ("node-redis, RESP3", "node", "node-redis.mjs", 3),
    ("GLIDE for Node.js", "node", "glide.mjs", 3),
    ("redis-rs, multiplexed, RESP2", "rust", "redis_rs multiplexed", 2),
    ("redis-rs, multiplexed, RESP3", "rust", "redis_rs multiplexed", 3),
    ("redis-rs, r2d2, RESP2", "rust", "redis_rs r2d2", 2),
    ("redis-rs, r2d2, RESP3", "rust", "redis_rs r2d2", 3),
    ("redis-rs, bb8, RESP2", "rust", "redis_rs bb8", 2),
    ("redis-rs, bb8, RESP3", "rust", "redis_rs bb8", 3),
    ("redis-rs, deadpool, RESP2", "rust", "redis_rs deadpool", 2),
    ("redis-rs, deadpool, RESP3", "rust", "redis_rs deadpool", 3),
    ("fred, RESP2", "rust", "fred", 2),
    ("fred, RESP3", "rust", "fred", 3),
    ("rustis", "rust", "rustis", 0),
    ("hiredis, RESP2", "c", "hiredis", 2),
    ("hiredis, RESP3", "c", "hiredis", 3),
    ("go-redis, RESP2", "go", "goredis", 2),
    ("go-redis, RESP3", "go", "goredis", 3),
    ("redigo", "go", "redigo", 0),
    ("rueidis, RESP2", "go", "rueidis", 2),
    ("rueidis, RESP3", "go", "rueidis", 3),
    ("redis-rb", "ruby", "redis_rb.rb", 0),
    ("redis-client, RESP2", "ruby", "redis_client.rb", 2),
    ("redis-client, RESP3", "ruby", "redis_client.rb", 3),
    ("phpredis", "php", "phpredis.php", 0),
    ("predis", "php", "predis.php", 0),
    ("Perl Redis", "perl", "redis.pl", 0),
    ("Perl Redis::Fast", "perl", "redis_fast.pl", 0),
    ("lua-redis", "lua", "lua_redis.lua", 0),
]


class Wire:
    """The operator's own connection."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")

    def __call__(self, *words):
        parts = [str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
        return self.read()

    def read(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server has gone")
        kind, rest = line[:1], line[1:-2]
        if kind == b"*":
            return [self.read() for _ in range(max(0, int(rest)))]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2].decode()
        return int(rest) if kind == b":" else rest.decode()

    def settle(self):
        """Until what the server does a moment later is done, and has arrived."""
        for _ in range(3):
            time.sleep(0.01)
            self("PING")


class Server:
    def __enter__(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.folder = tempfile.TemporaryDirectory(prefix="tether-clients-")
        self.log = open(Path(self.folder.name) / "log", "w")
        words = [REDIS_SERVER, "--port", self.port, "--dir", self.folder.name, "--save", "", "--loadmodule", MODULE]
        self.process = subprocess.Popen([str(word) for word in words], stdout=self.log, stderr=self.log)
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.operator = Wire(self.port)
                self.operator("PING")
                return self
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()
        self.folder.cleanup()


class Client:
    """A program of this folder."""

    def __init__(self, server, row):
        _, folder, program, protocol = row
        program, *pool = program.split()
        words = [FOLDER / folder / "run", program, "127.0.0.1", server.port, protocol, *pool]
        self.process = subprocess.Popen(
            [str(word) for word in words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            cwd=HERE / folder,
        )
        self.said, self.noise = queue.Queue(), []
        for source, keep in [(self.process.stdout, self.said.put), (self.process.stderr, self.noise.append)]:
            threading.Thread(target=self.listen, args=(source, keep), daemon=True).start()
        self.version = self.line()

    @staticmethod
    def listen(source, keep):
        for line in source:
            keep(line.rstrip("\n"))

    def line(self):
        try:
            return self.said.get(timeout=PATIENCE)
        except queue.Empty:
            return "! no answer " + " ".join(self.noise)[-300:]

    def send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # It has ended, so that there is no answer.

    def ask(self, line, replies=1):
        self.send(line)
        said = [self.line()]
        while len(said) < replies and not said[-1].startswith("! no answer"):
            said.append(self.line())
        return said

    def one(self, line):
        return self.ask(line)[0]

    def close(self):
        self.process.kill()
        self.process.wait()


class Wrong(Exception):
    pass


def expect(what, found, wanted):
    if found != wanted:
        raise Wrong(f"{what}: {found!r} in place of {wanted!r}")


def is_token(text):
    return re.fullmatch(r"\d{15,16}", text) is not None


# ---- the checks: each has a server, and starts its client -----------------------------------------------------------


def once(server, start):
    """Eight threads on what the client shares among them get a lock once; nobody else is told that he has it."""
    client = start()
    width = int(client.one("width"))
    for options, granted in [("", 1), (" WAIT 20", 0)]:
        said = client.ask(f"pool LOCK.ACQUIRE once{options}", width)
        tokens = [text for text in said if is_token(text)]
        expect(f"grants of {said}", len(tokens), granted)
        for text in said:
            if not is_token(text) and text != "nil" and not (text.startswith("!") and "DEADLOCK" in text):
                raise Wrong(f"{text!r} in place of null or DEADLOCK")
    info = server.operator("LOCK.INFO", "once")
    expect("holders", info[info.index("holder-count") + 1], 1)
    said = client.ask("pool SETTP temporary %", width)
    expect("temporary keys", sorted(said), ["0"] * (width - 1) + ["1"])


HARMS = {
    "deleted": lambda operator: operator("DEL", "temporary", "lock"),
    "lease": lambda operator: None,
    "expired": lambda operator: [operator("PEXPIRE", key, 10) for key in ("temporary", "lock")],
    "flushed": lambda operator: operator("FLUSHALL"),
    "overwritten": lambda operator: operator("SET", "lock", "other"),
}


def in_step(server, start):
    """Answers belong to their questions, whatever becomes of what the connection holds: while it is idle, and while it waits
    for an answer. It stays open, with whatever else it holds."""
    operator = server.operator
    for harm, do in HARMS.items():
        for busy in (True, False):
            client = start()  # with one connection, that is the one
            lease = " LEASE 150" if harm == "lease" else ""
            expect("SETTP", client.one("call SETTP temporary me"), "1")
            token = client.one("call LOCK.ACQUIRE lock" + lease)
            expect(f"{token}, a token", is_token(token), True)
            holder = holder_of(operator, "temporary")
            with waiting(client, busy, f"{harm}, while it waits"):
                do(operator)
                if harm in ("lease", "expired"):
                    eventually("the lock ends", lambda: not operator("EXISTS", "lock"))
            operator.settle()
            answers_fit(client, harm)
            if not operator("CLIENT", "LIST", "ID", holder):
                raise Wrong(f"{harm}: the client has closed the connection, and with it ends whatever else that holds")
            operator("FLUSHALL")
            answers_fit(client, f"{harm}, and flushed")
            client.close()


@contextmanager
def waiting(client, busy, what):
    """Meanwhile the client waits for the answer to a command, if it is busy."""
    if busy:
        client.send("call BLPOP nothing 0.25")
        time.sleep(0.1)
    yield
    if busy:
        expect(what, client.line(), "nil")


def eventually(what, look):
    until = time.monotonic() + PATIENCE
    while not look():
        if time.monotonic() > until:
            raise Wrong(f"not within {PATIENCE} s: {what}")
        time.sleep(0.005)


def answers_fit(client, when):
    width = int(client.one("width"))
    for turn in range(2):
        expect(when, client.one(f"call ECHO a{turn}"), f"a{turn}")
        expect(when, client.ask("pool ECHO b%", width), [f"b{number}" for number in range(width)])
        expect(when, client.one("call GET nothing"), "nil")
        expect(when, client.one("call STRLEN nothing"), "0")


def pushes(server, start):
    """Whether the client stays in step, and keeps its connection, when the server pushes what it was asked to push."""
    operator, closed = server.operator, False
    for busy in (True, False):
        client = start()
        if client.one("call WATCHEX watched") != "NOEXIST":
            return "refused"
        try:
            with waiting(client, busy, "pushed, while it waits"):
                operator("SET", "watched", 1)
                operator("DEL", "watched")
            operator.settle()
            answers_fit(client, "pushed")
        except Wrong:
            return "out of step"
        operator.settle()
        closed = closed or "tether_watches:1" not in operator("INFO", "tether")
        client.close()
        eventually("its watch ends", lambda: "tether_watches:0" in operator("INFO", "tether"))
    return "closes" if closed else "in step"


def patience(server, start):
    """Whether the client, as it comes, has the patience for a WAIT of six seconds, and what becomes of its place in the line
    where it has not."""
    client, operator = start(), server.operator
    operator("LOCK.ACQUIRE", "report")
    begin = time.monotonic()
    client.send("call LOCK.ACQUIRE report WAIT 6000")
    eventually("it waits", lambda: waiters_of(operator, "report"))
    first = waiters_of(operator, "report")
    time.sleep(max(0, begin + 5.6 - time.monotonic()))
    last = waiters_of(operator, "report")
    if client.said.empty():
        return "waits" if last == first else "asks again"
    return "gives up, stays in line" if last == first else "gives up"


def killed(server, start):
    """What a user notices of a killed connection whose lock is gone."""
    client, operator = start(), server.operator
    expect("a token", is_token(client.one("call LOCK.ACQUIRE report")), True)
    kill_the_holder(operator)
    time.sleep(0.5)  # for those that notice by themselves
    if not client.one("call ECHO first").startswith("!"):
        return "nothing"
    time.sleep(1.5)
    return "errors" if client.one("call ECHO second").startswith("!") else "an error"


def kill_the_holder(operator):
    operator("CLIENT", "KILL", "ID", holder_of(operator, "report"))
    eventually("the lock ends with its connection", lambda: not operator("EXISTS", "report"))


def holder_of(operator, key):
    """The id of the connection that holds a lock."""
    info = operator("LOCK.INFO", key)
    holder = info[info.index("holders") + 1][0]
    return holder[holder.index("client") + 1]


def waiters_of(operator, key):
    """The ids of the connections that wait for a lock."""
    info = operator("LOCK.INFO", key)
    waiters = info[info.index("waiters") + 1]
    return [waiter[waiter.index("client") + 1] for waiter in waiters]


def lines(server, start):
    """The lines of docs/clients.md: they take the lock, wait for it as long as they say, and notice when it is gone."""
    operator = server.operator
    client, other = start(), start()
    token = client.one("lines")
    if not is_token(token):
        raise Wrong(f"the lines give {token!r}")
    begin = time.monotonic()
    expect("after six seconds", other.one("lines"), "nil")
    if time.monotonic() - begin < 5.9:
        raise Wrong("the wait was shorter than WAIT")
    expect("the holder", client.one("holder LOCK.CANCEL report"), token)
    kill_the_holder(operator)
    before = connections(operator)
    time.sleep(0.5)
    said = [client.one("holder LOCK.CANCEL report") for _ in range(2)]
    time.sleep(0.5)
    if all(text.startswith("!") for text in said) and connections(operator) == before:
        return "stays closed"
    expect("the last answer", said[-1], "0")
    return "an error, then connects anew" if said[0].startswith("!") else "connects anew"


def connections(operator):
    return int(re.search(r"total_connections_received:(\d+)", operator("INFO", "stats"))[1])


CHECKS = [once, in_step, pushes, patience, killed, lines]
NAMES = ["once", "in step", "pushes", "WAIT, by default", "killed, by default", "killed, with the lines"]


def check(row):
    """The row of the table: the client, its version, and what each check found."""
    found, failures = [], []
    version = "?"
    for look in CHECKS:
        clients = []
        with Server() as server:

            def start(clients=clients):
                clients.append(Client(server, row))
                return clients[-1]

            try:
                found.append(look(server, start) or "yes")
            except (Wrong, ValueError, OSError) as wrong:
                found.append("NO")
                failures.append(f"{row[0]}, {look.__name__}: {wrong}")
            finally:
                version = clients[0].version if clients else version
                for client in clients:
                    client.close()
    return [row[0], version, *found], failures


def documented():
    """The rows of the table in docs/clients.md, by client."""
    text = (HERE.parent.parent / "docs/clients.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row for row in rows}


def main():
    global REDIS_SERVER, MODULE, FOLDER
    only_languages = sys.argv[1] == "--languages"
    wanted = sys.argv[2 if only_languages else 4 :]
    rows = [row for row in CLIENTS if not wanted or any(word in row[0] for word in wanted)]
    if not rows:
        sys.exit(f"no client is called {wanted}")
    if only_languages:
        print(*sorted({row[1] for row in rows}))
        return
    REDIS_SERVER, MODULE, FOLDER = (Path(argument).resolve() for argument in sys.argv[1:4])
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(check, rows))
    failures = [failure for _, failures in results for failure in failures]
    table = [["client", "version", *NAMES]] + [row for row, _ in results]
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    print(subprocess.run([REDIS_SERVER, "--version"], capture_output=True, text=True).stdout.strip())
    for row in table:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
    said = documented()
    for row, _ in results:
        shown = said.get(row[0], ["nothing"])
        if shown[2:] != row[4:]:
            failures.append(f"{row[0]}: docs/clients.md says {shown}, and it is {row[4:]}")
        elif shown[1] != row[1]:
            print(f"note: docs/clients.md is about {row[0]} {shown[1]}, and this is {row[1]}")
    for failure in failures:
        print("FAILED:", failure)
    passed = sum(cell != "NO" for row, _ in results for cell in row[2:])
    print(f"test result: {'FAILED' if failures else 'ok'}. {passed} passed; {len(failures)} failed")
    sys.exit(1 if failures else 0)


main()

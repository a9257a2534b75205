"""The steps of docs/operations.md and docs/tasks.md, each run as it is written there, on a real server that has the symptom.

    python3 tests/runbook/run.py SERVER REDIS-CLI MODULE TETHER [NAME...]

SERVER, REDIS-CLI and TETHER are programs, MODULE the module; NAMEs choose tests. scripts/runbook.sh finds them. The last line is
in cargo's form.
"""

import atexit
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from resp import PATIENCE_S, Connection, eventually

PROJECT = Path(__file__).parent.parent.parent
RUNBOOK = (PROJECT / "docs/operations.md").read_text().split("\n## Runbook\n")[1].split("\n## ")[0]
TASKS = (PROJECT / "docs/tasks.md").read_text()
# Of both the sections have headings of one level here.
PAGE = RUNBOOK + re.sub("^## ", "### ", TASKS, flags=re.M)
SERVER, CLIENT, MODULE, TETHER = (os.path.abspath(path) for path in sys.argv[1:5])

# The sections with blocks of steps, and how many each has. The tests below run all of them.
SECTIONS = {
    "A lock stays taken": 5,
    "Clients wait, and you do not know for which lock": 1,
    "Locks are lost": 1,
    "After a failover": 2,
    "Out of memory": 1,
    "Load the module into a running server": 1,
    "Upgrade": 3,
    "Downgrade": 1,
    "Remove": 3,
}

# The commands that no test here runs, by how they begin.
NOT_RUN = {
    "apt ": "the package is not installed on this machine",
    "systemctl enable ": "nor is its service",
    "tether metrics ": "the tests of the command line run it",
    "tether --version": "likewise",
    "tether run": "a name on these pages",
    "tether is ": "the server's log says so",
    "tether was ": "an error says so",
    "redis-cli -h <host> ": "what the word redis-cli stands for",
}
# What the tests have run, as it is written on the pages.
RUN: set[str] = set()

# ---- the page ----


def section(heading: str) -> str:
    return PAGE.split(f"\n### {heading}\n")[1].split("\n##")[0]


def blocks(heading: str, kind: str = "sh") -> list[list[str]]:
    """The lines of a section's blocks."""
    return [block.split("```")[0].splitlines() for block in section(heading).split(f"```{kind}\n")[1:]]


def bare(line: str) -> str:
    """A command without its remark."""
    return line.split(" #")[0].rstrip()


def commands() -> list[str]:
    """All commands of the pages, in blocks, tables and sentences. Of "Remove" a server needs one of two ways, which has a test."""
    in_blocks = [bare(line) for heading in SECTIONS if heading != "Remove" for block in blocks(heading) for line in block]
    pieces = [" ".join(piece.split()) for piece in re.sub("```.*?```", "", PAGE, flags=re.S).split("`")[1::2]]
    is_command = re.compile(r"(redis-cli|tether|grep|sed|apt|systemctl|[A-Z]+=\S+ tether) \S")
    return in_blocks + [piece for piece in pieces if is_command.match(piece)]


def in_row(heading: str, first: str) -> list[str]:
    """The commands in the row of a section's table that begins so."""
    row = next(line for line in section(heading).splitlines() if line.startswith("| " + first))
    commands = [piece for piece in row.split("`")[1::2] if piece.startswith("redis-cli ")]
    assert commands, row
    return commands


# ---- servers ----


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Daemon:
    """A server with files where Debian's package has them, but in a folder of its own."""

    def __init__(self, *lines: str, module: bool = True):
        self.folder = tempfile.TemporaryDirectory(prefix="tether-runbook-")
        self.path = Path(self.folder.name)
        self.port = free_port()
        for folder in ["lib", "data"]:
            (self.path / folder).mkdir()
        shutil.copy(MODULE, self.path / "lib/libtether.so")
        shutil.copy(PROJECT / "packaging/tether.conf", self.path)
        page = blocks("Load the module when a server starts", "conf")[1] if module else []
        fixed = [
            f"port {self.port}",
            "bind 127.0.0.1",
            f"dir {self.path}/data",
            'save ""',
            "enable-module-command yes",
            "repl-diskless-sync-delay 0",
        ]
        self.conf.write_text("".join(self.meant(line) + "\n" for line in [*page, *fixed, *lines]))
        self.boot()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.folder.cleanup()

    @property
    def conf(self) -> Path:
        return self.path / "redis.conf"

    def meant(self, text: str) -> str:
        """The page's paths are in this folder."""
        folders = {"/usr/lib/tether": "/lib", "/var/lib/redis": "/data"}
        for theirs, ours in folders.items():
            text = text.replace(theirs, f"{self.path}{ours}")
        text = text.replace("/usr/bin/redis-server", SERVER)
        return re.sub("/etc/tether|/etc/redis|/run/redis", str(self.path), text)

    def boot_with(self, conf: str):
        self.stop()
        self.conf.write_text(conf)
        self.boot()

    def boot(self):
        with (self.path / "log").open("ab") as log:
            self.process = subprocess.Popen([SERVER, self.conf], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        atexit.register(self.process.kill)
        eventually("a server that answers", lambda: self.answers())

    def answers(self) -> bool:
        assert self.process.poll() is None, (self.path / "log").read_text()
        try:
            return Connection(self.port).run("PING") == "PONG"
        except (OSError, AssertionError):
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE_S)

    def connect(self) -> Connection:
        return Connection(self.port)

    def say(self, command: str):
        return self.connect().run(command)


class Operator:
    """A shell in which the page's words stand for what the test has made."""

    def __init__(self, server: Daemon, words: dict[str, object] | None = None, **hosts: Daemon):
        self.server, self.words = server, words or {}
        self.bin = server.path / "bin"
        self.bin.mkdir(exist_ok=True)
        cases = "".join(f"{host}) port={daemon.port}; shift 2 ;; " for host, daemon in hosts.items())
        choice = f'[ "$1" != -h ] || case $2 in {cases}esac\n' if cases else ""
        programs = {
            "redis-cli": f'port={server.port}\n{choice}exec {CLIENT} -e -h 127.0.0.1 -p $port "$@"',
            "redis-server": f'exec {SERVER} "$@"',
            # There need not be a user redis.
            "runuser": 'shift 3\nexec "$@"',
            "chown": "",
        }
        for name, script in programs.items():
            (self.bin / name).write_text(f"#!/bin/sh\n{script}\n")
            (self.bin / name).chmod(0o755)
        if not (self.bin / "tether").exists():
            (self.bin / "tether").symlink_to(TETHER)

    def attempt(self, line: str) -> tuple[int, str]:
        RUN.add(bare(line))
        for word, meaning in self.words.items():
            line = line.replace(word, str(meaning))
        line = self.server.meant(line)
        assert not re.search(" <[a-z]+>", bare(line)), f"nothing is meant by {line}"
        environment = os.environ | {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "TETHER_URL": f"redis://127.0.0.1:{self.server.port}",
        }
        done = subprocess.run(
            line,
            shell=True,
            cwd=self.server.path,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout

    def run(self, line: str) -> str:
        """One line, which must succeed. The system's service manager is played by the server."""
        line = bare(line)
        RUN.add(line)
        service = re.fullmatch("systemctl (start|stop|restart) redis-server", line)
        if service:
            if service[1] != "start":
                self.server.stop()
            if service[1] != "stop":
                self.server.boot()
            return ""
        code, said = self.attempt(line)
        if line.startswith("tether doctor"):
            # It may have something to say of a server without replicas or files.
            assert "the module is loaded" in said, said
            return said
        assert code == 0, f"{line}: {code}: {said}"
        return said

    def run_all(self, lines: list[str]) -> list[str]:
        return [self.run(line) for line in lines]


def session_of(server: Daemon) -> str:
    """The id of the only session."""
    listed = Operator(server).run("tether sessions --json").splitlines()[0]
    return str(json.loads(listed)["id"])


# ---- the runbook ----


def test_all_steps_are_run_here():
    headings = re.findall(r"^### (.+)$", PAGE, re.M)
    counted = {heading: len(blocks(heading)) for heading in headings}
    assert {heading: count for heading, count in counted.items() if count} == SECTIONS


def test_a_lock_stays_taken():
    for block in blocks("A lock stays taken"):
        with Daemon() as server:
            holder, waiter = server.connect(), server.connect()
            is_plain = any("TYPE" in line for line in block)
            words: dict[str, object] = {}
            if is_plain:
                holder.run("SET report value")
            else:
                if any("SESSION.KILL" in line for line in block):
                    holder.run("SESSION.START")
                    words["<session>"] = session_of(server)
                assert isinstance(holder.run("LOCK.ACQUIRE report"), int)
                waiter.run("LOCK.ACQUIRE report WAIT 0 PUSH")
                words["<client>"] = holder.run("CLIENT ID")
            Operator(server, words).run_all(block)
            if is_plain:
                assert isinstance(waiter.run("LOCK.ACQUIRE report"), int)
            else:
                assert "report" in waiter.push()


def test_clients_wait():
    with Daemon() as server:
        holder, waiter = server.connect(), server.connect()
        holder.run("LOCK.ACQUIRE report")
        waiter.run("LOCK.ACQUIRE report WAIT 0 PUSH")
        for said in Operator(server).run_all(blocks("Clients wait, and you do not know for which lock")[0]):
            assert "report" in said, said


def test_locks_are_lost():
    with Daemon("maxmemory-policy allkeys-lru") as server:
        holder = server.connect()
        holder.run("LOCK.ACQUIRE report")
        server.say("DEL report")
        first, *others = Operator(server).run_all(blocks("Locks are lost")[0])
        assert "lost: deleted 1" in first, first
        assert all("report" in said and "deleted" in said for said in others), others
        for line in ["COLUMNS=200 tether log", "tether log --json"]:
            assert "report" in Operator(server).run(line)
        Operator(server).run_all(in_row("Locks are lost", "`evicted`"))
        assert "noeviction" in server.say("CONFIG GET maxmemory-policy")


def test_nobody_gets_a_lock():
    heading = "Nobody gets a lock"
    why = section(heading).split("`")[1]
    assert why == "tether why report"

    def refused(server: Daemon, error: str, cause: str):
        reply = server.say("LOCK.ACQUIRE report")
        assert str(reply).startswith("-" + error), reply
        assert cause in Operator(server).run(why)

    with Daemon() as master, Daemon(f"replicaof 127.0.0.1 {master.port}") as replica:
        eventually("the link", lambda: "master_link_status:up" in replica.say("INFO replication"))
        refused(replica, "READONLY", "replica")
        assert str(master.port) in Operator(replica).run_all(in_row(heading, "`READONLY`"))[0]
    with Daemon("min-replicas-to-write 1") as server:
        refused(server, "NOREPLICAS", "min-replicas-to-write")
        Operator(server).run_all(in_row(heading, "`NOREPLICAS`"))
        assert isinstance(server.say("LOCK.ACQUIRE report"), int)
    with Daemon("save 3600 1") as server:
        (server.path / "data/dump.rdb").mkdir()
        server.say("SET key value")
        server.say("BGSAVE")
        eventually("a failed save", lambda: "rdb_last_bgsave_status:err" in server.say("INFO persistence"))
        refused(server, "MISCONF", "MISCONF")
        (server.path / "data/dump.rdb").rmdir()
        Operator(server).run_all(in_row(heading, "`MISCONF`"))
        eventually("a grant", lambda: isinstance(server.say("LOCK.ACQUIRE report"), int))
    with Daemon("tether.quarantine 3600000") as server:
        refused(server, "QUARANTINE", "quarantine")
        assert "quarantine-left-ms" in Operator(server).run_all(in_row(heading, "`QUARANTINE`"))[0]
    with Daemon() as server:
        server.say("CLIENT PAUSE 3600000 WRITE")
        waiter = server.connect()
        waiter.send("LOCK.ACQUIRE report")
        assert "PAUSE" in Operator(server).run(why)
        Operator(server).run_all(in_row(heading, "none, clients wait | `CLIENT PAUSE`"))
        assert isinstance(waiter.reply(), int)


def test_after_a_failover():
    heading = "After a failover"
    with Daemon() as master, Daemon() as replica:
        replica.say(f"REPLICAOF 127.0.0.1 {master.port}")
        session, plain = master.connect(), master.connect()
        session.run("SESSION.START GRACE 3600000")
        session.run("LOCK.ACQUIRE report")
        plain.run("SETTP leader ann")
        # WAIT alone also counts a replica that has yet to load what it is sent.
        eventually("the link", lambda: "master_link_status:up" in replica.say("INFO replication"))
        assert plain.run("WAIT 1 60000") == 1
        replica.say("REPLICAOF NO ONE")
        words = {"<session>": session_of(replica), "<master>": "127.0.0.1", "6379": replica.port}
        operator = Operator(replica, words, former=master)
        look, follow = blocks(heading)
        said = dict(zip(look, operator.run_all(look)))
        of = lambda command: next(text for line, text in said.items() if line.startswith(command))
        assert "master" in of("redis-cli ROLE")
        assert "detached" in of("tether sessions"), of("tether sessions")
        assert "promoted" in of("tether log"), of("tether log")
        assert "tether_records_refused_total:0" in of("redis-cli INFO tether")
        assert replica.say("LOCK.ACQUIRE report") is None
        session.close()
        detached = in_row("A number rises", "`tether_sessions_detached`")
        eventually("a session without a client", lambda: "report" in operator.run_all(detached)[0])
        kill = next(piece for piece in section(heading).split("`")[1::2] if "SESSION.KILL" in piece)
        operator.run(kill)
        assert isinstance(replica.say("LOCK.ACQUIRE report"), int)
        operator.run_all(follow)
        assert "replicaof" in master.conf.read_text()
        assert "replicaof" not in replica.conf.read_text()
        eventually(
            "the former master's link",
            lambda: "master_link_status:up" in master.say("INFO replication"),
        )


def test_out_of_memory():
    with Daemon() as server:
        holder = server.connect()
        holder.run("LOCK.ACQUIRE mine LEASE 600000")
        server.say("CONFIG SET maxmemory 1")
        assert str(server.say("LOCK.ACQUIRE report")).startswith("-OOM")
        assert "OOM" in Operator(server).run("tether why report")
        assert holder.run("LOCK.EXTEND mine 600000") == 1
        assert holder.run("LOCK.RELEASE mine") == 0
        Operator(server).run_all(in_row("Out of memory", "`mem_clients_normal`, with few"))
        Operator(server).run_all(blocks("Out of memory")[0])
        assert isinstance(server.say("LOCK.ACQUIRE report"), int)


def test_pushes_are_refused():
    heading = "Pushes are refused"
    with Daemon("tether.private-functions never") as server:
        refusal = server.say("WATCHEX report")
        assert refusal.startswith("-ERR pushes are off: tether.private-functions is never"), refusal
        assert "tether.private-functions is never" in (server.path / "log").read_text()
        assert "never" in next(line for line in server.say("INFO tether").splitlines() if "private_functions" in line)
        assert "pushes" in Operator(server).attempt("tether doctor")[1]
        Operator(server).run_all(in_row(heading, "`tether.private-functions is never`"))
        assert "NOEXIST" in server.say("WATCHEX report")
        # This server is known, and qualifies all the same.
        qualify = next(piece for piece in section(heading).split("`") if piece.startswith("tether qualify --server"))
        operator = Operator(server, {"tether qualify": f"tether qualify --module {MODULE}"})
        line = next(line for line in operator.run(qualify).splitlines() if line.startswith("tether."))
        assert re.fullmatch("tether.qualified [0-9a-f]+", line), line
        assert server.say(f"CONFIG SET {line}") == "OK"


# ---- tasks ----


def test_the_module_is_loaded_when_a_server_starts():
    heading = "Load the module when a server starts"
    saves, advised = blocks(heading, "conf")
    assert saves == ["save 3600 1", "save 300 100", "save 60 10000"]
    with Daemon(module=False) as server:
        advised = [server.meant(line) for line in advised]
        server.boot_with("\n".join([server.conf.read_text().replace('save ""\n', ""), *saves, *advised, ""]))
        operator = Operator(server)
        for _ in range(2):
            assert "3600 1 300 100 60 10000" in operator.run("redis-cli CONFIG GET save")
            assert isinstance(server.say("LOCK.ACQUIRE report"), int)
            server.say("CONFIG REWRITE")
            operator.run("systemctl restart redis-server")


def test_the_module_is_loaded_into_a_running_server():
    with Daemon("appendonly yes", module=False) as server:
        # As Debian's file, it says nothing of the times of saving.
        server.boot_with(server.conf.read_text().replace('save ""\n', ""))
        saves = server.say("CONFIG GET save")
        # A setting that a rewrite writes down, since it is not at its default.
        operator = Operator(server, {"tether.peer-timeout 10000": "tether.peer-timeout 12000"})
        load, *others = blocks("Load the module into a running server")[0]
        operator.run(load)
        code, said = operator.attempt("tether doctor")
        assert code == 1 and "the configuration file does not load it" in said and "CONFIG REWRITE" in said, said
        operator.run_all(others)
        assert operator.attempt("tether doctor")[0] == 0
        assert isinstance(server.say("LOCK.ACQUIRE report"), int)
        server.stop()
        server.boot()
        assert isinstance(server.say("LOCK.ACQUIRE report"), int)
        assert "12000" in server.say("CONFIG GET tether.peer-timeout")
        assert "tether.conf" in server.conf.read_text()
        assert server.say("CONFIG GET save") == saves


def test_a_server_and_its_replica_are_upgraded_and_one_goes_back():
    with Daemon() as master, Daemon(f"replicaof 127.0.0.1 {master.port}") as replica:
        at_master, at_replica = Operator(master, replica=replica), Operator(replica)
        copy, restart, hand_over = blocks("Upgrade")
        library = copy + restart
        for server in [master, replica]:
            for name in ["libtether.so", "libtether.so.former"]:
                shutil.copy(MODULE, server.path / name)

        def inode(server: Daemon) -> int:
            return (server.path / "lib/libtether.so").stat().st_ino

        before = inode(replica)
        at_replica.run_all(library)
        assert inode(replica) != before, "the library was overwritten in place"
        up = lambda: "master_link_status:up" in at_master.run(hand_over[0])
        eventually("the replica's link", up)
        eventually("a replica that is online", lambda: "state=online" in master.say("INFO replication"))
        eventually("a hand-over", lambda: at_master.attempt(hand_over[1])[0] == 0)
        eventually("the hand-over's end", lambda: "slave" in at_master.run(hand_over[2]))
        # Of either, both are named: doctor goes from the master to its replica.
        roles = ["restarts as a replica", "restarts as a master"]
        assert all(role in at_replica.run("tether doctor") for role in roles)
        at_master.run_all(hand_over[3:])
        assert not any(role in at_replica.run("tether doctor") for role in roles)
        at_master.run_all(library)
        assert "slave" in at_master.run("redis-cli ROLE"), "two masters, which grant a lock twice"
        assert "master" in at_replica.run("redis-cli ROLE")

        setting = "tether.log-max-len"
        replica.say(f"CONFIG SET {setting} 7")
        replica.say("CONFIG REWRITE")
        files = [replica.conf, replica.path / "tether.conf"]
        assert all(setting in file.read_text() for file in files)
        at_replica.run_all(blocks("Downgrade")[0])
        assert not any(setting in file.read_text() for file in files)
        assert "master" in at_replica.run("redis-cli ROLE")
        assert not (replica.path / "lib/libtether.so.new").exists()


def test_the_module_is_removed():
    alone, beside, migration = blocks("Remove")
    all_databases = [line.replace("for db in 0;", "for db in 0 3;") for line in migration]
    assert all_databases != migration
    with Daemon("appendonly yes") as server:
        server.conf.chmod(0o640)
        server.say("SET key value")
        odd = '"a key with \' and \\""'
        server.say(f"SET {odd} value")
        assert server.say("SETTP lock ann") == 1
        eventually("the end of the lock", lambda: server.say("EXISTS lock") == 0)
        elsewhere = server.connect()
        elsewhere.run("SELECT 3")
        elsewhere.run("LOCK.ACQUIRE report")
        assert "report" not in Operator(server).run("tether ls"), "it sees all databases: the page need not forbid it"
        elsewhere.run("LOCK.RELEASE report")
        if re.search("redis_version:7.0", server.say("INFO server")) and "valkey_version" not in server.say("INFO server"):
            port = free_port()
            operator = Operator(server, {"6390": port})
            ping = "redis-cli -p 6390 PING"
            operator.run("redis-cli -n 3 SET key elsewhere")
            operator.run_all(beside)
            assert (server.path / "redis.conf.new").stat().st_mode & 0o777 == 0o640, "others read its passwords"
            try:
                eventually("the second server", lambda: operator.attempt(ping)[0] == 0)
                holder = server.connect()
                holder.run("LOCK.ACQUIRE report")
                _, said = operator.attempt(migration[0])
                assert said.strip() in section("Remove").replace("\n", " "), said
                holder.run("LOCK.RELEASE report")
                operator.run_all(all_databases)
            finally:
                operator.attempt("redis-cli -p 6390 SHUTDOWN NOSAVE")
        else:
            looked = next(at for at, line in enumerate(alone) if line.startswith("redis-cli INFO tether"))
            assert alone[looked + 1] == "redis-cli SAVE", "what is taken between the two keeps the server from starting"
            operator, holder = Operator(server), server.connect()
            kept = ("tether_held_keys", "tether_sessions_attached", "tether_sessions_detached")
            assert all(f"`{field}`" in section("Remove") for field in kept)

            def left():
                said = operator.run(alone[looked])
                return [int(re.search(rf"^{field}:(\d+)", said, re.MULTILINE)[1]) for field in kept]

            holder.run("SELECT 3")
            holder.run("SESSION.START")
            assert left() == [0, 1, 0]
            holder.run("LOCK.ACQUIRE report")
            assert left() == [1, 1, 0]
            holder.run("SESSION.END")
            assert left() == [0, 0, 0]
            operator.run_all(alone)
            # A server that writes its first append-only file refuses to stop.
            is_written = re.compile("aof_rewrite_in_progress:0\r?\naof_rewrite_scheduled:0")
            eventually("the file", lambda: is_written.search(server.say("INFO persistence")))
        assert "unknown command" in server.say("LOCK.SERVER")
        assert server.say("GET key") == server.say(f"GET {odd}") == "value"
        server.stop()
        server.boot()
        assert server.say("GET key") == "value"


def test_the_package_stays_while_a_server_needs_it():
    with Daemon() as server:
        script = server.path / "prerm"
        folders = "/etc/redis /etc/valkey /etc/redis.conf /etc/valkey.conf"
        text = (PROJECT / "packaging/prerm").read_text()
        assert folders in text
        script.write_text(text.replace(folders, str(server.path / "data")))
        conf = server.path / "data/redis.conf"
        removal = next(line for line in blocks("Remove")[0] if "loadmodule" in line)
        removal = removal.replace("/etc/redis/redis.conf", str(conf))
        operator = Operator(server)
        advised = blocks("Load the module when a server starts", "conf")[1]
        for line in [*(line for line in advised if "tether" in line), "tether.quarantine 3000"]:
            conf.write_text(f"port 6379\n{line}\n# tether.log-max-len 7\n")
            code, said = operator.attempt("sh prerm remove")
            assert code == 1 and f"{conf}:2:{line}\n" in said, said
            operator.run(removal)
            assert operator.attempt("sh prerm remove") == (0, "")


def test_a_server_with_the_module_does_not_start():
    text = section("A server with the module does not start")
    load, include, _ = blocks("Load the module when a server starts", "conf")[1]
    cases = [
        ("Can't load module from", [load, load]),
        ("Module Configuration detected without loadmodule", [include]),
        ("Module Configuration detected without loadmodule", [load, include, "tether.quarantin 3000"]),
        ("Fatal error, can't open config file", [load, include.replace(".conf", ".gone")]),
    ]
    for said, lines in cases:
        assert said in text, f"no row for {said}"
        with Daemon(module=False) as server:
            server.stop()
            server.conf.write_text("".join(server.meant(line) + "\n" for line in lines) + server.conf.read_text())
            done = subprocess.run(
                [SERVER, server.conf],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
            )
            assert done.returncode != 0 and said in done.stdout, f"{said}: {done.stdout}"
            if said.startswith("Can't load"):
                assert "tether is loaded already" in done.stdout, done.stdout
                look = next(piece for piece in text.split("`") if piece.startswith("grep "))
                assert len(Operator(server).run(look).splitlines()) == 2
            if "tether.quarantin 3000" in lines:
                row = next(line for line in text.splitlines() if said in line)
                look = next(piece for piece in row.split("`") if piece.startswith("grep "))
                assert "tether.quarantin 3000" in Operator(server).run(look)


def test_a_module_with_a_command_of_the_same_name():
    heading = "A server with the module does not start"
    assert "the server refuses ..., which another module may have" in section(heading)
    with Daemon(module=False) as server:
        namesake = server.path / "namesake.so"
        source = PROJECT / "tests/runbook/namesake.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", namesake, source], check=True)
        assert server.say(f"MODULE LOAD {namesake}") == "OK"
        refusal = server.say(f"MODULE LOAD {server.path}/lib/libtether.so")
        assert str(refusal).startswith("-ERR")
        said = "the server refuses the command settp, which another module may have"
        assert said in (server.path / "log").read_text()
        assert server.say("PING") == "PONG"


def test_each_command_was_run():
    """The last one; without the others it has nothing to look at."""
    left = {command for command in commands() if not any(command.startswith(start) for start in NOT_RUN)}
    # A sentence may name a command without all of what a block gives it.
    left = {command for command in left if not any(run.startswith(command) for run in RUN)}
    assert not left, left


def main() -> int:
    tests = {name: test for name, test in globals().items() if name.startswith("test_")}
    chosen = [name for name in tests if not sys.argv[5:] or any(word in name for word in sys.argv[5:])]
    if chosen != list(tests) and "test_each_command_was_run" in chosen:
        chosen.remove("test_each_command_was_run")
    failed = 0
    for name in chosen:
        try:
            tests[name]()
            print(f"{name} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"{name} ... FAILED\n{traceback.format_exc()}", flush=True)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {len(chosen) - failed} passed; {failed} failed; {len(tests) - len(chosen)} filtered out")
    return 1 if failed else 0


sys.exit(main())

"""Servers that are reached by TLS, as a user, in another database, and through Sentinels."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import types
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.asyncio import sentinel as redis_sentinel

import tether_locks.asyncio as aio
from tether_locks import Locks, Refused, Unreachable
from tether_locks._ask import Settings
from tether_locks._cluster import Cluster
from tether_locks._connect import Greeted, Place, Places

from .conftest import DEADLINE_S, Server, eventually, free_port
from .test_readme import program

# Sentinels take some seconds for a failover; the machine may be busy.
LONG_S = 60.0

Sentinels: Any = redis_sentinel.Sentinel


class Certificates:
    """An authority that nobody else knows, and a certificate each for `server` and `client`."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        for_others = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign")
        self._request("ca", "-x509", "-addext", for_others[0], "-addext", for_others[1])
        for who in ("server", "client"):
            self._request(who)
            extra = folder / "extra"
            extra.write_text("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
            self._openssl(
                *("x509", "-req", "-in", self[who + ".pem"], "-days", "2", "-CAcreateserial"),
                *("-CA", self["ca.pem"], "-CAkey", self["ca.key"], "-extfile", str(extra)),
                *("-out", self[who + ".pem"]),
            )

    def __getitem__(self, name: str) -> str:
        return str(self._folder / name)

    def _request(self, who: str, *more: str) -> None:
        self._openssl(
            *("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-subj", f"/CN={who}", "-keyout", self[who + ".key"]),
            *("-out", self[who + ".pem"], *more),
        )

    def _openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    @contextlib.contextmanager
    def serve(self, auth_clients: str) -> Iterator[tuple[Server, str]]:
        """A server that also speaks TLS, at the address that is returned."""
        if not has_tls():
            pytest.skip("this server is built without TLS")
        port = free_port()
        server = Server(
            *("--tls-port", str(port), "--tls-auth-clients", auth_clients),
            *("--tls-cert-file", self["server.pem"], "--tls-key-file", self["server.key"]),
            *("--tls-ca-cert-file", self["ca.pem"]),
        )
        try:
            yield server, f"rediss://127.0.0.1:{port}"
        finally:
            server.stop()


def has_tls() -> bool:
    """Asked to without a certificate, the server ends at once and says which of both it lacks."""
    words = [os.environ["TETHER_SERVER"], "--port", "0", "--tls-port", "1"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    said = ran.stdout + ran.stderr
    return "Failed finding TLS support" not in said and "Bad directive" not in said


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("known"))


def test_locks_are_held_over_tls_and_a_session_goes_on_over_tls(
    certificates: Certificates,
) -> None:
    with certificates.serve("no") as (server, url):

        async def story() -> None:
            options: Any = {"ssl_ca_certs": certificates["ca.pem"]}
            async with aio.Locks(url, **options) as ann, aio.Locks(url, **options) as bob:
                held = await ann.lock("report").acquire()
                waits = asyncio.create_task(bob.lock("report").acquire())
                while server.gauge("waiters") != 1:
                    await asyncio.sleep(0.01)
                await held.release()
                held = await asyncio.wait_for(waits, DEADLINE_S)
                server.kill_clients()
                assert await asyncio.wait_for(held.until_lost(), DEADLINE_S) == "connection"
            session = aio.Locks(url, grace=20, **options)
            async with session as locks, locks.lock("report") as held:
                server.kill_clients()
                async with locks.lock("next") as following:
                    assert following.token > held.token
                await held.check_server()

        asyncio.run(story())
        with Locks(url, ssl_ca_certs=certificates["ca.pem"]) as locks, locks.lock("report") as held:
            held.check_server()
        server.free()


def test_a_certificate_is_asked_for_and_shown(
    certificates: Certificates, tmp_path: pathlib.Path
) -> None:
    other = Certificates(tmp_path)

    def shown(of: Certificates) -> dict[str, Any]:
        return {"ssl_certfile": of["client.pem"], "ssl_keyfile": of["client.key"]}

    def locked(url: str, **options: Any) -> None:
        with Locks(url, **options) as locks, locks.lock("report", wait=0):
            pass

    ca = {"ssl_ca_certs": certificates["ca.pem"]}
    with certificates.serve("yes") as (server, url):
        locked(url, **ca, **shown(certificates))
        for options in (
            ca,
            {**ca, **shown(other)},
            # A server that nobody vouches for, as far as this client knows.
            {"ssl_ca_certs": other["ca.pem"], **shown(certificates)},
            shown(certificates),
        ):
            with pytest.raises((Refused, Unreachable)):
                locked(url, **options)
        # TLS with a port that speaks none, and the other way about.
        for wrong in (server.url.replace("redis:", "rediss:"), url.replace("rediss:", "redis:")):
            with pytest.raises((Refused, Unreachable)):
                locked(wrong)
        server.free()


def test_a_certificate_of_another_host_is_refused(certificates: Certificates) -> None:
    """It is of 127.0.0.1 and of no name."""
    ca: dict[str, Any] = {"ssl_ca_certs": certificates["ca.pem"]}

    def locked(server: Any, **options: Any) -> None:
        with Locks(server, **options) as locks, locks.lock("report"):
            pass

    def client(url: str, **options: Any) -> Any:
        return redis.asyncio.Redis.from_url(url, **options)

    with certificates.serve("no") as (server, url):
        named = url.replace("127.0.0.1", "localhost")
        port = int(url.rpartition(":")[2])
        made: Any = redis.asyncio.Redis(host="localhost", port=port, ssl=True, **ca)
        for where, options in ((named, ca), (client(named, **ca), {}), (made, {})):
            # At once, although it may wait for ever: another attempt would change nothing.
            with pytest.raises(Refused, match="certificate verify failed") as refusal:
                locked(where, **options)
            assert refusal.value.code == "TLS"
        locked(url, **ca)
        locked(client(url, **ca))
        # For those who say so.
        locked(named, ssl_check_hostname=False, **ca)
        locked(made, ssl_check_hostname=False)
        locked(named, ssl_cert_reqs="none")
        server.free()


def test_user_password_and_database_are_those_of_the_address(server: Server) -> None:
    server.run("ACL", "SETUSER", "ann", "on", ">secret", "~app:*", "+@all")
    try:
        at = server.url.replace("redis://", "redis://ann:{}@") + "/3"
        third = redis.Redis(port=server.port, db=3)
        with Locks(at.format("secret")) as locks:
            with locks.lock("app:report") as held:
                held.check_server()
                assert third.exists("app:report")
                assert not server.held("app:report")
            with pytest.raises(Refused) as refusal:
                locks.lock("report").acquire()
            assert refusal.value.code == "NOPERM"
        with Locks(at.format("guess")) as locks, pytest.raises(Refused):
            locks.lock("app:report").acquire()
        options: Any = {"username": "ann", "password": "secret", "db": 3}
        with Locks(server.url, **options) as locks, locks.lock("app:report"):
            assert third.exists("app:report")
        third.close()
    finally:
        server.run("ACL", "DELUSER", "ann")


def test_a_unix_socket_is_greeted_by_this_client_alone(server: Server) -> None:
    """redis-py would greet there too, and take a password that is wrong for a broken connection."""
    server.run("ACL", "SETUSER", "ann", "on", ">secret", "~*", "+@all")
    try:
        for password, is_right in (("secret", True), ("guess", False)):
            options: Any = {"username": "ann", "password": password}
            right = contextlib.nullcontext() if is_right else pytest.raises(Refused)
            with Locks(f"unix://{server.socket}", **options) as locks, right:
                locks.lock("a", wait=DEADLINE_S).acquire()
    finally:
        server.run("ACL", "DELUSER", "ann")
    server.free()


def test_a_client_that_is_not_of_redis_asyncio_is_named(server: Server) -> None:
    with pytest.raises(TypeError, match=r"redis\.asyncio"):
        Locks(server.client)


class Sentinel:
    """A Sentinel that watches a master called `tether`."""

    def __init__(self, master: Server) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        file = pathlib.Path(self._folder.name, "sentinel.conf")
        file.write_text(
            f"port {self.port}\nbind 127.0.0.1\nprotected-mode no\ndir {self._folder.name}\n"
            f"sentinel monitor tether 127.0.0.1 {master.port} 2\n"
            # Longer than a server stands still that has to share the machine.
            "sentinel down-after-milliseconds tether 4000\n"
            "sentinel failover-timeout tether 6000\n"
        )
        words = [os.environ["TETHER_SERVER"], str(file), "--sentinel"]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        self.client: Any = redis.Redis(port=self.port)

    def knows(self) -> bool:
        """Whether it knows the replica and both other Sentinels."""
        with contextlib.suppress(redis.ConnectionError):
            # redis-py 7.0 cannot read the answer to its own `sentinel_master`.
            known = self.client.execute_command("SENTINEL", "MASTER", "tether")
            # By RESP3, which redis-py 8 speaks, it is a map.
            if not isinstance(known, dict):
                known = dict(zip(known[::2], known[1::2]))
            return (known[b"num-slaves"], known[b"num-other-sentinels"]) == (b"1", b"2")
        return False

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        self._folder.cleanup()


def within(seconds: float, is_true: Any) -> None:
    for _ in range(int(seconds / DEADLINE_S)):
        with contextlib.suppress(AssertionError):
            eventually(is_true)
            return
    eventually(is_true)


def test_a_session_goes_on_at_the_master_that_sentinels_name() -> None:
    with contextlib.ExitStack() as stack:
        master = Server()
        stack.callback(master.stop)
        replica = Server("--replicaof", "127.0.0.1", str(master.port))
        stack.callback(replica.stop)
        sentinels = [Sentinel(master) for _ in range(3)]
        for sentinel in sentinels:
            stack.callback(sentinel.stop)
        within(LONG_S, lambda: all(sentinel.knows() for sentinel in sentinels))
        addresses = [("127.0.0.1", sentinel.port) for sentinel in sentinels]

        async def story() -> None:
            # Only `Locks` keeps the client.
            with pytest.raises(Unreachable):
                await (
                    aio.Locks(Sentinels(addresses).master_for("other")).lock("a", wait=0).acquire()
                )
            locks = aio.Locks(Sentinels(addresses).master_for("tether", db=2), grace=LONG_S)
            held = await locks.lock("report").acquire()
            await held.check_server()
            waits = asyncio.create_task(locks.lock("report").acquire())
            while master.gauge("waiters") != 1:
                await asyncio.sleep(0.01)
            master.await_replica()
            master.crash()
            await asyncio.wait_for(held.check_server(), LONG_S)
            assert replica.client.role()[0] == b"master"
            assert replica.gauge("holds") == 1
            await held.release()
            following = await asyncio.wait_for(waits, DEADLINE_S)
            assert following.token > held.token
            await following.release()
            await locks.close()

        asyncio.run(story())
        # From threads too: the program of README.md.
        text = program("Sentinel(").replace("mymaster", "tether")
        for name, (host, port) in zip(("one", "two", "three"), addresses):
            assert f'("{name}", 26379)' in text
            text = text.replace(f'("{name}", 26379)', f'("{host}", {port})')
        text += "\nwith locks, locks.lock('report') as held:\n    held.check_server()\n"
        subprocess.run([sys.executable, "-I", "-c", text], check=True, timeout=LONG_S)
        replica.free()


@pytest.mark.parametrize(
    "url",
    [
        "redis://:12/secret@host",
        "redis://ann:12/secret@host:6379/2",
        "redis://:12?secret@host",
        "rediss://:12#secret@host",
        "redis://ann:secret/3@host",
        "redis://:6379/2",
        "redis://host/secret",
    ],
)
def test_an_address_that_cannot_be_read_is_not_another_one(url: str) -> None:
    """Least of all localhost, and its password is told to nobody (P-ERR-3)."""
    with pytest.raises(ValueError, match="address") as refused:
        Locks(url)
    assert "secret" not in repr(refused.value)
    assert refused.value.__suppress_context__


def test_hosts_with_underscores_and_escaped_passwords_are_read() -> None:
    place = Places("redis://ann:12%2Fse%40cret@my_host:7/2", {}, None).all[0]
    assert place.address == ("my_host", 7)
    assert place._settings["password"] == "12/se@cret"
    assert Places("redis://", {}, None).all[0].address == ("localhost", 6379)


@pytest.mark.parametrize("is_cluster", [False, True])
def test_a_silent_address_leaves_time_for_the_others(
    is_cluster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would take what the fence of a session leaves (P-CONN-9)."""
    times: list[float] = []

    async def silent(places: Places, place: Place, within: float) -> Greeted:
        times.append(within)
        raise Unreachable("silence")

    async def story() -> None:
        settings = Settings(is_cluster=is_cluster)
        urls = [f"redis://host{number}" for number in range(3)]
        places: Any = Places(urls, {}, None, is_cluster)
        if is_cluster:
            places = Cluster(places, settings).client(b"k")._places
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: sum(times))
        with pytest.raises(Unreachable):
            await places.open(6)

    monkeypatch.setattr(Places, "open_at", silent)
    asyncio.run(story())
    assert len(times) == 3
    assert sum(times) <= 6.001
    assert min(times) > 0.5


@contextlib.contextmanager
def silence() -> Iterator[int]:
    """A port that drops what asks for a connection: its queue is full."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        while True:
            asking = stack.enter_context(socket.socket())
            asking.settimeout(0.2)
            try:
                asking.connect(listener.getsockname())
            except socket.timeout:  # The same as TimeoutError since Python 3.10.
                break
        yield listener.getsockname()[1]


def two_test_is(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """Let the name two.test have an address for each of these ports."""

    async def addresses(loop: Any, host: str, *_: Any, **__: Any) -> list[Any]:
        assert host == "two.test"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", n)) for n in ports]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", addresses)


def test_a_silent_address_of_a_name_leaves_time_for_its_others(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    with silence() as port:
        two_test_is(monkeypatch, port, server.port)
        with Locks("redis://two.test", connect_timeout=3) as locks, locks.lock("a", wait=0) as held:
            held.check_server()
    server.free()


@pytest.mark.parametrize("is_first_there", [True, False])
def test_a_name_with_two_addresses_costs_one_connection(
    is_first_there: bool, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_test_is(monkeypatch, server.port if is_first_there else free_port(), server.port)

    def received() -> int:
        return int(server.client.info("stats")["total_connections_received"])

    before = received()
    with Locks("redis://two.test") as locks, locks.lock("a", wait=0):
        pass
    assert received() - before == 1
    server.free()


def test_a_sentinel_that_ends_the_connection_is_asked_once_in_an_attempt() -> None:
    """redis-py would ask again, with its own delays and on a socket that is closed (P-CONN-1)."""
    asked: list[Any] = []

    async def end(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        writer.close()

    async def story() -> None:
        sentinel = await asyncio.start_server(end, "127.0.0.1", 0)
        addresses = [sentinel.sockets[0].getsockname()[:2]]
        async with aio.Locks(Sentinels(addresses).master_for("tether")) as locks:
            with pytest.raises(Unreachable):
                await locks.lock("a", wait=0).acquire()
        sentinel.close()

    asyncio.run(story())
    assert len(asked) == 1


class Vault(redis.CredentialProvider):
    """A provider of credentials that fails the first time it is asked."""

    def __init__(self, error: BaseException) -> None:
        self._errors = [error]

    def get_credentials(self) -> tuple[str, str]:
        for error in [self._errors.pop() for _ in list(self._errors)]:
            raise error
        return "default", "secret"


def unreachable_once(locks: aio.Locks, match: str, *, then: bool = True) -> None:
    """See that an attempt which fails in an unforeseen way is over, and the next one is made."""

    async def story() -> None:
        async with locks:
            with pytest.raises(Unreachable, match=match):
                await asyncio.wait_for(locks.lock("a", wait=0).acquire(), DEADLINE_S)
            if then:
                await asyncio.wait_for((await locks.lock("a").acquire()).release(), DEADLINE_S)

    asyncio.run(story())


@pytest.mark.parametrize("error", [RuntimeError("sealed"), asyncio.CancelledError("sealed")])
def test_whatever_a_provider_of_credentials_raises_costs_one_attempt(
    error: BaseException, server: Server
) -> None:
    unreachable_once(aio.Locks(server.url, credential_provider=Vault(error)), "sealed|cancelled")
    server.free()


def test_whatever_a_provider_of_credentials_for_sentinels_raises_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        vault = {"credential_provider": Vault(RuntimeError("sealed"))}
        sentinels = Sentinels([("127.0.0.1", port)], sentinel_kwargs=vault)
        unreachable_once(aio.Locks(sentinels.master_for("tether")), "sealed", then=False)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".b"])
def test_a_host_that_is_no_name_is_unreachable(host: str, server: Server) -> None:
    """It is no error of the system's: getaddrinfo is never asked."""
    wrong = f"redis://{host}:1"
    unreachable_once(aio.Locks(wrong), "label", then=False)
    with Locks([wrong, server.url]) as locks, locks.lock("a", wait=0):
        pass
    server.free()


def test_nodes_that_do_not_agree_who_has_a_slot_are_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each refers to the other, as for a moment while a slot moves."""
    other = {"one": "two", "two": "one"}

    async def open_at(places: Places, place: Place, within: float) -> Greeted:
        writer: Any = types.SimpleNamespace(get_extra_info=lambda _: None)
        writer.transport = types.SimpleNamespace(abort=lambda: None)
        greeted = Greeted(asyncio.StreamReader(), writer)
        greeted.address = place.address
        greeted.slots = [(0, 16383, [(other[place.address[0]], 6379)])]
        return greeted

    monkeypatch.setattr(Places, "open_at", open_at)
    unreachable_once(aio.Locks("redis://one", cluster=True), "agree", then=False)


def test_a_replica_that_is_reached_by_a_unix_socket_leads_to_its_master_by_tcp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And the fence there is none of a Unix socket (P-CONN-5, P-FENCE-1)."""
    asked: list[Any] = []

    async def greet(place: Place, connection: Any, name: str) -> tuple[Greeted, Any]:
        asked.append(connection)
        writer: Any = types.SimpleNamespace()
        writer.transport = types.SimpleNamespace(abort=lambda: None)
        greeted = Greeted(asyncio.StreamReader(), writer)
        is_first = len(asked) == 1
        return greeted, [b"slave", b"10.0.0.7", 7] if is_first else [b"master"]

    monkeypatch.setattr(Place, "_greet", greet)
    place = Places("unix:///tmp/none.socket?db=3", {}, None).all[0]
    assert asyncio.run(place.open("name", 1)).address == ("10.0.0.7", 7)
    unix, tcp = asked
    assert unix.path == "/tmp/none.socket"
    assert (type(tcp).__name__, tcp.host, tcp.port, tcp.db) == ("Connection", "10.0.0.7", 7, 3)

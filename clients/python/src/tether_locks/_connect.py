"""Opens connections and greets on them, where the caller's settings of redis-py say.

redis-py knows the addresses, TLS and the Sentinels. What is said on a connection is this package's
own, since redis-py would connect anew, time out and retry by itself (P-CONN-1).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Union
from urllib.parse import unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
    parse_url,
)
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from ._codes import MOMENTARY, NOT_HERE, code_of
from .errors import LockError, Refused, Unreachable
from .resp import Parser, ReplyError, encode

CHUNK = 1 << 16
# Masters that a replica names are followed so often (P-CONN-5).
HOPS = 2
LONGEST_NAME = 200
# An address that is silent for so long, in seconds, delays the next one no more (RFC 8305).
_NEXT_AFTER = 0.25
# These errors of TLS are those of a connection that broke.
_BROKEN_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_OPENING = (
    *("host", "port", "path", "db", "username", "password", "credential_provider", "client_name"),
    *("socket_keepalive", "socket_keepalive_options", "socket_type"),
)

Address = tuple[str, int]
# The first and the last of them, and the nodes that have them, the master first. An empty host, or
# `?`, is that of the node that says so (P-CLUSTER-3).
NO_HOST = ("", "?")
Slots = tuple[int, int, list[Address]]
Server = Union[str, "redis.asyncio.Redis", Sequence[str]]


class Greeted:
    """A connection that was greeted; `frames` are those that came after the greeting."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Describe a connection that is open."""
        self.reader = reader
        self.writer = writer
        self.parser = Parser()
        self.frames: list[Any] = []
        self.is_unix = False
        self.address: Address = ("", 0)  # As it was asked for.
        self.where = ""  # That, or its socket, in messages.
        self.slots: list[Slots] = []  # As this node of a cluster knows them.

    @property
    def peer(self) -> Address:
        """Where that is."""
        host, port = (self.writer.get_extra_info("peername") or ("", 0))[:2]
        return host, port


class Place:
    """One address, or the Sentinels of one master."""

    def __init__(
        self, kind: Any, settings: dict[str, Any], pool: Any, is_cluster: bool = False
    ) -> None:
        """Keep what redis-py's connections of this kind take."""
        self._is_cluster = is_cluster
        self._kind = kind
        self._settings = settings
        self.client_name: str | None = settings.pop("client_name", None)
        self._pool = pool

    @property
    def where(self) -> str:
        """Return what to call it in messages."""
        return _where(self._settings) if self._pool is None else self._master

    @property
    def _master(self) -> str:
        return f"the master {self._pool.service_name!r}"

    @property
    def address(self) -> Address:
        """Return host and port."""
        return self._settings.get("host", "localhost"), self._settings.get("port", 6379)

    def at(self, address: Address) -> Place:
        """Return another node of a cluster."""
        settings = {**self._settings, "host": address[0], "port": address[1]}
        return Place(self._kind, settings, None, True)

    async def open(self, name: str, within: float) -> Greeted:
        """Open a connection to the master there, or to the one that a replica there names.

        Sentinels have half of the time.
        """
        kind, settings = self._kind, self._settings
        if self._pool is not None:
            host, port = await self._ask_sentinels(within / 2)
            settings = {**settings, "host": host, "port": port}
        for _ in range(HOPS + 1):
            where = _where(settings)
            try:
                greeted, role = await self._greet(kind(**settings), name)
            except LockError:
                raise
            except Exception as error:  # A provider of credentials may raise anything.
                raise _as_ours(error, where) from error
            if not isinstance(role, list) or role[0] != b"slave":
                greeted.address = (settings.get("host", "localhost"), settings.get("port", 6379))
                return greeted
            greeted.writer.transport.abort()
            if self._pool is not None:
                break
            settings = {**settings, "host": role[1].decode(), "port": role[2]}
            if settings.pop("path", None) is not None:
                kind = Connection
        text = f"{where}: this server is a replica, and names no master that is one"
        raise Unreachable(text, "REPLICA")

    async def _greet(self, connection: Any, name: str) -> tuple[Greeted, Any]:
        """P-CONN-2, P-CONN-3; and ROLE, which a user may not be allowed to ask."""
        greeted = Greeted(*await _connected(connection))
        where = greeted.where = _where(vars(connection))
        greeted.is_unix = isinstance(connection, UnixDomainSocketConnection)
        try:
            words: list[tuple[bytes | str | int, ...]] = [("HELLO", 3, *await _auth(connection))]
            words.append(("CLIENT", "SETNAME", name))
            if connection.db:
                words.append(("SELECT", connection.db))
            role_at = len(words)
            words.append(("ROLE",))
            if self._is_cluster:
                words.append(("CLUSTER", "SLOTS"))
            greeted.writer.write(b"".join(map(encode, words)))
            while len(greeted.frames) < len(words):
                data = await greeted.reader.read(CHUNK)
                if not data:
                    raise Unreachable(f"the connection to {where} ended at once")
                greeted.frames += greeted.parser.feed(data)
            replies, greeted.frames = greeted.frames[: len(words)], greeted.frames[len(words) :]
            for reply in (replies[0], *replies[2:role_at], *replies[role_at + 1 :]):
                if isinstance(reply, ReplyError):
                    raise _refused(reply, where)
            if self._is_cluster:
                greeted.slots = [_slots(row) for row in replies[-1]]
            return greeted, replies[role_at]
        except BaseException:
            greeted.writer.transport.abort()
            raise

    async def _ask_sentinels(self, within: float) -> tuple[str, int]:
        """Ask all; return what more than half of them name, or most of those who answer in time.

        P-CONN-7.
        """
        sentinels = self._pool.sentinel_manager.sentinels
        asking = [asyncio.ensure_future(self._ask_sentinel(each)) for each in sentinels]
        named: Counter[tuple[str, int]] = Counter()
        why = ""
        try:
            for answer in asyncio.as_completed(asking, timeout=within):
                try:
                    named[await answer] += 1
                except Exception as error:  # Also that the time is over.
                    why = why or f": {_cause(error)}"
                    continue
                if max(named.values()) > len(sentinels) / 2:
                    break
        finally:
            for each in asking:
                each.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not named:
            raise Unreachable(f"no Sentinel names {self._master}{why}")
        return named.most_common(1)[0][0]

    async def _ask_sentinel(self, sentinel: Any) -> tuple[str, int]:
        pool = sentinel.connection_pool
        connection = pool.connection_class(**pool.connection_kwargs)
        # It is asked again with the next attempt, on another connection (P-CONN-1).
        connection.retry = Retry(NoBackoff(), 0)
        try:
            await _choose_address(connection)
            await connection.connect()
            await connection.send_command(
                "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._pool.service_name
            )
            reply = await connection.read_response()
        finally:
            await connection.disconnect(nowait=True)
        if not reply:
            raise ValueError("it knows no such master")
        host, port = (each.decode() if isinstance(each, bytes) else each for each in reply)
        return host, int(port)


# Those of this process, from before they are connected until they are closed.
_sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
# What writes on a connection of a class of the user's own, of which no socket is known before.
_writers: weakref.WeakSet[asyncio.StreamWriter] = weakref.WeakSet()


def keep_from_children(sock: socket.socket) -> None:
    """Let it be this process's alone, also if that forks (P-FORK-2)."""
    _sockets.add(sock)


def _leave_to_parent() -> None:
    """In a child process: let go of the parent's connections, so that they end with the parent."""
    theirs = [writer.get_extra_info("socket") for writer in _writers]
    for sock in (*_sockets, *theirs):
        if sock is not None and sock.fileno() >= 0:
            _replace(sock.fileno())


def _replace(descriptor: int) -> None:
    """Close it, and leave its number to nobody: what knows that may close it later."""
    with contextlib.suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


async def _connected(connection: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect where redis-py says, and say nothing there."""
    if type(connection) is UnixDomainSocketConnection:  # redis-py would greet, and time out.
        sock = _new_socket(socket.AF_UNIX, socket.SOCK_STREAM, 0)
        try:
            await asyncio.get_running_loop().sock_connect(sock, connection.path)
        except BaseException:
            sock.close()
            raise
        return await asyncio.open_unix_connection(sock=sock)
    await _choose_address(connection)
    await connection._connect()
    reader, writer = connection._reader, connection._writer
    _writers.add(writer)
    # redis-py warns of connections that are dropped while they look open.
    connection._reader = connection._writer = None
    return reader, writer


def _new_socket(family: int, kind: int, protocol: int) -> socket.socket:
    sock = socket.socket(family, kind, protocol)
    keep_from_children(sock)
    sock.setblocking(False)
    return sock


async def _choose_address(connection: Any) -> None:
    """Of the addresses of a name take the one that answers first (P-CONN-9).

    asyncio tries them in turn, so that a silent one would take the time of all. And it makes their
    sockets itself, so that a child process could not let go of them.
    """
    if type(connection) not in (Connection, SSLConnection):
        return
    arguments = dict(connection._connection_arguments())
    host, port = arguments.pop("host"), arguments.pop("port")
    sock = await _first(await _addresses(host, port))
    if "ssl" in arguments:
        arguments["server_hostname"] = host
    connection._connection_arguments = lambda: {**arguments, "sock": sock}


async def _addresses(host: str, port: int) -> Sequence[Any]:
    """Return those of a host; one that is an address itself needs no thread that asks."""
    with contextlib.suppress(socket.gaierror):
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _first(found: Sequence[Any]) -> socket.socket:
    """Return the first socket that is connected to one of these.

    Each is tried once those before it have failed or were silent for a moment: a server that
    listens at all of them is connected to once.
    """
    made: list[socket.socket] = []

    async def connect(family: int, kind: int, protocol: int, _: str, address: Any) -> socket.socket:
        sock = _new_socket(family, kind, protocol)
        made.append(sock)
        await asyncio.get_running_loop().sock_connect(sock, address)
        return sock

    left = list(found)
    trying: set[asyncio.Future[socket.socket]] = set()
    done: set[asyncio.Future[socket.socket]] = set()
    try:
        while left or trying:
            if left:
                trying.add(asyncio.ensure_future(connect(*left.pop(0))))
            within = _NEXT_AFTER if left else None
            done, trying = await asyncio.wait(
                trying, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                try:
                    sock = attempt.result()
                except OSError as error:
                    last = error
                else:
                    made.remove(sock)
                    return sock
        raise last
    finally:
        for each in trying:
            each.cancel()
        await asyncio.gather(*trying, *done, return_exceptions=True)
        for other in made:
            other.close()


def _slots(row: Any) -> Slots:
    """Return one row of CLUSTER SLOTS."""
    first, last, master, *others = row
    return first, last, [((node[0] or b"").decode(), node[1]) for node in (master, *others)]


async def _auth(connection: Any) -> tuple[str, ...]:
    provider = connection.credential_provider
    if provider is None:
        user, password = connection.username, connection.password
        return ("AUTH", user or "default", password) if user or password else ()
    asked = getattr(provider, "get_credentials_async", None)
    credentials = await asked() if asked is not None else provider.get_credentials()
    return ("AUTH", *(("default", *credentials) if len(credentials) == 1 else credentials))


def _refused(error: ReplyError, where: str) -> LockError:
    code = code_of(error)
    if code in MOMENTARY or code in NOT_HERE:
        return Unreachable(f"{where}: {error}", code)
    return Refused(str(error))


class Places:
    """Where the server may be: the addresses are tried in turn."""

    def __init__(
        self, server: Server, options: dict[str, Any], name: str | None, is_cluster: bool = False
    ) -> None:
        """Read the settings; connect to nothing."""
        for option in options:
            if option not in _OPENING and not option.startswith("ssl_"):
                raise TypeError(f"{option} is no option of the locks")
        self.all = list(_places(server, options, is_cluster))
        name = name or self.all[0].client_name
        self._name = client_name() if name is None else _printable(name)

    @property
    def where(self) -> str:
        """Return what to call them in messages."""
        return ", ".join(place.where for place in self.all)

    async def open(self, within: float) -> Greeted:
        """Open a connection to a master, or raise what was wrong with the last one tried.

        Each address has its share of so many seconds, so that a silent one leaves time for the
        others (P-CONN-9). What the server or the client refuses for good goes before what might be
        otherwise later.
        """
        errors: list[LockError] = []
        loop = asyncio.get_running_loop()
        ends = loop.time() + within
        for number, place in enumerate(self.all):
            share = (ends - loop.time()) / (len(self.all) - number)
            try:
                return await self.open_at(place, share)
            except LockError as error:
                errors.append(error)
        raise worst(errors)

    async def open_at(self, place: Place, within: float) -> Greeted:
        """Open a connection to one of them."""
        try:
            return await asyncio.wait_for(place.open(self._name, within), within)
        except asyncio.TimeoutError:
            raise Unreachable(f"no answer from {place.where} in {within:.1f} s") from None


def worst(errors: list[LockError]) -> LockError:
    """Return the one that goes before the others: the last that is for good, or the last."""
    final = [error for error in errors if not isinstance(error, Unreachable)]
    return (final or errors)[-1]


def _places(server: Server, options: dict[str, Any], is_cluster: bool) -> Iterator[Place]:
    kind: Any
    if isinstance(server, str):
        server = [server]
    if isinstance(server, Sequence):
        for url in server:
            _check_address(url)
            settings: dict[str, Any] = {**parse_url(url), **options}
            kind = settings.pop("connection_class", Connection)
            yield _place(kind, settings, True, None, is_cluster)
        return
    pool = server.connection_pool
    kind = pool.connection_class
    if not issubclass(kind, AbstractConnection):
        raise TypeError("the locks take their settings from a client of redis.asyncio")
    settings = {**pool.connection_kwargs, **options}
    is_said = "ssl_check_hostname" in options
    if isinstance(pool, SentinelConnectionPool):
        kind = SSLConnection if issubclass(kind, SSLConnection) else Connection
        yield _place(kind, settings, is_said, pool)
    else:
        yield _place(kind, settings, is_said, None, is_cluster)


def _check_address(url: str) -> None:
    """Refuse what redis-py would take for localhost or the database 0, or quote with a password."""
    if not url.startswith(("redis://", "rediss://")):
        return
    try:
        parts = urlsplit(url)
        database = unquote(parts.path).replace("/", "")
        is_read = bool(parts.hostname or not parts.netloc) and "@" not in parts.fragment
        if is_read and parts.port != 0 and (not database or database.isdigit()):
            return
    except ValueError:
        pass
    raise ValueError(
        "this address cannot be read: it is redis://[user:password@]host[:port][/database], and"
        " what is special in a password is escaped, such as %2F for a slash"
    ) from None


def _place(
    kind: Any, settings: dict[str, Any], is_said: bool, pool: Any = None, is_cluster: bool = False
) -> Place:
    settings = {
        name: value
        for name, value in settings.items()
        if name in _OPENING or name.startswith("ssl_")
    }
    _check_hostname(kind, settings, is_said)
    return Place(kind, settings, pool, is_cluster)


def _check_hostname(
    kind: Callable[..., AbstractConnection], settings: dict[str, Any], is_said: bool
) -> None:
    """Take the server's certificate only if it is of that host (P-CONN-8).

    redis-py before 6.0 does not look at that unless told, and its clients tell it not to whether
    their caller has said (`is_said`) so or not.
    """
    if not (isinstance(kind, type) and issubclass(kind, SSLConnection)):
        return
    if settings.get("ssl_cert_reqs", "required") in (None, "none", ssl.CERT_NONE):
        return
    if redis.VERSION < (6,) and not is_said:
        settings.pop("ssl_check_hostname", None)
    settings.setdefault("ssl_check_hostname", True)


def client_name() -> str:
    """Return `tether:<host>:<pid>:<program>`, which `tether who` decodes."""
    program = Path(sys.argv[0]).name if sys.argv else ""
    return _printable(f"tether:{socket.gethostname()}:{os.getpid()}:{program}")


def _printable(name: str) -> str:
    return "".join(c if "!" <= c <= "~" else "_" for c in name)[:LONGEST_NAME]


def _where(settings: dict[str, Any]) -> str:
    host, port = settings.get("host", "localhost"), settings.get("port", 6379)
    path: str | None = settings.get("path")
    return path or (f"[{host}]:{port}" if ":" in host else f"{host}:{port}")


def _as_ours(error: Exception, where: str) -> LockError:
    if isinstance(error, ssl.SSLError) and not isinstance(error, _BROKEN_TLS):
        return Refused(f"{where}: TLS failed: {error}", "TLS")
    return Unreachable(f"no connection to {where}: {_cause(error)}")


def _cause(error: Exception) -> str:
    """Return what went wrong; asyncio adds the address once more, as a tuple."""
    if isinstance(error, socket.gaierror):
        return str(error.strerror)
    if isinstance(error, OSError) and not isinstance(error, ssl.SSLError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__

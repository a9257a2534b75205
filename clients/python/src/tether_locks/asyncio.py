"""Locks for asyncio. The words are those of `tether_locks`, with `async` and `await`."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import itertools
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import redis.asyncio
from redis.exceptions import ResponseError

from ._ask import Ask, Event, Settings
from ._client import Client
from ._cluster import Cluster, Moves
from ._codes import MOMENTARY, UNWRITABLE
from ._connect import Places, Server
from ._feed import Feed
from ._request import (
    FENCE,
    Change,
    Key,
    Leader,
    Maker,
    Member,
    Request,
    as_bytes,
    begun,
    like,
    milliseconds,
)
from ._state import slot_of, tag_of
from .clock import KNOWS_SUSPEND, now
from .errors import (
    Closed,
    CrossSlot,
    Deadlock,
    LockError,
    Lost,
    NoModule,
    NoPush,
    Refused,
    Stale,
    Taken,
    Unfit,
    Unreachable,
    raise_if_stale,
)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")

_task_numbers = itertools.count(1)
_task_words: weakref.WeakKeyDictionary[asyncio.Task[Any], bytes] = weakref.WeakKeyDictionary()


def _word_of_task() -> bytes:
    """Return what tells the server that the requests of one task wait together (P-OWNER-5)."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("a lock is acquired by a task")
    if task not in _task_words:
        _task_words[task] = b"task-%d" % next(_task_numbers)
    return _task_words[task]


class Held:
    """A lock that is held, or was."""

    def __init__(self, client: Client, names: tuple[Key, ...]) -> None:
        """Describe a request; `Lock.acquire` makes it, and returns it once it is granted."""
        self._client = client
        self.names = names
        self.token = 0
        self._key = b""
        self._reason: str | None = None  # Why it is not held any longer.
        self._granted: asyncio.Future[None] = client.loop.create_future()
        self._released: set[asyncio.Future[None]] = set()
        self._over: set[asyncio.Future[None]] = set()
        self._extended: deque[asyncio.Future[None]] = deque()  # In the order of their answers.
        self._checked: set[asyncio.Future[None]] = set()

    @property
    def name(self) -> Key:
        """The name of the lock; of several, the first."""
        return self.names[0]

    @property
    def lost(self) -> str | None:
        """Why the lock is not held any longer, or None while it is."""
        if self._client.pid != os.getpid():
            return "fork"
        core = self._client.core
        state = self._reason or core.check(now(), self)
        if state is None:  # It has just ended; what became of it is about to be told.
            losses = [e.error for e in tuple(core.events) if e.handle is self and e.kind == "lost"]
            state = self._reason or next(
                (e.reason for e in losses if isinstance(e, Lost)), "released"
            )
        return None if state == "held" else state

    def check(self) -> None:
        """Raise `Lost` if the lock is lost. Asks nobody: call it as often as you like."""
        reason = self.lost
        if reason is not None:
            raise Lost(reason)

    async def check_server(self) -> None:
        """Ask the server whether it is held; raise `Lost` if not, `Stale` if the server says so.

        One request for each name, on the connection of the locks, and at most the fence's time.
        """
        self.check()
        try:
            await self._ask(self._checked, lambda: self._client.core.verify(self, self.token))
        except Stale as error:
            raise Stale(str(error), self.lost) from error
        self.check()

    async def run(self, *command: Any, on: redis.asyncio.Redis) -> Any:
        """Run one command only while the server knows the lock as held; return its raw reply.

        `on` is a client of `redis.asyncio` for the data. Its pool may be any; its server and
        database must be those of the locks, and in a cluster the keys in the slot of the name. The
        server checks and runs in one step (LOCK.GUARD). If the lock is not held, nothing is run:
        `Stale`. Of several names the first one counts. That client raises what the command's own
        error is, and if its connection breaks, the command may have been run.
        """
        self.check()
        client: Any = on
        try:
            return await client.execute_command("LOCK.GUARD", self._key, self.token, *command)
        except ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    async def run_on(
        self,
        client: redis.asyncio.Redis,
        script: str,
        *,
        fence: Key,
        keys: Sequence[Key] = (),
        args: Sequence[Any] = (),
    ) -> Any:
        """Run a Lua script on data of another server, unless it saw a greater token: `Stale`.

        `client` is one of `redis.asyncio`, and the server need not have the module.
        `fence` is a key there in which the greatest token is kept, without an expiry; in a cluster
        it is in the slot of `keys`. In the script, `KEYS` and `ARGV` are `keys` and `args`. What
        that server forgets (eviction, a flush, a failover) the fence forgets too.
        """
        self.check()
        fenced: Any = client.register_script(FENCE + script)
        try:
            return await fenced(keys=[fence, *keys], args=[self.token, *args])
        except ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    async def release(self) -> None:
        """Give the lock back; raise `Lost` if it was lost. A second time does nothing.

        If the server refuses it for now, this returns; if for good, this raises `Refused`. In both
        cases it is sent again until the server takes it.
        """
        if self.lost is None:
            await self._ask(self._released, lambda: self._client.core.release(self))
        if self.lost != "released":
            self.check()

    def _let_go(self) -> None:
        """Begin to release it, unless that is done or it is lost."""
        self._client.do(lambda: self._client.core.release(self))

    async def extend(self, lease: float) -> None:
        """Let the lock end so many seconds from now, if it is not extended again."""
        self.check()
        ms = milliseconds(lease)
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._extended.append(answer)
        self._client.do(lambda: self._client.core.extend(self, ms))
        await answer

    async def until_lost(self) -> str:
        """Wait until the lock is not held any longer, and return why."""
        while True:
            reason = self.lost
            if reason is not None:
                return reason
            await self._ask(self._over, lambda: None)

    async def _ask(self, answers: set[asyncio.Future[None]], act: Callable[[], object]) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        answers.add(answer)
        try:
            self._client.do(act)
            await answer
        finally:
            answers.discard(answer)

    def on_event(self, event: Event) -> None:
        """Hear what became of it; the core calls this."""
        kind, error = event.kind, event.error
        if kind == "granted":
            self._key, self.token = event.value
            if as_bytes(self.names[0]) != self._key:  # The server made the name.
                self.names = (like(self.names[0], self._key),)
            _answer({self._granted})
        elif kind == "refused":
            _answer({self._granted}, error)
        elif kind == "redirected":
            self._client.loop.call_soon(self._follow, *event.value)
        elif kind in ("extended", "not_extended"):
            _answer({self._extended.popleft()}, error)
        elif kind in ("checked", "not_checked"):
            _answer(self._checked, error)
        elif kind == "releasing":
            is_for_now = error is not None and error.code in MOMENTARY | UNWRITABLE
            _answer(self._released, None if is_for_now else error)
            _answer(self._over)
        else:
            if isinstance(error, Lost):
                self._reason = error.reason
            elif kind in ("released", "over"):
                self._reason = "released"
            _answer(self._released | self._over)
            self._interrupt()

    def _follow(self, error: str, ask: Ask) -> None:
        """Ask where a node of a cluster says."""
        cluster = self._client.cluster
        if self._granted.done() or cluster is None:  # Nobody wants it any longer.
            return
        if not cluster.is_here:
            _answer({self._granted}, Closed())
            return
        client = self._client = cluster.referred(self._client, error)
        client.do(lambda: client.core.acquire(self, ask))

    # Set while a task is within `async with`.
    _body: asyncio.Task[Any] | None = None
    _interrupted = False
    _cancels_before = 0

    def _interrupt(self) -> None:
        if self._body is None or self._interrupted:
            return
        if self.lost not in (None, "released"):
            self._interrupted = True
            self._body.cancel()

    def _begin(self) -> None:
        self.check()
        self._body = asyncio.current_task()
        self._cancels_before = _cancels_of(self._body)

    async def _finish(self, error: BaseException | None) -> None:
        """End the body: release, or raise `Lost` in the place of our own cancellation."""
        body, self._body = self._body, None
        if self._interrupted and not isinstance(error, asyncio.CancelledError):
            # The body may have ended before it heard of it: nothing after the block shall.
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        was_cancelled_by_others = False
        if self._interrupted and body is not None and hasattr(body, "uncancel"):
            was_cancelled_by_others = body.uncancel() > self._cancels_before
        if isinstance(error, asyncio.CancelledError) and was_cancelled_by_others:
            return
        reason = self.lost
        if reason is None:
            try:
                await self.release()
            except Lost:
                if error is None:
                    raise
        elif reason == "released":
            return
        elif error is None or (self._interrupted and isinstance(error, asyncio.CancelledError)):
            raise Lost(reason) from error


class Lock:
    """A lock to be acquired: `async with` it, or `await lock.acquire()`.

    Any number of tasks may use one: each has a request of its own.
    """

    def __init__(self, locks: Locks, request: Request, task: bytes | None = None) -> None:
        """Describe a lock; `Locks` makes it. `task` is the word of whoever waits for it."""
        self._locks = locks
        self._request = request
        self._task = task
        # What blocks hold, each for its task.
        self._entered: list[tuple[asyncio.Task[Any] | None, Held]] = []

    async def acquire(self) -> Held:
        """Acquire it. Whoever calls this must release it; on a loss nobody is cancelled.

        Whoever waits goes on when the connection ends or cannot be made, for as long as was said.
        """
        client = self._locks._client(self._request.ask.keys[0])
        ask = begun(self._request.ask, self._task or _word_of_task())
        held = Held(client, self._request.names)
        client.do(lambda: client.core.acquire(held, ask))
        try:
            await held._granted
        except asyncio.CancelledError:
            held._let_go()
            if not held._granted.cancelled():
                held._granted.exception()  # asyncio need not say that nobody looked.
            raise
        return held

    async def __aenter__(self) -> Held:
        """Acquire it; on a loss the body is cancelled. Each block has a hold of its own."""
        held = await self.acquire()
        held._begin()
        self._entered.append((asyncio.current_task(), held))
        return held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Release it; raise `Lost` if it was lost, unless the body has raised something else."""
        task = asyncio.current_task()
        # A block may have been handed to another task (AsyncExitStack): then the last one.
        mine = [entry for entry in self._entered if entry[0] is task] or self._entered
        if not mine:
            raise RuntimeError("this lock was not entered")
        entry = mine[-1]
        self._entered.remove(entry)
        await entry[1]._finish(error)


class Term:
    """A leader's term of office: `async with` it. Its loss cancels the body, and is no error."""

    def __init__(self, held: Held) -> None:
        """Begin a term that holds this lock."""
        self._held = held
        self.token = held.token
        self.was_used = False

    async def __aenter__(self) -> Held:
        """Govern."""
        self.was_used = True
        self._held._begin()
        return self._held

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        """Step down, or end because the term was lost."""
        try:
            await self._held._finish(error)
        except Lost:
            return error is None or isinstance(error, asyncio.CancelledError)
        return False


class Locks(Maker[Lock]):
    """Locks of one server, on one connection that all tasks share.

    It connects when something is first asked for, and again whenever that is needed: one object
    lasts as long as the program. Without a grace, what is held is lost when the connection ends.
    With one the connection is made anew at once, and what is held goes on there. A loop of
    asyncio's has a connection of its own, and so has a child process.
    """

    def __init__(
        self,
        server: Server = "redis://localhost:6379",
        *,
        grace: float | None = None,
        stop_within: float = 0.0,
        fence: float | None = None,
        connect_timeout: float = 5.0,
        name: str | None = None,
        cluster: bool = False,
        **options: Any,
    ) -> None:
        """Name the server.

        `server` is an address as redis-py takes it (`redis://`, `rediss://`, `unix://`), several of
        which the one of the master is looked for, or a client of `redis.asyncio` whose settings are
        taken (also of `Sentinel.master_for`), never its connections. `options` are those of
        redis-py's connections for users, databases and TLS. All times are in seconds.

        With a `grace` the locks are held in a session of the server: they survive a broken
        connection, and a restart or failover of the server, if the connection is made anew in time.
        The server gives the locks of a client that does not come back to others after the grace.

        `stop_within` is how long the work goes on after a loss, at most. `fence` is how long to
        rely on a server that does not answer; then all locks are lost. Unless given, it is as long
        as can be kept: the grace less `stop_within` and a second; without a grace half of the
        server's `tether.peer-timeout`, or that less `stop_within` and a second.

        `name` is what the server calls the connection: unless given,
        `tether:<host>:<pid>:<program>`. With `cluster`, `server` is one node of a cluster, or
        several: the locks have a connection to each master that they need. Names of more than one
        slot are refused before they are sent (`CrossSlot`), and so are prefixes without a hash tag.
        """
        if not stop_within >= 0:
            raise ValueError(f"{stop_within} is not a time in seconds")
        self._server = server  # Sentinels know their pool by a weak reference.
        self._places = functools.partial(Places, server, options, name, cluster)
        places = self._places()  # Which refuses what makes no sense.
        self._settings = Settings(
            grace=None if grace is None else milliseconds(grace),
            stop_within=stop_within * 1000,
            fence=None if fence is None else fence * 1000,
            connect_timeout=milliseconds(connect_timeout),
            is_cluster=cluster,
            knows_suspend=KNOWS_SUSPEND,
            where=places.where,
        )
        self._clients: dict[asyncio.AbstractEventLoop, Client | Cluster] = {}

    # ---- locks ----

    def owner(self, name: Key, *, reentrant: bool = False) -> Owner:
        """Return the same for an owner with this name, which must not begin with a dot.

        Requests of one owner for one lock exclude each other at once: `Deadlock`, or `Taken` if
        they do not wait. With `reentrant` an owner that has it gets it again.
        """
        return Owner(self, as_bytes(name), reentrant)

    async def elect(self, name: Key, value: Key = b"") -> AsyncIterator[Term]:
        """Stand for election again and again; yield a term whenever it is won.

        `value` tells those who `observe` where the leader is. Goes on while the server cannot be
        reached. A term that the caller does not enter with `async with` ends when the next one is
        asked for.
        """
        while True:
            held = await self.temporary_key(name, value, wait=None).acquire()
            if held.lost is not None:
                continue
            term = Term(held)
            try:
                yield term
            finally:
                if not term.was_used:
                    with contextlib.suppress(Lost):
                        await held.release()

    async def observe(self, name: Key) -> AsyncIterator[Leader | None]:
        """Yield who leads, or None for nobody: now, and whenever that changes."""
        key = as_bytes(name)
        async for event in self._present(name, key, True):
            token, value = event.value
            yield None if token is None else Leader(token, value)

    async def watch(self, *names: Key) -> AsyncIterator[Change]:
        """Yield whether these keys exist, and then each change, also over broken connections."""
        if not names:
            raise ValueError("a watch needs a name")
        given = {as_bytes(name): name for name in names}
        keys = tuple(given)
        if self._settings.is_cluster and len({slot_of(key) for key in keys}) > 1:
            raise CrossSlot("the names are of more than one slot: watch them one by one")

        def begin(client: Client, feed: Feed) -> None:
            client.core.watches.watch(feed, keys, feed.known)

        async for event in self._watched(names, keys[0], begin):
            key, state = event.value
            yield Change(given[key], state)

    async def presence(self, prefix: Key) -> AsyncIterator[Member]:
        """Yield each temporary key whose name begins so, and then each change of them."""
        key = as_bytes(prefix)
        async for event in self._present(prefix, key, False):
            yield _member(prefix, event)

    def _present(self, name: Key, prefix: bytes, is_observer: bool) -> AsyncIterator[Event]:
        if self._settings.is_cluster and tag_of(prefix) is None:
            raise CrossSlot("in a cluster it needs a hash tag")

        def begin(client: Client, feed: Feed) -> None:
            client.core.presences.watch(feed, prefix, is_observer, feed.known)

        return self._watched(name, prefix, begin)

    async def _watched(
        self, names: object, key: bytes, begin: Callable[[Client, Feed], None]
    ) -> AsyncIterator[Event]:
        client, feed, moves = self._client(key), Feed(names), Moves(asyncio.get_running_loop().time)
        try:
            client.do(lambda: begin(client, feed))
            while True:
                try:
                    event = await feed.next()
                except Refused as error:
                    cluster = client.cluster
                    if error.code != "MOVED" or cluster is None or not moves.follow():
                        raise
                    if not cluster.is_here:
                        raise Closed from None
                    client = cluster.referred(client, str(error))
                    feed.go_on()
                    client.do(functools.partial(begin, client, feed))
                else:
                    yield event
        finally:
            client.do(lambda: client.core.unwatch(feed))

    def singleton(
        self, name: Key, *, wait: float = 0, lease: float | None = None
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R | None]]]:
        """Let only one call of a function run at a time, wherever; others return None at once.

        A generator, whose body runs after its call, is refused: TypeError.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | None]]:
            if is_generator(function):
                raise TypeError("a generator runs after its call, so nothing would guard it")

            @functools.wraps(function)
            async def alone(*args: P.args, **kwargs: P.kwargs) -> R | None:
                lock = self.lock(name, wait=wait, lease=lease)
                async with contextlib.AsyncExitStack() as stack:
                    try:
                        await stack.enter_async_context(lock)
                    except Taken:
                        return None
                    return await function(*args, **kwargs)

            return alone

        return decorate

    # ---- the connection ----

    async def close(self) -> None:
        """End the connection of this loop; what is held is lost, and nobody waits any longer."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None and client.is_here:
            await client.close()

    async def __aenter__(self) -> Locks:
        """Do nothing: it connects when a lock is asked for."""
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.close()

    def _client(self, key: bytes) -> Client:
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None or not client.is_here:
            for other in tuple(self._clients):
                if other.is_closed():
                    self._clients.pop(other, None)
            places, settings = self._places(), self._settings
            is_cluster = settings.is_cluster
            client = Cluster(places, settings) if is_cluster else Client(places, settings)
            self._clients[loop] = client
        return client.client(key) if isinstance(client, Cluster) else client

    def _made(self, request: Request) -> Lock:
        return Lock(self, request)


class Owner(Maker[Lock]):
    """Makes the locks of one owner with a name, as `Locks` makes those of any."""

    def __init__(self, locks: Locks, name: bytes, reentrant: bool) -> None:
        """Describe an owner; `Locks.owner` makes it."""
        if name.startswith(b"."):
            raise ValueError("an owner's name must not begin with a dot")
        self._locks = locks
        self._owner_name = name
        self._is_reentrant = reentrant

    def _made(self, request: Request) -> Lock:
        return Lock(self._locks, request)


def _member(prefix: Key, event: Event) -> Member:
    key, change, token, value = event.value
    is_gone = change == "del"
    return Member(
        like(prefix, key), change, token, None if is_gone else value, value if is_gone else None
    )


def _answer(answers: set[asyncio.Future[None]], error: LockError | None = None) -> None:
    for answer in answers:
        if answer.done():
            continue
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether its body runs when what it returns is awaited."""
    return any(inspect.iscoroutinefunction(each) for each in _called(function))


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether its body runs when what it returns is iterated over."""
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(each) for each in _called(function) for is_one in kinds)


def _called(function: Callable[..., Any]) -> tuple[Any, Any]:
    return function, type(function).__call__


def _cancels_of(task: asyncio.Task[Any] | None) -> int:
    cancelling = getattr(task, "cancelling", None)
    return cancelling() if cancelling is not None else 0


__all__ = [
    "Change",
    "Closed",
    "CrossSlot",
    "Deadlock",
    "Held",
    "Leader",
    "Lock",
    "LockError",
    "Locks",
    "Lost",
    "Member",
    "NoModule",
    "NoPush",
    "Owner",
    "Refused",
    "Stale",
    "Taken",
    "Term",
    "Unfit",
    "Unreachable",
]

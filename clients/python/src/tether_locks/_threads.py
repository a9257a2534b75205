"""Locks for threads: the same as for asyncio, whose loop runs in a thread of its own.

Each process has one such thread, made when it is first needed; a child process makes its own.

A signal handler may raise an exception between any two instructions of a caller. So nothing that
must be done is left to the caller's own code:

* What a request has come to (`_Turn`) is known in the loop's thread only, where no signal is
  handled. A caller who is interrupted says so, and the loop gives back whatever is granted.
* Callers wait by a bare lock, which is C code. A `Condition` that is left in the middle of its
  Python code stays locked, and the loop with it.
* `with` may be interrupted before the first instruction of `__exit__`. So what it calls at the end
  is an object of that block's own, which lives as long as the block; when it is gone, C code alone
  says so to the loop (`_Exit`).
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import inspect
import itertools
import multiprocessing.process
import multiprocessing.util
import os
import queue
import socket
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

import redis

from . import asyncio as aio
from ._client import close_all
from ._connect import keep_from_children
from ._request import FENCE, Change, Key, Leader, Maker, Member, Request, as_bytes
from .errors import Lost, Taken, raise_if_stale

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

R = TypeVar("R")

# A program that ends does not wait for longer.
END_WITHIN_S = 0.5
# In a child of multiprocessing: after whatever else ends there, which may still need a lock.
LAST_PRIORITY = -1000
# Python runs signal handlers in its main thread, and a signal that comes in the moment before that
# thread sleeps does not wake it.
HANDLE_SIGNALS_WITHIN_S = 0.1


class _Loop(asyncio.SelectorEventLoop):
    """A loop that keeps all its sockets from child processes, whoever makes them."""

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """As of `asyncio`, which makes all connections by this."""
        keep_from_children(sock)
        await super().sock_connect(sock, address)


class _Portal:
    """The thread in which all connections of this process live."""

    def __init__(self) -> None:
        self.loop = _Loop()
        for work in (self._run, self._reap):
            threading.Thread(target=work, name="tether-locks", daemon=True).start()
        if multiprocessing.process.parent_process() is not None:
            multiprocessing.util.Finalize(None, _end_of_child, (self,), exitpriority=LAST_PRIORITY)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _reap(self) -> None:
        left = _left
        while True:
            sentinel = left.get()
            turn = sentinel.block.turn
            if turn is not None and turn.sentinel is sentinel:
                turn.drop()

    def post(self, work: Callable[[], object]) -> None:
        """Have it done there."""
        self.loop.call_soon_threadsafe(work)

    def call(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run it there; a caller who is interrupted does not want it any longer."""
        call = _Call(self, work)
        try:
            self.post(call.begin)
            return call.result()
        except BaseException:
            self.post(call.cancel)
            raise

    def finish(self, work: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Run it there, to its end even if the caller is interrupted."""
        call = _Call(self, work)
        try:
            self.post(call.begin)
            return call.result()
        except BaseException:
            self.post(call.begin)  # Unless it has begun.
            raise


class _Call(Generic[R]):
    """A coroutine in the portal, and a thread that waits for it."""

    def __init__(
        self,
        portal: _Portal,
        work: Callable[[], Coroutine[Any, Any, R]],
        give_back: Callable[[R], None] = lambda _: None,
    ) -> None:
        self._portal = portal
        self._work = work
        self._give_back = give_back
        self._task: asyncio.Task[None] | None = None
        self._has_begun = self._is_cancelled = False
        self._is_over = threading.Lock()
        self._is_over.acquire()
        self._values: list[R] = []
        self._error: BaseException | None = None

    def begin(self) -> None:
        """In the portal: begin, once."""
        if not self._has_begun and not self._is_cancelled:
            self._has_begun = True
            self._task = self._portal.loop.create_task(self._run())

    def cancel(self) -> None:
        """In the portal: end it, or give back what it has returned."""
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()
        for value in self._values:
            self._give_back(value)

    async def _run(self) -> None:
        try:
            self._values.append(await self._work())
        except BaseException as error:
            self._error = error
        # Its end runs code of asyncio's, in which the caller shall not be interrupted.
        self._task = None
        self._is_over.release()

    def result(self) -> R:
        """Wait for it."""
        is_main = threading.current_thread() is threading.main_thread()
        while not self._is_over.acquire(timeout=HANDLE_SIGNALS_WITHIN_S if is_main else -1):
            pass
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # It would keep this frame, which would keep it.
        return self._values[0]


class _Turn:
    """One request of a thread, from when it is made until what it was granted is released."""

    def __init__(self) -> None:
        self._portal: _Portal | None = None
        self._call: _Call[aio.Held] | None = None
        # Of the block in which it is held.
        self.sentinel: _Sentinel | None = None
        self.held: Held | None = None

    def take(self, lock: Lock) -> Held:
        """Acquire the lock, for a caller who drops this turn if that is interrupted."""
        self._portal = _here()
        self._call = _Call(self._portal, lock._asked().acquire, aio.Held._let_go)
        self._portal.post(self._call.begin)
        self.held = Held(self._call.result())
        return self.held

    def drop(self) -> None:
        """Give it up, or back, and wait for nothing."""
        self.unwatch()
        if self._portal is not None and self._call is not None:
            self._portal.post(self._call.cancel)

    def watch(self, sentinel: _Sentinel) -> None:
        """Be dropped when the object of this sentinel is gone."""
        # It is kept here, since a sentinel that is garbage together with its object says nothing.
        _watching[id(sentinel)] = sentinel
        self.sentinel = sentinel

    def unwatch(self) -> None:
        """It is released, or will be."""
        sentinel, self.sentinel = self.sentinel, None
        _watching.pop(id(sentinel), None)


class _Block:
    """A `with` block, and what it holds once it is entered."""

    turn: _Turn | None = None


class _Sentinel(weakref.ref[Any]):
    """Puts itself into the queue of what is to be dropped, by C code, when its object is gone."""

    block: _Block = _Block()

    def __new__(cls, what: object, block: _Block) -> _Sentinel:
        self = super().__new__(cls, what, _left.put)
        self.block = block
        return self

    def __init__(self, what: object, block: _Block) -> None: ...


class _Entered(Protocol):
    """What `with` may be used with."""

    _entered: list[tuple[int, _Turn]]

    def _turn(self) -> _Turn: ...
    def _leave(self, held: Held, error: BaseException | None) -> bool | None: ...


class _Exit:
    """`__exit__` of an object whose block ends even if a signal handler interrupts it.

    `with` and ExitStack bind `__exit__` before they call `__enter__`, and drop what they have bound
    when the block is over, in whatever way. So each block gets an object of its own, which a
    `_Sentinel` watches. It is none of Python's functions: the traceback of one that was interrupted
    would keep it.
    """

    @overload
    def __get__(self, owner: None, kind: type[object]) -> Callable[..., bool | None]: ...

    @overload
    def __get__(
        self, owner: _Entered, kind: type[object]
    ) -> Callable[
        [type[BaseException] | None, BaseException | None, TracebackType | None], bool | None
    ]: ...

    def __get__(self, owner: _Entered | None, kind: type[object]) -> Callable[..., bool | None]:
        """Bind it for one block."""
        block = _Block()
        leave = functools.partial(_leave, block, *(() if owner is None else (owner,)))
        _bound.owner, _bound.sentinel = owner, _Sentinel(leave, block)
        return leave


def _turn_of_block(owner: _Entered) -> _Turn:
    """Return a turn for the block whose `__exit__` was bound just now."""
    bound: _Entered | None = getattr(_bound, "owner", None)
    sentinel: _Sentinel | None = getattr(_bound, "sentinel", None)
    _bound.owner = _bound.sentinel = None
    turn = owner._turn()
    if bound in (owner, None) and sentinel is not None and sentinel() is not None:
        sentinel.block.turn = turn
        turn.watch(sentinel)
    else:  # `__enter__` was called by hand.
        owner._entered.append((threading.get_ident(), turn))
    return turn


def _leave(
    block: _Block,
    owner: _Entered,
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> bool | None:
    turn = block.turn
    if turn is None:
        # Of another block: of this thread's last one, or if it has none, of whoever's.
        me = threading.get_ident()
        mine = [entry for entry in owner._entered if entry[0] == me] or owner._entered
        if not mine:
            raise RuntimeError("this lock was not entered")
        entry = mine[-1]
        owner._entered.remove(entry)
        turn = entry[1]
    try:
        answer = None if turn.held is None else owner._leave(turn.held, error)
    except BaseException:
        turn.drop()
        raise
    turn.unwatch()
    return answer


_bound = threading.local()
# The one of this process; a dictionary, since it is filled in one step.
_portals: dict[str, _Portal] = {}
_left: queue.SimpleQueue[_Sentinel] = queue.SimpleQueue()
_watching: dict[int, _Sentinel] = {}
_numbers = itertools.count(1)
_threads = threading.local()
_left_to_the_parent: list[object] = []


def _forget_after_fork() -> None:
    global _portals, _left
    # Kept, since its end would touch what the parent still uses.
    _left_to_the_parent.append((_portals, _left))
    _portals, _left = {}, queue.SimpleQueue()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)


@atexit.register
def _end_of_program() -> None:
    """Give back what is held, so that a session does not keep it for its grace (P-REL-10)."""
    portal, done = _portals.get("here"), threading.Event()
    if portal is not None:
        portal.post(functools.partial(close_all, portal.loop))
        portal.post(done.set)
        done.wait(END_WITHIN_S)


def _end_of_child(portal: _Portal) -> None:
    """Do the same in a child of multiprocessing, which may end without running `atexit`.

    It finalizes before it waits for its threads, whose locks are theirs until they end.
    """
    if portal is not _portals.get("here"):
        return

    def end() -> None:
        mine = (threading.current_thread(), threading.main_thread())
        while others := [t for t in threading.enumerate() if t not in mine and not t.daemon]:
            others[0].join()
        _end_of_program()

    threading.Thread(target=end, name="tether-locks-end").start()


def _here() -> _Portal:
    portal = _portals.get("here")
    if portal is None:
        # No lock: who is interrupted could leave it locked.
        made = _Portal()
        portal = _portals.setdefault("here", made)
        if portal is not made:
            made.post(made.loop.stop)
    return portal


def _word_of_thread() -> bytes:
    """Return what tells the server that the requests of one thread wait together (P-OWNER-5)."""
    word: bytes | None = getattr(_threads, "word", None)
    if word is None:
        word = _threads.word = b"thread-%d" % next(_numbers)
    return word


class Held:
    """A lock that is held, or was."""

    def __init__(self, held: aio.Held) -> None:
        """Describe a grant."""
        self._held = held
        self.names = held.names
        self.token = held.token

    @property
    def name(self) -> Key:
        """The name of the lock; of several, the first."""
        return self.names[0]

    @property
    def lost(self) -> str | None:
        """Why the lock is not held any longer, or None while it is."""
        return self._held.lost

    def check(self) -> None:
        """Raise `Lost` if the lock is lost. Asks nobody: call it as often as you like."""
        self._held.check()

    def check_server(self) -> None:
        """Ask the server whether it is held; raise `Lost` if not, `Stale` if the server says so.

        One request for each name, on the connection of the locks, and at most the fence's time.
        """
        self.check()
        _here().call(self._held.check_server)

    def run(self, *command: Any, on: redis.Redis) -> Any:
        """Run one command only while the server knows the lock as held; return its raw reply.

        `on` is a client of `redis` for the data. Its pool may be any; its server and
        database must be those of the locks, and in a cluster the keys in the slot of the name. The
        server checks and runs in one step (LOCK.GUARD). If the lock is not held, nothing is run:
        `Stale`. Of several names the first one counts. That client raises what the command's own
        error is, and if its connection breaks, the command may have been run.
        """
        self.check()
        client: Any = on
        key = self._held._key
        try:
            return client.execute_command("LOCK.GUARD", key, self.token, *command)
        except redis.ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    def run_on(
        self,
        client: redis.Redis,
        script: str,
        *,
        fence: Key,
        keys: Sequence[Key] = (),
        args: Sequence[Any] = (),
    ) -> Any:
        """Run a Lua script on data of another server, unless it saw a greater token: `Stale`.

        `client` is one of `redis`, and the server need not have the module.
        `fence` is a key there in which the greatest token is kept, without an expiry; in a cluster
        it is in the slot of `keys`. In the script, `KEYS` and `ARGV` are `keys` and `args`. What
        that server forgets (eviction, a flush, a failover) the fence forgets too.
        """
        self.check()
        fenced: Any = client.register_script(FENCE + script)
        try:
            return fenced(keys=[fence, *keys], args=[self.token, *args])
        except redis.ResponseError as error:
            raise_if_stale(error, self.lost)
            raise

    def release(self) -> None:
        """Give the lock back; raise `Lost` if it was lost. A second time does nothing.

        If the server refuses it for now, this returns; if for good, this raises `Refused`. In both
        cases it is sent again until the server takes it.
        """
        if self.lost == "fork":
            self.check()
        _here().finish(self._held.release)

    def extend(self, lease: float) -> None:
        """Let the lock end so many seconds from now, if it is not extended again."""
        self._held.check()
        _here().call(functools.partial(self._held.extend, lease))

    def until_lost(self) -> str:
        """Wait until the lock is not held any longer, and return why."""
        return self.lost or _here().call(self._held.until_lost)


class Lock:
    """A lock to be acquired: `with` it, or `lock.acquire()`.

    Any number of threads may use one: each has a request of its own.
    """

    def __init__(self, locks: Locks, request: Request) -> None:
        """Describe a lock; `Locks` makes it."""
        self._locks = locks
        self._request = request
        self._entered: list[tuple[int, _Turn]] = []

    def acquire(self) -> Held:
        """Acquire it. Whoever calls this must release it.

        Whoever waits goes on when the connection ends or cannot be made, for as long as was said.
        """
        turn = _Turn()
        try:
            return turn.take(self)
        except BaseException:
            turn.drop()
            raise

    def __enter__(self) -> Held:
        """Acquire it. Each block has a hold of its own."""
        turn = _turn_of_block(self)
        try:
            return turn.take(self)
        except BaseException:
            turn.drop()
            self._entered = [entry for entry in self._entered if entry[1] is not turn]
            raise

    # Releases it; raises `Lost` if it was lost, unless the body has raised something else.
    __exit__ = _Exit()

    def _asked(self) -> aio.Lock:
        return aio.Lock(self._locks._locks, self._request, _word_of_thread())

    def _turn(self) -> _Turn:
        return _Turn()

    def _leave(self, held: Held, error: BaseException | None) -> None:
        try:
            held.release()
        except Lost:
            if error is None:
                raise


class Term:
    """A leader's term of office: `with` it. Its loss is no error."""

    def __init__(self, turn: _Turn, held: Held) -> None:
        """Begin a term that holds this lock."""
        self._whole = turn
        self._entered: list[tuple[int, _Turn]] = []
        self._held = turn.held = held
        self.token = held.token
        self.was_used = False

    def __enter__(self) -> Held:
        """Govern: look at `lost`, or call `check`, before each step."""
        _turn_of_block(self)
        self.was_used = True
        return self._held

    # Steps down, or ends because the term was lost.
    __exit__ = _Exit()

    def _turn(self) -> _Turn:
        return self._whole

    def _leave(self, held: Held, error: BaseException | None) -> bool:
        with contextlib.suppress(Lost):
            held.release()
        return isinstance(error, Lost)


class Locks(Maker[Lock]):
    """Locks of one server, on one connection that all threads share.

    It connects when something is first asked for, and again whenever that is needed: one object
    lasts as long as the program. Without a grace, what is held is lost when the connection ends.
    With one the connection is made anew at once, and what is held goes on there. A child process
    has a connection of its own.
    """

    def __init__(self, server: Any = "redis://localhost:6379", **options: Any) -> None:
        """Name the server; what it takes is what `tether_locks.asyncio.Locks` takes."""
        self._locks = aio.Locks(server, **options)

    def owner(self, name: Key, *, reentrant: bool = False) -> Owner:
        """Return the same for an owner with this name, which must not begin with a dot.

        Requests of one owner for one lock exclude each other at once: `Deadlock`, or `Taken` if
        they do not wait. With `reentrant` an owner that has it gets it again.
        """
        return Owner(self, as_bytes(name), reentrant)

    def elect(self, name: Key, value: Key = b"") -> Iterator[Term]:
        """Stand for election again and again; yield a term whenever it is won.

        `value` tells those who `observe` where the leader is. Goes on while the server cannot be
        reached. A term that the caller does not enter with `with` ends when the next one is asked
        for.
        """
        while True:
            turn = _Turn()
            term = None
            try:
                term = Term(turn, turn.take(self.temporary_key(name, value, wait=None)))
                yield term
                if not term.was_used:
                    with contextlib.suppress(Lost):
                        term._held.release()
            finally:
                if term is None or not term.was_used:
                    turn.drop()

    def observe(self, name: Key) -> Iterator[Leader | None]:
        """Yield who leads, or None for nobody: now, and whenever that changes."""
        return _taken_by_thread(lambda: self._locks.observe(name))

    def watch(self, *names: Key) -> Iterator[Change]:
        """Yield whether these keys exist, and then each change, also over broken connections."""
        return _taken_by_thread(lambda: self._locks.watch(*names))

    def presence(self, prefix: Key) -> Iterator[Member]:
        """Yield each temporary key whose name begins so, and then each change of them."""
        return _taken_by_thread(lambda: self._locks.presence(prefix))

    def _made(self, request: Request) -> Lock:
        return Lock(self, request)

    def singleton(
        self, name: Key, *, wait: float = 0, lease: float | None = None
    ) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
        """Let only one call of a function run at a time, wherever; others return None at once.

        What runs after its call, a coroutine or a generator, is refused: TypeError.
        """

        def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
            if aio.is_coroutine(function):
                raise TypeError("a coroutine runs after its call: use tether_locks.asyncio for it")
            if aio.is_generator(function):
                raise TypeError("a generator runs after its call, so nothing would guard it")

            @functools.wraps(function)
            def alone(*args: P.args, **kwargs: P.kwargs) -> R | None:
                is_alone = False
                try:
                    with self.lock(name, wait=wait, lease=lease):
                        is_alone = True
                        value = function(*args, **kwargs)
                        if inspect.iscoroutine(value) or inspect.isgenerator(value):
                            value.close()
                            raise TypeError("what was returned would run without the lock")
                        return value
                except Taken:
                    if is_alone:
                        raise
                    return None

            return alone

        return decorate

    def close(self) -> None:
        """End the connection; whatever is still held is lost."""
        _here().finish(self._locks.close)

    def __enter__(self) -> Locks:
        """Do nothing: it connects when a lock is asked for."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close it."""
        self.close()


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


def _taken_by_thread(begin: Callable[[], AsyncIterator[R]]) -> Iterator[R]:
    """Iterate here over what is watched in the portal; its end ends the watch."""
    portal = _here()
    changes: list[Any] = []

    async def first() -> R:
        changes.append(begin())
        return await following()

    async def following() -> R:
        value: R = await changes[0].__anext__()
        return value

    async def end() -> None:
        for each in changes:
            await each.aclose()

    try:
        yield portal.call(first)
        while True:
            yield portal.call(following)
    finally:
        portal.post(lambda: portal.loop.create_task(end()))

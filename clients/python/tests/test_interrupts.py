"""Exceptions that signal handlers raise, such as a soft time limit, at every moment of a call.

What is not Python's own code cannot be interrupted, so that tracing each instruction of it reaches
every moment at which a handler can run; and more, since handlers run between few instructions only.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any

import pytest

import tether_locks
from tether_locks import Locks
from tether_locks import asyncio as aio
from tether_locks._threads import _Portal
from tether_locks.core import Core

from .conftest import DEADLINE_S, Server, client_of, eventually

HERE = tether_locks._threads.__file__


class TooLate(Exception):
    """What the handler raises."""


@contextlib.contextmanager
def alarms() -> Iterator[None]:
    """Let SIGALRM raise `TooLate`: again later, where Python ignores that, as in a finalizer."""

    def too_late(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 5)
        raise TooLate

    before = signal.signal(signal.SIGALRM, too_late)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Interrupt:
    """Raises `TooLate` before the instruction with this number that a call of ours executes."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0
        self.where = ""
        # One object, which lives on: Python does not keep it while it runs.
        self._tracer = self._trace

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.where or not is_ours(frame):
            return None
        # In the code of others each line is enough.
        frame.f_trace_opcodes = frame.f_code.co_filename == HERE
        # An instruction begins each line; and CPython 3.9 loses what is raised before both.
        what = "opcode" if frame.f_trace_opcodes else "line"
        if event in ("call", what) and not is_return_to_caller(frame):
            self.count += 1
            if self.count == self.at:
                self.where = f"{event} at {frame.f_code.co_filename}:{frame.f_lineno}"
                raise TooLate  # Which ends the tracing.
        return self._tracer

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        sys.settrace(self._tracer)
        try:
            yield
        finally:
            sys.settrace(None)


def is_ours(frame: FrameType) -> bool:
    """Whether this is code of the client, or was called by it."""
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_filename == HERE:
            return True
        outer = outer.f_back
    return False


def is_return_to_caller(frame: FrameType) -> bool:
    """No handler runs between the end of a call and what its caller does with the value."""
    caller = frame.f_back
    instruction = frame.f_code.co_code[frame.f_lasti] if frame.f_lasti >= 0 else -1
    is_return = dis.opname[instruction].startswith("RETURN") if instruction >= 0 else False
    is_from_us = frame.f_code.co_filename == HERE
    return is_return and is_from_us and caller is not None and caller.f_code.co_filename != HERE


def with_block(locks: Locks) -> None:
    with locks.lock("a") as held:
        held.check()


def kept_lock(locks: Locks) -> Callable[[Locks], None]:
    lock = locks.semaphore("a", of=2)

    def work(_: Locks) -> None:
        with lock:
            pass

    return work


def exit_stack(locks: Locks) -> None:
    with contextlib.ExitStack() as stack:
        stack.enter_context(locks.lock("a"))


def acquire_and_release(locks: Locks) -> None:
    held = locks.lock("a").acquire()
    try:
        held.extend(60)
    finally:
        # Who is interrupted before the first instruction may call it again.
        release = held.release
        try:
            release()
        except TooLate:
            held.release()
            raise


def singleton(locks: Locks) -> None:
    locks.singleton("a")(lambda: None)()


def term(locks: Locks) -> None:
    for each in locks.elect("a"):
        with each:
            break


WAYS = [with_block, kept_lock, exit_stack, acquire_and_release, singleton, term]


# A generator that is dropped is closed where Python raises nothing.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_an_exception_before_any_instruction_leaves_nothing_held(
    server: Server, way: Callable[..., Any]
) -> None:
    with Locks(server.url) as locks:
        work = way(locks) if way is kept_lock else way
        work(locks)
        client = client_of(locks._locks)
        at = 0
        while True:
            at += 1
            interrupt = Interrupt(at)
            try:
                with interrupt.armed():
                    work(locks)
            except TooLate:
                pass
            if not interrupt.where:
                break
            # Others are served: what is left behind would keep them waiting.
            until_idle(locks, f"after {interrupt.where}", is_kept=way is exit_stack)
        assert at > 100
        assert client_of(locks._locks) is client
        assert server.gauge("holds") == server.gauge("waiters") == 0
        print(f"{way.__name__}: interrupted at {at - 1} instructions")


def until_idle(locks: Locks, when: str, is_kept: bool = False) -> None:
    client = client_of(locks._locks)
    requests = client.core.requests
    for _ in range(3000):
        if not requests.all:
            return
        time.sleep(0)
    if is_kept:
        gc.collect()  # ExitStack keeps what it was interrupted in, in a cycle.
    try:
        eventually(lambda: not requests.all)
    except AssertionError:
        raise AssertionError(when) from None


def test_an_exception_at_any_moment_of_time_leaves_no_orphans_and_nothing_held(
    server: Server,
) -> None:
    """TETHER_STEPS interrupted acquires, by signals at random moments."""
    steps = int(os.environ.get("TETHER_STEPS", "400"))
    server.forgive_silence()
    dice = random.Random(int(os.environ.get("TETHER_SEED", "1")))
    with alarms(), Locks(server.url) as locks, Locks(server.url) as others:
        lock = locks.lock("a")
        with lock:
            pass
        were_interrupted = 0
        for number in range(steps):
            taken = others.lock("a").acquire() if number % 4 == 0 else None
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.00001, 0.002))
                while True:
                    with lock if number % 2 else locks.all("a", "b"):
                        pass
            except TooLate:
                signal.setitimer(signal.ITIMER_REAL, 0)
                were_interrupted += 1
            if taken is not None:
                taken.release()
            until_idle(locks, f"{number}")
        assert were_interrupted == steps
        print(f"{were_interrupted} acquires were interrupted")
        server.free()


def test_who_waits_is_interrupted_and_leaves_the_queue(server: Server) -> None:
    with alarms(), Locks(server.url) as locks, Locks(server.url) as others, others.lock("a"):
        main = threading.get_ident()

        def interrupt() -> None:
            try:
                server.waiting(1)
            finally:  # Else the wait would not end.
                signal.pthread_kill(main, signal.SIGALRM)

        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(interrupt)
            with pytest.raises(TooLate), locks.lock("a"):
                pass
            signal.setitimer(signal.ITIMER_REAL, 0)
            asked.result()
        server.waiting(0)
    server.free()


def test_a_signal_just_before_a_wait_is_handled_during_it(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(1)
    post = _Portal.post

    def post_and_interrupt(portal: _Portal, work: Callable[[], object]) -> None:
        post(portal, work)
        if is_armed.is_set():
            is_armed.clear()
            signal.setitimer(signal.ITIMER_REAL, dice.uniform(1e-6, 6e-5))

    monkeypatch.setattr(_Portal, "post", post_and_interrupt)
    is_armed = threading.Event()
    with alarms(), Locks(server.url) as locks, Locks(server.url) as others:
        held = others.lock("a").acquire()
        # Else the test would not end.
        helper = threading.Timer(2 * DEADLINE_S, held.release)
        helper.start()
        for _ in range(300):
            is_armed.set()
            with pytest.raises(TooLate):
                locks.lock("a").acquire()
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert held.lost is None
        assert helper.is_alive()
        helper.cancel()
        held.release()
    server.free()


def test_closing_is_finished_though_it_is_interrupted(server: Server) -> None:
    at = again = 0
    while True:
        at += 1
        locks = Locks(server.url)
        locks.lock("a").acquire()
        client = client_of(locks._locks)
        core = client.core
        interrupt = Interrupt(at)
        try:
            with interrupt.armed():
                locks.close()
        except TooLate:
            time.sleep(0.02)
            if not core.is_closed:  # It had not begun.
                locks.close()
                again += 1
        if not interrupt.where:
            break
        eventually(functools.partial(has_ended, core))
    assert 0 < again < at
    server.free()


def has_ended(core: Core) -> bool:
    return core.is_closed and core.link == "none"


def test_what_would_run_without_the_lock_is_refused(server: Server) -> None:
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    async def generator_of_asyncio() -> Any:
        yield 1

    class Called:
        async def __call__(self) -> None: ...

    with Locks(server.url) as locks:
        for function in (coroutine, generator, generator_of_asyncio, Called()):
            with pytest.raises(TypeError, match="after its call"):
                locks.singleton("a")(function)
        for hidden in (lambda: coroutine(), lambda: generator()):
            with pytest.raises(TypeError, match="without the lock"):
                locks.singleton("a")(hidden)()
    others = aio.Locks(server.url)
    for function in (generator, generator_of_asyncio):
        with pytest.raises(TypeError, match="after its call"):
            others.singleton("a")(function)  # type: ignore[arg-type]
    server.free()

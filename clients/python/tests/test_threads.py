"""Locks for threads, on a real server."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from tether_locks import Deadlock, Held, Lock, Locks, Lost, Stale, Taken, Unreachable

from .conftest import DEADLINE_S, Server, a_child_without, client_of, eventually


def test_a_lock_is_held_within_its_block(server: Server, locks: Locks) -> None:
    with locks.lock("report", wait=5) as held:
        assert server.held("report")
        assert (held.name, held.lost) == ("report", None)
        held.check()
    assert not server.held("report")
    assert held.lost == "released"
    with locks.lock("report") as again:
        assert again.token > held.token


def test_the_server_is_asked_whether_a_lock_is_held(server: Server, locks: Locks) -> None:
    with locks.lock("a") as held:
        held.check_server()
        aside, held._held.token = held.token, 1
        with pytest.raises(Stale, match="token 1 is not current"):
            held.check_server()
        held._held.token = aside
    with pytest.raises(Lost):
        held.check_server()


def test_a_command_is_run_only_while_the_lock_is_held(server: Server, locks: Locks) -> None:
    data = redis.Redis(port=server.port, decode_responses=True)
    with locks.lock("a") as held:
        assert held.run("SET", "report", "new", on=data) == "OK"
        assert held.run("INCRBY", b"visits", 3, on=data) == 3
        # An error of the command's own is the client's.
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            held.run("LPUSH", "report", 1, on=data)
        held._held.token, aside = 1, held.token
        held.token = 1
        with pytest.raises(Stale, match="token 1 is not current"):
            held.run("SET", "report", "old", on=data)
        held.token = held._held.token = aside
        assert data.get("report") == "new"
    with pytest.raises(Lost, match="released"):
        held.run("SET", "report", "old", on=data)
    assert data.get("report") == "new"
    data.close()


def test_who_has_not_heard_of_a_loss_writes_nothing(server: Server, locks: Locks) -> None:
    held = locks.lock("a").acquire()
    client = client_of(locks._locks)
    client.core._pushed = lambda *_: None  # type: ignore[method-assign]
    server.run("DEL", "a")
    with Locks(server.url) as others, others.lock("a") as other:
        held.check()
        with pytest.raises(Stale, match=f"the key is held with token {other.token}"):
            held.run("SET", "report", "old", on=server.client)
        assert other.run("SET", "report", "new", on=server.client)
    assert server.client.get("report") == b"new"


def test_threads_take_turns(server: Server, locks: Locks) -> None:
    inside = 0

    def work(_: int) -> None:
        nonlocal inside
        for _ in range(20):
            with locks.lock("a"):
                inside += 1
                assert inside == 1
                inside -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert server.gauge("handoffs_total") > 0


def test_waiting_readers_permits_and_several_at_once(server: Server, locks: Locks) -> None:
    with locks.lock("r", shared=True), locks.semaphore("s", 2, of=3), locks.all("x", "y"):

        def other() -> None:
            with locks.lock("r", shared=True, wait=0), locks.semaphore("s", of=3, wait=0):
                pass
            for lock in (
                locks.lock("r", wait=0),
                locks.lock("r", wait=0.05),
                locks.semaphore("s", 2, of=3, wait=0),
                locks.all("z", "y", wait=0),
            ):
                with pytest.raises(Taken), lock:
                    pass

        with ThreadPoolExecutor(1) as pool:
            pool.submit(other).result()
        with pytest.raises(Deadlock), locks.lock("x"):
            pass


def test_a_loss_is_seen_and_ends_the_block(server: Server, locks: Locks) -> None:
    def block(lose_it: Callable[[], Any]) -> str:
        with pytest.raises(Lost) as lost, locks.lock("a") as held:
            lose_it()
            assert held.until_lost() == held.lost
            with pytest.raises(Lost):
                held.check()
            with pytest.raises(Lost):
                held.extend(1)
        return lost.value.reason

    assert block(lambda: server.run("DEL", "a")) == "deleted"
    assert block(server.kill_clients) == "connection"
    with pytest.raises(KeyError), locks.lock("a") as held:
        server.run("DEL", "a")
        held.until_lost()
        raise KeyError
    with pytest.raises(Lost), locks.lock("a", lease=3600) as held:
        held.extend(0.05)
        assert held.until_lost() == "lease"


def test_an_interrupt_while_waiting_gives_the_place_up(server: Server, locks: Locks) -> None:
    with Locks(server.url) as others, others.lock("a"):
        main = threading.get_ident()

        def interrupt() -> None:
            server.waiting(1)
            signal.pthread_kill(main, signal.SIGINT)

        with ThreadPoolExecutor(1) as pool:
            pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                locks.lock("a").acquire()
        server.waiting(0)
    server.free()


def test_terms_end_with_their_loss(server: Server, locks: Locks) -> None:
    tokens = []
    for term in locks.elect("leader"):
        with term as held:
            tokens.append(held.token)
            if len(tokens) == 1:
                server.kill_clients()
                held.until_lost()
                held.check()
            elif len(tokens) == 2:
                server.run("DEL", "leader")
                held.until_lost()
        if len(tokens) == 3:
            break
    assert tokens == sorted(set(tokens))


def test_a_singleton_runs_once_at_a_time(server: Server, locks: Locks) -> None:
    go_on = threading.Event()

    @locks.singleton("nightly")
    def job(number: int) -> int:
        go_on.wait(DEADLINE_S)
        return number

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(job, 1)
        eventually(lambda: server.held("nightly"))
        assert job(2) is None
        go_on.set()
        assert first.result() == 1
    assert job(number=3) == 3


def test_a_child_process_has_no_part_in_its_parents_locks(server: Server, locks: Locks) -> None:
    with locks.lock("a") as held:
        child = os.fork()
        if child == 0:
            os._exit(in_a_child(server, locks, held))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.check()


def child_of_multiprocessing(url: str, locks: Locks, held: Held, lock: Lock) -> None:
    for use in (held.check, held.release, held.check_server, lambda: held.extend(5)):
        with pytest.raises(Lost, match="fork"):
            use()
    assert held.until_lost() == "fork"
    # The lock is taken after the fork: this process is a client of its own.
    with pytest.raises(Taken):
        locks.lock("a", wait=0).acquire()
    with lock as own:
        own.check_server()
    redis.Redis.from_url(url).set("child", "done")
    time.sleep(DEADLINE_S)


@pytest.mark.parametrize("options", [{}, {"grace": 30}])
def test_a_forked_worker_has_no_part_in_the_locks_and_does_not_keep_them(
    server: Server, options: dict[str, Any]
) -> None:
    """As a prefork server and multiprocessing make them, which end after their parent."""
    fork = multiprocessing.get_context("fork")
    with Locks(server.url, **options) as locks:
        held = locks.lock("a").acquire()
        lock = locks.lock("b")
        with lock:
            pass
        child = fork.Process(target=child_of_multiprocessing, args=(server.url, locks, held, lock))
        child.start()
        try:
            eventually(lambda: server.client.get("child") == b"done" or child.exitcode is not None)
            assert child.exitcode is None
            held.check_server()
            # The parent's connection ends with the parent's use of it.
            locks.close()
            eventually(lambda: not server.held("a"))
            assert child.is_alive()
        finally:
            child.kill()
            child.join()


def test_a_fork_while_the_connection_is_made_leaves_it_to_the_parent() -> None:
    """Its socket is in no object of redis-py's yet."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        locks = Locks(f"redis://127.0.0.1:{port}", connect_timeout=DEADLINE_S)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(lambda: locks.lock("a").acquire())
            there, _ = listening.accept()
            there.settimeout(DEADLINE_S)
            with there, a_child_without(listening, there):
                assert there.recv(5)
                locks.close()
                with pytest.raises(Unreachable):
                    asking.result()
                while there.recv(4096):
                    pass


KINDS: dict[str, Callable[[Locks], Lock]] = {
    "exclusive": lambda locks: locks.lock("a"),
    "shared": lambda locks: locks.lock("a", shared=True),
    "permits": lambda locks: locks.semaphore("a", of=3),
    "several": lambda locks: locks.all("a", "b"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_lock_object_serves_any_number_of_threads(
    server: Server, locks: Locks, kind: str
) -> None:
    lock = KINDS[kind](locks)
    most = {"exclusive": 1, "shared": 8, "permits": 3, "several": 1}[kind]
    inside: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with lock as held:
                inside.append(held.token)
                assert len(inside) <= most
                # Whoever leaves first is not whoever came last.
                time.sleep(random.random() / 500)
                held.check()
                inside.remove(held.token)
            assert held.lost == "released"

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    server.free()
    # The server knows that a thread which has it would wait for itself. Others may enter at once.
    again = contextlib.nullcontext() if kind in ("shared", "permits") else pytest.raises(Deadlock)
    with lock, again, lock:
        pass
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock)
        with again, lock:
            pass
    server.free()


def test_a_block_may_be_left_by_another_thread(server: Server, locks: Locks) -> None:
    stack = contextlib.ExitStack()
    stack.enter_context(locks.lock("a"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stack.close).result()
    server.free()
    lock = locks.lock("a")
    lock.__enter__()
    lock.__exit__(None, None, None)
    server.free()
    with pytest.raises(RuntimeError, match="not entered"):
        lock.__exit__(None, None, None)
    # To look at it is not to leave it.
    with lock as held:
        assert hasattr(lock, "__exit__")
        held.check_server()


def in_a_child(server: Server, locks: Locks, held: Held) -> int:
    try:
        with pytest.raises(Lost, match="fork"):
            held.check()
        with pytest.raises(Lost, match="fork"):
            held.release()
        with pytest.raises(Taken):
            locks.lock("a", wait=0).acquire()
        with locks.lock("b"):
            assert server.held("a")
        return 0
    except BaseException:
        return 1


def test_a_lock_ends_with_the_process_though_its_children_live(server: Server) -> None:
    """A child has copies of its parent's sockets, which would keep the connection open."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        Locks(server.url).lock("a").acquire()
        child = os.fork()
        if child == 0:
            time.sleep(DEADLINE_S)
        else:
            os.write(writer, b"%d" % child)
            time.sleep(DEADLINE_S)
        os._exit(0)
    child = int(os.read(reader, 20))
    try:
        assert server.held("a")
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        eventually(lambda: not server.held("a"))
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.close(reader)
        os.close(writer)

"""`singleton` under the real Celery and the real APScheduler, with the programs of README.md."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from celery import Celery

import tether_locks.asyncio as aio
from tether_locks import Locks

from .conftest import DEADLINE_S, Server, eventually
from .test_readme import ADDRESS, program

# Made before the worker forks, with a connection of the parent's; and a job that says what it does.
MORE = """
import os, redis, time
from tether_locks.compat.celery import LockedTask
with locks.lock("before the fork"):
    pass

@app.task
@locks.singleton("slow")
def slow(seconds):
    server = redis.Redis.from_url(ADDRESS)
    at_once = server.incr("at once")
    server.rpush("pids", os.getpid())
    time.sleep(seconds)
    server.decr("at once")
    return at_once

@app.task(base=LockedTask, locks=locks)
def based():
    return "done"
"""


@contextlib.contextmanager
def running(folder: pathlib.Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program of a process group of its own, which ends with the block."""
    with (folder / "log").open("wb") as log:
        child = subprocess.Popen(
            [sys.executable, *words], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        print((folder / "log").read_text())


@pytest.fixture
def celery(server: Server, tmp_path: pathlib.Path) -> Iterator[Celery]:
    """The program of README.md as a worker with two processes, and an application to call it."""
    settings: dict[str, Any] = {"broker_url": server.url, "result_backend": server.url}
    if redis.VERSION < (6, 1):  # The lowest with which Celery speaks to a Redis server.
        queue = tmp_path / "queue"
        queue.mkdir()
        folders = dict.fromkeys(("data_folder_in", "data_folder_out", "control_folder"), str(queue))
        settings = {"broker_url": "filesystem://", "broker_transport_options": folders}
        settings["result_backend"] = queue.as_uri()
    jobs = program("Celery(") + f"\napp.conf.update({settings!r})\n" + MORE
    jobs = jobs.replace(ADDRESS, server.url).replace("ADDRESS", repr(server.url))
    (tmp_path / "jobs.py").write_text(jobs)
    words = "-m celery -A jobs worker --pool prefork --concurrency 2 --prefetch-multiplier 1"
    with running(tmp_path, *words.split(" ")):
        app = Celery()
        app.conf.update(settings)
        yield app
        app.close()


def result(call: Any) -> Any:
    return call.get(timeout=DEADLINE_S, interval=0.02)


def test_a_task_of_celery_runs_once_at_a_time(server: Server, celery: Celery) -> None:
    for task, lock in (("jobs.nightly", "nightly"), ("jobs.based", "jobs.based")):
        assert result(celery.send_task(task)) == "done"
        with Locks(server.url) as others, others.lock(lock):
            assert result(celery.send_task(task)) is None
        assert result(celery.send_task(task)) == "done"
    # Two at once, each in a process of its own: one of them finds the lock taken.
    first = celery.send_task("jobs.slow", [2.0])
    eventually(lambda: bool(server.client.llen("pids")))
    assert result(celery.send_task("jobs.slow", [0.0])) is None
    assert result(first) == 1
    assert result(celery.send_task("jobs.slow", [0.0])) == 1


def test_a_task_whose_process_is_killed_leaves_its_lock_at_once(
    server: Server, celery: Celery
) -> None:
    celery.send_task("jobs.slow", [10 * DEADLINE_S])
    eventually(lambda: bool(server.client.llen("pids")))
    assert server.held("slow")
    os.kill(int(server.client.lindex("pids", 0)), signal.SIGKILL)
    server.client.delete("at once")
    eventually(lambda: not server.held("slow"))
    assert result(celery.send_task("jobs.slow", [0.0])) == 1


def test_the_program_for_apscheduler_runs_its_job(server: Server, tmp_path: pathlib.Path) -> None:
    text = program("apscheduler").replace(ADDRESS, server.url)
    daily = '"cron", hour=3'
    assert daily in text
    (tmp_path / "jobs.py").write_text(text.replace(daily, '"interval", seconds=0.1'))

    def said() -> int:
        return (tmp_path / "log").read_text().count("done\n")

    with running(tmp_path, "-u", "jobs.py"):
        eventually(lambda: said() >= 2)
        with Locks(server.url) as others, others.lock("nightly", wait=DEADLINE_S):
            before = said()
            time.sleep(1)  # Ten jobs, of which each finds the lock taken.
            assert said() == before
        after = said()
        eventually(lambda: said() > after + 1)


def test_jobs_of_two_schedulers_take_turns(server: Server) -> None:
    """Each has its own locks, as in a process of its own; a job that finds another left it out."""
    inside = most = ran = 0
    with Locks(server.url) as ann, Locks(server.url) as bob:
        schedulers = [BackgroundScheduler(), BackgroundScheduler()]
        for scheduler, locks in zip(schedulers, (ann, bob)):

            def job(locks: Locks = locks) -> None:
                def body() -> None:
                    nonlocal inside, most, ran
                    inside += 1
                    most = max(most, inside)
                    locks.lock("a moment").acquire().release()
                    inside -= 1
                    ran += 1

                locks.singleton("nightly")(body)()

            scheduler.add_job(job, "interval", seconds=0.01, max_instances=3)
            scheduler.start()
        eventually(lambda: ran >= 20)
        for scheduler in schedulers:
            scheduler.shutdown()
    assert most == 1
    server.free()


def test_a_coroutine_is_a_job_of_apscheduler(server: Server) -> None:
    async def story() -> None:
        async with aio.Locks(server.url) as locks, aio.Locks(server.url) as others:
            ran = asyncio.Event()

            @locks.singleton("nightly")
            async def nightly() -> None:
                ran.set()

            scheduler = AsyncIOScheduler()
            held = await others.lock("nightly").acquire()
            scheduler.add_job(nightly, "interval", seconds=0.02, max_instances=3)
            scheduler.start()
            await asyncio.sleep(0.3)
            assert not ran.is_set()
            await held.release()
            await asyncio.wait_for(ran.wait(), DEADLINE_S)
            scheduler.shutdown()

    asyncio.run(story())
    server.free()

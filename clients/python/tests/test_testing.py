"""`tether_locks.testing`, with the command line that TETHER_PROGRAM names."""

from __future__ import annotations

import asyncio
import os
import pathlib
import time
from collections.abc import Iterator

import pytest

import tether_locks.asyncio as aio
from tether_locks import Locks, Lost, Refused, Taken, testing
from tether_locks.testing import DevServer

from .test_readme import program


@pytest.fixture
def server() -> Iterator[DevServer]:
    if "TETHER_PROGRAM" not in os.environ:
        pytest.skip("TETHER_PROGRAM names no command line")
    with DevServer() as server:
        yield server


def test_losses_and_refusals_come_by_levers(server: DevServer) -> None:
    with Locks(server.url) as locks:
        with pytest.raises(Taken), locks.lock("a"), Locks(server.url) as others:
            others.lock("a", wait=0).acquire()
        with pytest.raises(Lost, match="evicted"), locks.lock("a") as held:
            server.lose("a", "evicted")
            held.until_lost()
        with pytest.raises(Lost, match="connection"), locks.lock("a") as held:
            server.drop()
            held.until_lost()
        server.refuse("NOREPLICAS")
        with pytest.raises(Refused, match="NOREPLICAS"):
            locks.lock("a", wait=0).acquire()
        server.accept()
        with pytest.raises(Lost, match="lease"), locks.lock("a", lease=1000) as held:
            server.advance(1000)
            held.until_lost()
        assert server.run("EXISTS", "a") == 0


def test_the_example_says_what_it_prints(
    server: DevServer, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(program("DevServer("), {})
    assert capsys.readouterr().out == "lease\n"


def test_silence_is_a_loss_too(server: DevServer) -> None:
    async def story() -> None:
        async with aio.Locks(server.url, fence=0.2) as locks, locks.lock("a"):
            await asyncio.to_thread(server.silent, 5)
            await asyncio.sleep(60)

    with pytest.raises(Lost, match="silence"):
        asyncio.run(story())


def test_a_program_that_is_none_is_said_to_be_one() -> None:
    with pytest.raises(FileNotFoundError, match="TETHER_PROGRAM"), DevServer("no-such-program"):
        pass
    with pytest.raises(RuntimeError, match="does not start"), DevServer("true"):
        pass


def test_a_program_that_says_nothing_is_not_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor its child, which has the same pipe."""
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 20\nexit\n")
    silent.chmod(0o700)
    monkeypatch.setattr(testing, "READY_WITHIN_S", 0.5)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="silent devserver does not start: it says nothing"):
        DevServer(str(silent)).__enter__()
    assert time.monotonic() - began < 15

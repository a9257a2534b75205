"""The program of docs/comparison.md, and what the page says of its steps."""

from __future__ import annotations

import pathlib
import re
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tether_locks import Lost

from .conftest import DEADLINE_S, Server, eventually
from .test_readme import ADDRESS

PAGE = pathlib.Path(__file__).parents[3] / "docs" / "comparison.md"
Step = Callable[[str], AbstractContextManager[None]]


@pytest.fixture
def step(server: Server, capsys: pytest.CaptureFixture[str]) -> Step:
    """What a process of the page's program locks by."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(text.replace(ADDRESS, server.url), names)
    assert capsys.readouterr().out.splitlines() == re.findall("# prints: (.*)", text)
    lock: Step = names["report_lock"]
    return lock


def excludes(step: Step, first: str, second: str) -> bool:
    """Whether a process of the second step waits for one of the first."""
    inside = threading.Event()

    def work() -> None:
        with step(second):
            inside.set()

    other = threading.Thread(target=work, daemon=True)
    with step(first):
        other.start()
        came_in = inside.wait(0.5)
    other.join(DEADLINE_S)
    assert inside.is_set()
    return not came_in


@pytest.mark.parametrize(("first", "second"), [("old", "both"), ("both", "new")])
def test_a_deployment_excludes_the_one_before_and_itself(
    server: Server, step: Step, first: str, second: str
) -> None:
    for one in (first, second):
        for other in (first, second):
            assert excludes(step, one, other)
    server.free()


def test_the_first_and_the_last_deployment_do_not_exclude_each_other(step: Step) -> None:
    assert not excludes(step, "old", "new")
    assert not excludes(step, "new", "old")


def test_in_the_middle_the_old_lock_goes_on_when_the_connection_breaks(
    server: Server, step: Step, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Lost), step("both"):
        assert 0 < server.client.pttl("report") <= 30000
        server.kill_clients()  # tether's lock ends with the connection, the old one does not.
        eventually(lambda: not server.held("report:lock"))
        eventually(lambda: "lost lock 'report:lock'" in caplog.text)
        assert server.held("report")
    assert not server.held("report")

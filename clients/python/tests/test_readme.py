"""The examples of README.md and docs/managed.md, run as they stand there."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

import tether_locks

from .conftest import DEADLINE_S, Server

README = pathlib.Path(__file__).parent.parent / "README.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
ADDRESS = "redis://localhost:6379"


def test_the_readme_has_examples_for_threads_and_for_asyncio() -> None:
    assert len(EXAMPLES) >= 4
    assert "import Locks" in EXAMPLES[0]
    assert any("tether_locks.asyncio" in example for example in EXAMPLES)


# Programs that go on until they are ended, or need another server: test_jobs.py, test_addresses.py
# and test_testing.py run them.
ELSEWHERE = ("Celery(", "BlockingScheduler(", "Sentinel(", "DevServer(")
ENDING = [example for example in EXAMPLES if not any(word in example for word in ELSEWHERE)]
MANAGED = README.parents[2] / "docs" / "managed.md"
ENDING += re.findall(r"```python\n(.*?)```", MANAGED.read_text(), re.DOTALL)


def program(name: str) -> str:
    """Return the one example that has this in it."""
    found: str
    (found,) = [example for example in EXAMPLES if name in example]
    return found


@pytest.mark.parametrize("example", ENDING, ids=range(len(ENDING)))
def test_each_example_runs_and_prints_what_it_says(server: Server, example: str) -> None:
    said = re.findall(r"# prints: (.*)", example)
    program = example.replace(ADDRESS, server.url)
    # Isolated, so that the package is the installed one.
    words = [sys.executable, "-I", "-c", program]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_S)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == said
    server.free()


def test_the_package_is_the_installed_one_and_says_that_it_is_typed() -> None:
    package = pathlib.Path(tether_locks.__file__).parent
    assert "site-packages" in package.parts
    assert (package / "py.typed").exists()

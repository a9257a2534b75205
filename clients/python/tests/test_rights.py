"""The rights that docs/operations.md gives the Python client are enough for it."""

from __future__ import annotations

import pathlib

import pytest

from tether_locks import Locks, Taken

from .conftest import Server


def rights() -> list[str]:
    page = pathlib.Path(__file__).parents[3] / "docs" / "operations.md"
    rows = page.read_text(encoding="utf-8").splitlines()
    row = next(row for row in rows if row.startswith("- the Python client: `"))
    return row.split("`")[1].split()


@pytest.mark.parametrize("grace", [None, 10])
def test_a_user_with_just_these_rights_has_locks(grace: float | None) -> None:
    server = Server()
    try:
        server.run("ACL", "SETUSER", "worker", "on", ">secret", "resetchannels", *rights())
        url = f"redis://worker:secret@127.0.0.1:{server.port}"
        locks, others = Locks(url, grace=grace), Locks(url, grace=grace)
        with locks.lock("lock:a", wait=5, lease=60) as held:
            held.extend(60)
            held.check_server()
            with pytest.raises(Taken), others.lock("lock:a", wait=0.05):
                pass
            if grace:
                server.kill_clients()
                held.check_server()
        with locks.semaphore("lock:b", 1, of=3), locks.all("lock:{x}c", "lock:{x}d"):
            pass
        locks.close()
        others.close()
        server.free()
    finally:
        server.stop()

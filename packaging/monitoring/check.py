#!/usr/bin/env python3
"""What is here, with a real server, exporter and Prometheus:

    check.py SERVER MODULE TETHER

The exporter's metrics are those of `tether metrics`, by name, labels and value; `promtool check
metrics` has no complaint; every alert and every panel asks for metrics that there are; and the
alert for a server that is gone or lacks the module speaks.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any, Callable

HERE = Path(__file__).parent
NAME = re.compile(r"\b(?:tether|redis)_[a-z_]+\b")
# What only an exporter tells.
OF_EXPORTER = {"redis_up"}
# What Prometheus adds, and what says which redis_script_values it is.
NOT_OURS = {"__name__", "instance", "job"}
# These grow by themselves.
AGES = {"tether_oldest_waiter_seconds", "tether_oldest_hold_seconds"}
PATIENCE_S = 30

running: list[subprocess.Popen[bytes]] = []


def start(*command: str | Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    running.append(process)
    return process


def stop(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    running.remove(process)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def soon(what: str, ask: Callable[[], Any]) -> Any:
    """What `ask` says, once it says something true."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            if answer := ask():
                return answer
        except (OSError, ValueError):
            pass
        if time.monotonic() > until:
            sys.exit(f"after {PATIENCE_S} s still not so: {what}")
        time.sleep(0.1)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as reply:
        return str(reply.read().decode())


class Prometheus:
    def __init__(self, exporter: int, folder: str) -> None:
        text = (HERE / "prometheus.yml").read_text()
        text, found = re.subn(r"127\.0\.0\.1:9121", f"127.0.0.1:{exporter}", text)
        text, also = re.subn("scrape_interval: 15s", "scrape_interval: 1s", text)
        text, alerts = re.subn(r"\balerts\.yml", str(HERE / "alerts.yml"), text)
        assert (found, also, alerts) == (1, 1, 1)
        config = Path(folder) / "prometheus.yml"
        config.write_text("global: {evaluation_interval: 1s}\n" + text)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api/v1/"
        start(
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
        )

    def ask(self, word: str, **arguments: str) -> Any:
        reply = json.loads(get(self.url + word + "?" + urllib.parse.urlencode(arguments)))
        return reply["data"] if reply["status"] == "success" else None

    def values(self, expression: str) -> dict[str, float]:
        """By name and labels."""
        told = self.ask("query", query=expression)["result"]
        return {
            sample(one["metric"].get("__name__", ""), one["metric"]): float(one["value"][1])
            for one in told
        }


def sample(name: str, labels: dict[str, str]) -> str:
    own = sorted(label for label in labels if label not in NOT_OURS)
    return "|".join([name, *(f"{label}={labels[label]}" for label in own)])


def text_of(tether: list[str]) -> str:
    return subprocess.run([*tether, "metrics"], check=True, capture_output=True, text=True).stdout


def by_command_line(tether: list[str]) -> dict[str, float]:
    lines = [line for line in text_of(tether).splitlines() if not line.startswith("#")]
    values = {}
    for line in lines:
        name, value = line.rsplit(" ", 1)
        labels = dict(re.findall(r'([a-z]+)="([^"]*)"', name))
        values[sample(name.split("{")[0], labels)] = float(value)
    return values


def check_format(tether: list[str]) -> None:
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text_of(tether), capture_output=True, text=True
    )
    assert (checked.returncode, checked.stderr) == (0, ""), checked


def expressions() -> dict[str, str]:
    """Every expression of the alerts and the board, by where it is."""
    board = json.loads((HERE / "board.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    asked = {
        f"panel {panel['title']!r}, {target['refId']}": target["expr"]
        .replace("$instance", ".*")
        .replace("$__rate_interval", "1m")
        for panel in board["panels"]
        for target in panel["targets"]
    }
    assert len(asked) >= len(ids)
    return asked


def check(server: str, module: str, program: str, folder: str) -> None:
    port, exporter = free_port(), free_port()
    plain = [server, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
    tether = [program, "--url", f"redis://127.0.0.1:{port}"]
    with_module = start(*plain, "--loadmodule", module)
    soon(
        "the server answers",
        lambda: subprocess.run([*tether, "ls"], capture_output=True).returncode == 0,
    )

    start(
        "prometheus-redis-exporter",
        f"--redis.addr=redis://127.0.0.1:{port}",
        f"--script={HERE / 'tether.lua'}",
        f"--web.listen-address=127.0.0.1:{exporter}",
    )
    # A holder, one that waits for it, and three that came and went.
    for _ in range(3):
        subprocess.run([*tether, "run", "--nowait", "nightly", "--", "true"], check=True)
    for _ in range(2):
        start(*tether, "run", "report", "--", "sleep", "600")
    soon("one waits", lambda: by_command_line(tether)["tether_waiters"] == 1)

    prometheus = Prometheus(exporter, folder)
    check_format(tether)
    ours = by_command_line(tether)
    assert (ours["tether_holds"], ours["tether_grants_total"]) == (1, 4), ours
    still = {name: value for name, value in ours.items() if name not in AGES}

    def is_same() -> bool:
        seen = prometheus.values('{__name__=~"tether_.+"}')
        return seen.keys() == ours.keys() and still.items() <= seen.items()

    soon(f"Prometheus has what `tether metrics` says: {ours}", is_same)
    assert not prometheus.ask("query", query='{__name__=~"tether_.+", key!=""}')["result"]
    print(f"{len(ours)} metrics, by exporter and command line the same")

    known = {name.split("|")[0] for name in ours} | OF_EXPORTER
    groups = soon(
        "the alerts are evaluated",
        lambda: (told := prometheus.ask("rules")["groups"])
        and all(rule["health"] == "ok" for rule in told[0]["rules"])
        and told,
    )
    alerts = {rule["name"]: rule for rule in groups[0]["rules"]}
    for name, rule in alerts.items():
        check_names(name, rule["query"], known)
        assert rule["state"] == "inactive", f"{name} speaks: {rule}"
    panels = expressions()
    for place, expression in panels.items():
        check_names(place, expression, known)
        soon(f"{place} has something to show", partial(prometheus.values, expression))
    asked_for = {name for expression in panels.values() for name in NAME.findall(expression)}
    unseen = known - asked_for - OF_EXPORTER - {"tether_last_token"}
    assert not unseen, f"no panel shows {unseen}"
    print(f"{len(alerts)} alerts and {len(panels)} queries of the board ask for what there is")

    stop(with_module)
    soon("the server is missed", lambda: "redis_up" in pending(prometheus))
    without = start(*plain)
    soon("the module is missed", lambda: "tether_up" in pending(prometheus))
    stop(without)
    print("a server that is gone, and one without the module, are noticed")


def check_names(place: str, expression: str, known: set[str]) -> None:
    asked = set(NAME.findall(expression))
    assert asked, f"{place} asks for nothing of ours"
    assert asked <= known, f"{place} asks for {asked - known}"


def pending(prometheus: Prometheus) -> set[str]:
    """Which of its metrics lets the alert for a missing module wait for its time."""
    rules = {rule["name"]: rule for rule in prometheus.ask("rules")["groups"][0]["rules"]}
    missing = rules["TetherMissing"]
    return (
        set(prometheus.values("tether_up == 0 or redis_up == 0"))
        if missing["state"] == "pending"
        else set()
    )


def main() -> None:
    """Check it, and end what was started for that."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            check(*sys.argv[1:4], folder)
        finally:
            for process in running:
                process.kill()
            for process in running:
                process.wait()


main()

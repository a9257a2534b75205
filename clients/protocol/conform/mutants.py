#!/usr/bin/env python3
"""Breaks one rule of the Rust client's core at a time: some case of that rule must fail.

Python 3.9, standard library only; and cargo. What is broken is a copy in target/mutants.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CORE = Path("clients/rust/src/core")
# By the rule that it breaks: a file of the core, what stands there once, and what instead.
MUTANTS = {
    # An answer counts from its arrival.
    "P-FENCE-2": ("mod.rs", "self.vouch(sent);", "self.vouch(self.now);"),
    # `check` says what the timers did so far.
    "P-FENCE-4": (
        "mod.rs",
        "at.is_some_and(|at| at <= self.now);",
        "at.is_some_and(|at| at <= Time::default());",
    ),
    # Holds are lost later.
    "P-FENCE-8": (
        "connection.rs",
        "Some(self.connection.vouched + fence)",
        "Some(self.connection.vouched + fence * 3)",
    ),
    # Only the server ends a lease.
    "P-LEASE-2": ("mod.rs", "Phase::Held => request.lease_ends_at(),", "Phase::Held => None,"),
    # The loss of a key that was renamed is nobody's.
    "P-LOSS-4": ("pushes.rs", "match held[..] {", "match held[..0] {"),
    # A demotion costs a session its holds.
    "P-LOSS-7": (
        "pushes.rs",
        '"demoted" => return self.demoted(),',
        '"demoted" => return self.session_was_ended(),',
    ),
    # All requests have one label.
    "P-OWNER-1": ("mod.rs", "self.labels += 1;", "self.labels = 1;"),
    # A refused release is not sent again.
    "P-REL-5": ("release.rs", "*is_on_wire &= other != key;", "*is_on_wire &= other == key;"),
    # What nothing claims stays at the server.
    "P-SESS-6": (
        "mine.rs",
        "for found in unclaimed {",
        "for found in unclaimed.into_iter().take(0) {",
    ),
    # After a reconnect nothing is watched.
    "P-WATCH-3": (
        "watches.rs",
        "watched.state = State::Asked;\n                watched.was_there = None;",
        "watched.was_there = None;",
    ),
}


def fits(rule):
    name, before, _ = MUTANTS[rule]
    return (ROOT / CORE / name).read_text().count(before) == 1


def put(file, text):
    """Leaves a file alone that has this text: cargo builds what was written again."""
    if not file.exists() or file.read_bytes() != text:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text)


def copy(tree):
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
    for file in filter(None, names.split("\0")):
        if (ROOT / file).is_file():
            put(tree / file, (ROOT / file).read_bytes())


def build(rule, tree, target):
    """The adapter of a client that breaks the rule."""
    name, before, after = MUTANTS[rule]
    file, text = tree / CORE / name, (ROOT / CORE / name).read_text()
    put(file, text.replace(before, after).encode())
    command = ["cargo", "build", "--quiet", "-p", "tether-client", "--example", "conform"]
    subprocess.run([*command, "--target-dir", target], cwd=tree, check=True)
    put(file, text.encode())
    return shutil.copy2(target / "debug" / "examples" / "conform", target / rule)


def main(options):
    tree, target = (ROOT / "target" / "mutants" / name for name in ("tree", "target"))
    copy(tree)
    common = [sys.executable, HERE / "conform.py", "--server", options.server]
    common += ["--module", options.module]
    runs = []
    for rule in options.rules or MUTANTS:
        adapter = build(rule, tree, target)
        # Its cases run while the next one is built.
        runs.append(subprocess.Popen([*common, "--broken", rule, "--", adapter]))
    return int(any([run.wait() for run in runs]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="redis-server", help="the server's program")
    parser.add_argument("--module", required=True, help="libtether.so")
    parser.add_argument("rules", nargs="*", help="only these")
    sys.exit(main(parser.parse_args()))

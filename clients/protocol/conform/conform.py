#!/usr/bin/env python3
"""Runs the conformance cases against a client; see README.md.

Python 3.9 on Linux, standard library only.
"""

import argparse
import asyncio
import inspect
import json
import sys
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cases_keys  # noqa: E402
import cases_locks  # noqa: E402
import cases_sessions  # noqa: E402
from stage import Failed, Stage, now  # noqa: E402

LONGEST_CASE = 120.0


def written():
    """The cases that there are, by name."""
    found = {}
    for module in (cases_locks, cases_sessions, cases_keys):
        for name, function in vars(module).items():
            if inspect.iscoroutinefunction(function) and list(
                inspect.signature(function).parameters
            ) == ["stage"]:
                found[name.lstrip("_").replace("_", "-")] = function
    return found


async def levels(options):
    async with Stage(options.server, options.module, options.adapter) as stage:
        return (await stage.client()).hello


async def run(case, options, broken=""):
    """None, or why it failed."""
    stage = Stage(options.server, options.module, options.adapter, broken)
    try:
        async with stage:
            try:
                await asyncio.wait_for(case(stage), LONGEST_CASE)
                return None
            except (Failed, asyncio.TimeoutError) as error:
                why = str(error) or "it took too long"
            except Exception:
                why = traceback.format_exc()
            said = [json.dumps(line) for client in stage.clients for line in client.lines[-6:]]
            stderr = stage.folder / "stderr"
            text = stderr.read_text()[-1500:] if stderr.exists() else ""
            return "\n".join([why, *(f"    said: {line}" for line in said), text.rstrip()]).rstrip()
    except Exception:
        return traceback.format_exc()


async def notices(rule, listed, functions, options):
    """The first case of this rule that fails with a client that breaks it."""
    for case in listed:
        if (
            rule in case["rules"]
            and case["name"] in functions
            and await run(functions[case["name"]], options, rule)
        ):
            return case["name"]
    return None


async def run_broken(listed, functions, options):
    rules = options.broken.split(",")
    room = asyncio.Semaphore(options.jobs)

    async def one(rule):
        async with room:
            return await notices(rule, listed, functions, options)

    found = await asyncio.gather(*(one(rule) for rule in rules))
    for rule, case in zip(rules, found):
        print(f"without {rule}: {case or 'NOBODY NOTICES'}")
    print(f"{sum(map(bool, found))} passed, {found.count(None)} failed")
    return int(None in found)


async def main(options):
    listed = json.loads((HERE / "cases.json").read_text())
    functions = written()
    unknown = set(functions) - {case["name"] for case in listed}
    if unknown:
        sys.exit(f"cases.json does not list {sorted(unknown)}")
    if options.broken:
        return await run_broken(listed, functions, options)
    hello = await levels(options)
    print(f"{hello['hello']}: {', '.join(hello['levels'])}")
    verdicts = {"passed": 0, "failed": 0, "skipped": 0, "not written": 0}
    room = asyncio.Semaphore(options.jobs)

    async def one(case):
        name, began = case["name"], now()
        if case["level"] not in hello["levels"]:
            return name, "skipped", f"the client has no {case['level']}", 0
        if name not in functions:
            return name, "not written", "", 0
        async with room:
            began = now()
            why = await run(functions[name], options)
        return name, "failed" if why else "passed", why or "", now() - began

    wanted = [case for case in listed if options.only in case["name"]]
    for task in asyncio.as_completed([one(case) for case in wanted]):
        name, verdict, why, took = await task
        verdicts[verdict] += 1
        if verdict in ("passed", "failed") or options.verbose:
            print(f"{verdict}: {name} ({took:.1f} s)", flush=True)
        if why and (verdict == "failed" or options.verbose):
            print("  " + why.replace("\n", "\n  "), flush=True)
    print(", ".join(f"{number} {verdict}" for verdict, number in verdicts.items()))
    return int(verdicts["failed"] > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="redis-server", help="the server's program")
    parser.add_argument("--module", required=True, type=Path, help="libtether.so")
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--jobs", type=int, default=8, help="so many side by side")
    parser.add_argument(
        "--broken",
        metavar="RULES",
        help="run with a client that breaks one of these rules at a time: some case must fail",
    )
    parser.add_argument("--verbose", action="store_true", help="also what was not run, and why")
    parser.add_argument("adapter", nargs="+", help="the adapter's command, behind --")
    options = parser.parse_args()
    options.module = options.module.resolve()
    sys.exit(asyncio.run(main(options)))

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

import cases_faults  # noqa: E402
import cases_keys  # noqa: E402
import cases_locks  # noqa: E402
import cases_servers  # noqa: E402
import cases_sessions  # noqa: E402
from stage import PATIENCE, Devserver, Failed, Skipped, Stage, now  # noqa: E402

LONGEST_CASE = 4 * PATIENCE


def written():
    """The cases that there are, by name."""
    found = {}
    for module in (cases_locks, cases_sessions, cases_keys, cases_servers, cases_faults):
        for name, function in vars(module).items():
            if inspect.iscoroutinefunction(function) and list(
                inspect.signature(function).parameters
            ) == ["stage"]:
                found[name.lstrip("_").replace("_", "-")] = function
    return found


async def asked(options, names):
    """What the adapter says of itself, and which of these commands the server has."""
    async with Stage(options.server, options.module, options.adapter) as stage:
        hello = (await stage.client()).hello
        server = await stage.start_server()
        known = await server.ask("COMMAND", "INFO", *names) if names else []
        return hello, {name for name, row in zip(names, known) if row}


def commands_of(case):
    """What it needs of the server, beside what the stage offers."""
    return [need for need in case["needs"] if need.isupper()]


async def run(case, options, broken=""):
    """None, or why it failed. The exception Skipped passes through."""
    stage = Stage(options.server, options.module, options.adapter, broken)
    try:
        async with stage:
            try:
                await asyncio.wait_for(case(stage), getattr(case, "limit", LONGEST_CASE))
                return None
            except Skipped:
                raise
            except (Failed, asyncio.TimeoutError) as error:
                why = str(error) or "it took too long"
            except Exception:
                why = traceback.format_exc()
            said = [json.dumps(line) for client in stage.clients for line in client.lines[-6:]]
            stderr = stage.folder / "stderr"
            text = stderr.read_text()[-1500:] if stderr.exists() else ""
            return "\n".join([why, *(f"    said: {line}" for line in said), text.rstrip()]).rstrip()
    except Skipped:
        raise
    except Exception:
        return traceback.format_exc()


async def notices(rule, listed, functions, options):
    """The first case of this rule that fails with a client that breaks it, and how it fails."""
    for case in listed:
        if rule in case["rules"]:
            why = await run(functions[case["name"]], options, rule)
            if why:
                return f"{case['name']}: {why.splitlines()[0]}"
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
    word = "FAILED" if None in found else "ok"
    print(f"test result: {word}. {sum(map(bool, found))} passed; {found.count(None)} failed")
    return int(None in found)


async def main(options):
    listed = json.loads((HERE / "cases.json").read_text())
    functions = written()
    differ = set(functions) ^ {case["name"] for case in listed}
    if differ:
        sys.exit(f"cases.json and cases_*.py differ: {sorted(differ)}")
    if options.broken:
        return await run_broken(listed, functions, options)
    names = sorted({name for case in listed for name in commands_of(case)})
    hello, commands = await asked(options, names)
    print(f"{hello['hello']}: {', '.join(hello['levels'])}")
    verdicts = {"passed": 0, "failed": 0, "skipped": 0}
    room = asyncio.Semaphore(options.jobs)

    async def one(case):
        name, missing = case["name"], set(commands_of(case)) - commands
        unknown = set(case.get("calls", [])) - set(hello.get("calls", []))
        if options.devserver:
            missing |= Devserver.LACKS.intersection(case["needs"])
        if case["level"] not in hello["levels"] and name not in hello.get("also", []):
            return name, "skipped", f"the client has no {case['level']}", 0
        left_out = set(hello.get("without", [])).intersection(case["needs"])
        if left_out:
            return name, "skipped", f"the client leaves {', '.join(left_out)} to its caller", 0
        if missing:
            return name, "skipped", f"the server has no {', '.join(sorted(missing))}", 0
        if unknown:
            return name, "skipped", f"the adapter has no {', '.join(sorted(unknown))}", 0
        async with room:
            began = now()
            try:
                why = await run(functions[name], options)
            except Skipped as skipped:
                return name, "skipped", str(skipped), 0
        return name, "failed" if why else "passed", why or "", now() - began

    wanted = [case for case in listed if options.only in case["name"]]
    for task in asyncio.as_completed([one(case) for case in wanted]):
        name, verdict, why, took = await task
        verdicts[verdict] += 1
        if verdict == "skipped":
            print(f"skipped: {name}: {why}")
            continue
        print(f"{verdict}: {name} ({took:.1f} s)", flush=True)
        if why:
            print("  " + why.replace("\n", "\n  "), flush=True)
    word = "FAILED" if verdicts["failed"] else "ok"
    counts = "; ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
    print(f"test result: {word}. {counts}")
    return int(verdicts["failed"] > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default="redis-server", help="the server's program")
    parser.add_argument("--module", type=Path, help="libtether.so")
    parser.add_argument(
        "--devserver",
        metavar="PROGRAM",
        help="the program tether, whose devserver stands for server and module",
    )
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--jobs", type=int, default=8, help="so many side by side")
    parser.add_argument(
        "--broken",
        metavar="RULES",
        help="run with a client that breaks one of these rules at a time: some case must fail",
    )
    parser.add_argument(
        "adapter",
        nargs="*",
        default=[sys.executable, str(HERE / "adapters" / "model.py")],
        help="the adapter's command, behind -- (default: the model's)",
    )
    options = parser.parse_args()
    if Path(options.server).name == "tether":  # So a client's script needs no option for it.
        options.devserver = options.server
    if not options.module and not options.devserver:
        parser.error("give --module or --devserver")
    options.server = options.devserver or options.server
    options.module = None if options.devserver else options.module.resolve()
    sys.exit(asyncio.run(main(options)))

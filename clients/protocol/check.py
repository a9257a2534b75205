#!/usr/bin/env python3
"""Checks protocol.md, the vectors and the list of cases against each other.

Python 3.9, standard library only.

check.py            every vector fits the schema; every rule is shown; every named rule exists; each
                    of conform/mutants.py fits the Rust core
check.py --write    and writes rules.md, which names the tests of each rule
check.py --run      and runs the vectors against the model
check.py --mutants  and breaks one rule of the model after the other: some vector must notice
"""

import json
import re
import sys
from pathlib import Path

from conform import mutants
from model import run

HERE = Path(__file__).resolve().parent
KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": int,
}


def is_kind(value, kind):
    if isinstance(value, bool) and kind in ("number", "integer"):
        return False
    return isinstance(value, KINDS[kind])


def faults(value, schema, root, at):
    """What is wrong with a value, by the part of JSON Schema that schema.json uses."""
    if "$ref" in schema:
        return faults(value, root["$defs"][schema["$ref"].rsplit("/", 1)[1]], root, at)
    if "anyOf" in schema:
        tries = [faults(value, each, root, at) for each in schema["anyOf"]]
        return (
            [] if any(not each for each in tries) else [f"{at}: {json.dumps(value)} fits nothing"]
        )
    if "enum" in schema:
        is_one = any(value == each and type(value) is type(each) for each in schema["enum"])
        return [] if is_one else [f"{at}: {json.dumps(value)} is none of {schema['enum']}"]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(is_kind(value, kind) for kind in kinds):
        return [f"{at}: {json.dumps(value)} is no {' or '.join(kinds)}"]
    found = []
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{at}: no {name}" for name in schema.get("required", []) if name not in value]
        if len(value) < schema.get("minProperties", 0):
            found.append(f"{at}: it is empty")
        for name, each in value.items():
            if name in known:
                found += faults(each, known[name], root, f"{at}.{name}")
            elif not schema.get("additionalProperties", True):
                found.append(f"{at}: what is {name}?")
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            found.append(f"{at}: too short")
        for number, each in enumerate(value):
            found += faults(each, schema.get("items", {}), root, f"{at}[{number}]")
    elif isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            found.append(f"{at}: {value!r} is not {schema['pattern']}")
    elif isinstance(value, (int, float)):
        if not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            found.append(f"{at}: {value} is out of range")
    return found


def vectors():
    """Every vector, in the order of files and lines."""
    names = sorted((HERE / "vectors").glob("*.json"))
    files = [name for name in names if name.name not in ("schema.json", "preludes.json")]
    return [(file.name, each) for file in files for each in json.loads(file.read_text())]


def preludes():
    return json.loads((HERE / "vectors" / "preludes.json").read_text())


def faults_of_vectors(found):
    schema = json.loads((HERE / "vectors" / "schema.json").read_text())
    faulty, seen = [], set()
    for file, vector in found:
        at = f"{file}: {vector.get('name')}"
        faulty += faults(vector, schema["$defs"]["vector"], schema, at)
        if vector.get("name") in seen:
            faulty.append(f"{at}: there are two of this name")
        seen.add(vector.get("name"))
    for name, prelude in preludes().items():
        faulty += faults(
            prelude["steps"], {"type": "array", "items": {"$ref": "#/$defs/step"}}, schema, name
        )
    steps = [(vector["name"], step) for _, vector in found for step in vector.get("steps", [])]
    for name, step in steps:
        if sum(kind in step for kind in run.INPUTS) != 1:
            faulty.append(f"{name}: a step has one input: {json.dumps(step)}")
    return faulty


RULE = re.compile(r"^- \*\*(P-[A-Z]+-\d+)\*\* ", re.MULTILINE)
HEADER = """# The tests of each rule

`check.py --write` writes this page. [Vectors](vectors/README.md) are scripts for the pure core;
[cases](conform/README.md) have a real server and a faulty wire. A rule with cases alone is about
what the core of one connection does not see: sockets and bytes, processes, users, further
connections.

| rule | vectors | cases |
| --- | --- | --- |
"""


def table(rules, by_rule):
    """The page rules.md."""
    rows = [[rule, *map(", ".join, by_rule.get(rule, ()))] for rule in rules]
    return HEADER + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main(options):
    found = vectors()
    cases = json.loads((HERE / "conform" / "cases.json").read_text())
    problems = faults_of_vectors(found)
    names = [case["name"] for case in cases]
    problems += [
        f"conform: two cases are called {name}" for name in set(names) if names.count(name) > 1
    ]
    by_rule = {}
    for _, vector in found:
        for rule in vector["rules"]:
            by_rule.setdefault(rule, ([], []))[0].append(vector["name"])
    for case in cases:
        for rule in case["rules"]:
            by_rule.setdefault(rule, ([], []))[1].append(case["name"])

    problems += [
        f"conform/mutants.py: {rule}: what it replaces is not there once"
        for rule in mutants.MUTANTS
        if not mutants.fits(rule)
    ]
    rules = RULE.findall((HERE / "protocol.md").read_text())
    problems += [f"two rules are called {rule}" for rule in set(rules) if rules.count(rule) > 1]
    problems += [f"nothing shows {rule}" for rule in rules if rule not in by_rule]
    problems += [
        f"{by_rule[rule]} name {rule}, which is no rule" for rule in by_rule if rule not in rules
    ]
    page = HERE / "rules.md"
    if "--write" in options:
        page.write_text(table(rules, by_rule))
    elif table(rules, by_rule) != page.read_text():
        problems.append("rules.md is not up to date: check.py --write")
    for problem in problems:
        print(problem)
    in_vectors = sum(bool(by_rule.get(rule, ([], []))[0]) for rule in rules)
    print(f"{len(rules)} rules, {in_vectors} of them in {len(found)} vectors")
    print(f"{len(cases)} cases")
    failed = bool(problems)
    if "--run" in options or "--mutants" in options:
        failed |= run.run([vector for _, vector in found], preludes(), "--mutants" in options)
    print("failed" if failed else "passed")
    return int(failed)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main(sys.argv[1:]))

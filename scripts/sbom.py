"""Prints what the module and the command line are made of, as SPDX 2.3 in JSON: each crate with version, licence and checksum.

    python3 scripts/sbom.py > tether.spdx.json

It reads cargo's metadata, and takes what is linked: neither what only builds use nor what only tests use.
"""

import datetime
import json
import os
import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parent.parent
ROOTS = ["tether", "tether-cli"]


def cargo(*arguments: str) -> str:
    return subprocess.run(["cargo", *arguments], cwd=PROJECT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(nodes: dict, roots: list[str]) -> set[str]:
    """The ids of all packages that these are linked with."""
    found, left = set(), list(roots)
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            left += [dep["pkg"] for dep in nodes[package]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    return found


def checksums() -> dict[tuple[str, str], str]:
    lock = (PROJECT / "Cargo.lock").read_text()
    entry = r'name = "(.+)"\nversion = "(.+)"\nsource = .+\nchecksum = "(.+)"'
    return {(name, version): checksum for name, version, checksum in re.findall(entry, lock)}


def spdx_id(package: dict) -> str:
    return "SPDXRef-" + re.sub("[^A-Za-z0-9.-]", "-", f"{package['name']}-{package['version']}")


def described(package: dict, sums: dict) -> dict:
    name, version = package["name"], package["version"]
    about = {
        "SPDXID": spdx_id(package),
        "name": name,
        "versionInfo": version,
        "downloadLocation": package["repository"] or "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": (package["license"] or "NOASSERTION").replace("/", " OR "),
        "copyrightText": "NOASSERTION",
        "filesAnalyzed": False,
    }
    if package["source"]:
        reference = {
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": f"pkg:cargo/{name}@{version}",
        }
        about |= {"externalRefs": [reference]}
    if (name, version) in sums:
        about |= {"checksums": [{"algorithm": "SHA256", "checksumValue": sums[name, version]}]}
    return about


def main() -> None:
    host = re.search(
        r"^host: (.+)$",
        subprocess.run(["rustc", "-vV"], stdout=subprocess.PIPE, text=True, check=True).stdout,
        re.M,
    )[1]
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--filter-platform", host))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    roots = [name for name, package in packages.items() if package["name"] in ROOTS and not package["source"]]
    found = linked(nodes, roots)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id(packages[root])) for root in roots]
    for name in sorted(found):
        deps = {dep["pkg"] for dep in nodes[name]["deps"]} & found
        relations += [(spdx_id(packages[name]), "DEPENDS_ON", spdx_id(packages[dep])) for dep in sorted(deps)]
    version = packages[roots[0]]["version"]
    # Of the commit, so that two builds of it give the same file.
    moment = int(os.environ.get("SOURCE_DATE_EPOCH") or datetime.datetime.now().timestamp())
    sums = checksums()
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"tether-{version}-{host}",
        "documentNamespace": f"urn:tether:{version}:{host}:{moment}",
        "creationInfo": {
            "created": datetime.datetime.fromtimestamp(moment, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: scripts/sbom.py"],
        },
        "packages": [described(packages[name], sums) for name in sorted(found)],
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other} for one, kind, other in relations
        ],
    }
    print(json.dumps(document, indent=1))


main()

"""Copies the pages for operators into a folder, so that links between them work there too.

    python3 packaging/docs.py FOLDER

Each page keeps its path in the project. A link to what is not copied becomes its text.
"""

import re
import shutil
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
COPIED = [
    "README.md",
    "CHANGELOG.md",
    "redis.conf",
    "docs/*",
    "clients/*/README.md",
    "clients/protocol/*.md",
    "examples/README.md",
]
LINK = re.compile(r"\[([^][]*)\]\(([^()\s]+)\)")


def with_links_to(copied: set[Path], page: Path) -> str:
    def kept(link: re.Match[str]) -> str:
        path = link[2].split("#")[0]
        is_there = path == "" or path.startswith("https://")
        return link[0] if is_there or (page.parent / path).resolve() in copied else link[1]

    return LINK.sub(kept, page.read_text())


def main(to: Path) -> None:
    copied = {file for pattern in COPIED for file in PROJECT.glob(pattern)}
    for file in sorted(copied):
        target = to / file.relative_to(PROJECT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(with_links_to(copied, file))
        else:
            shutil.copyfile(file, target)


main(Path(sys.argv[1]))

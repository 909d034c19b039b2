"""Check that a tag, the version in every file and the changelog agree, and print the notes of that version.

python release/check.py v1.2.3 > notes.md
"""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(root: Path) -> dict[str, str]:
    """File -> the version that it states, "" where it states none; of the changelog that of its newest section."""
    return {
        "pyproject.toml": tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"],
        "src/vsehub/__init__.py": matched(root / "src" / "vsehub" / "__init__.py", r'__version__ = "(.*)"'),
        "CITATION.cff": matched(root / "CITATION.cff", r"version: (.*)"),
        "CHANGELOG.md": matched(root / "CHANGELOG.md", r"## \[(.*)\].*"),
    }


def matched(path: Path, line: str) -> str:
    """What the group of a pattern matches in the first line that the pattern matches whole; "" if there is none."""
    match = re.search(f"^{line}$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def faults(root: Path, tag: str) -> list[str]:
    """What keeps a tag from being released, a sentence each."""
    said = [
        f"{file}: version {stated!r}, but the tag is {tag}"
        for file, stated in versions(root).items()
        if f"v{stated}" != tag
    ]
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        said.append(f"{tag}: a tag is v and a version of three numbers, such as v1.2.3")
    released = matched(root / "CHANGELOG.md", r"## \[.*\] - (.*)")
    try:
        date.fromisoformat(released)
    except ValueError:
        said.append(f"CHANGELOG.md: the newest section has the date {released!r}; expected one such as 2026-11-30")
    if (cited := matched(root / "CITATION.cff", r"date-released: (.*)")) != released:
        said.append(f"CITATION.cff: date-released is {cited!r}, but the changelog says {released!r}")
    return said


def notes(root: Path) -> str:
    """The newest section of the changelog, without its heading."""
    return re.split(r"^## .*$", (root / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1].strip()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python release/check.py TAG")
    if wrong := faults(ROOT, sys.argv[1]):
        sys.exit("\n".join(wrong))
    print(notes(ROOT))

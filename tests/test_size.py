"""No package grows: tests/size.toml has the most statements, public names and settings that each may have.

python tests/test_size.py     lowers the rows to what is there, and prints the table; a row is raised by hand only
"""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
TABLE = Path(__file__).with_name("size.toml")


def sizes():
    """Kind -> row -> size: statements and exports of a package below src/vsehub, settings of a command."""
    found = {"statements": Counter(), "names": Counter(), "settings": Counter()}
    for folder in ("src/vsehub", "tests", "tools", "experiments"):
        for path in (ROOT / folder).rglob("*.py"):
            found["statements"][row(path)] += statements(ast.parse(path.read_bytes()))
    for path in (ROOT / "src/vsehub").rglob("__init__.pyi"):
        found["names"][row(path)] += len(re.findall(r" as \w+", path.read_text()))
    for path in CONF.glob("*.yaml"):
        found["settings"][path.stem] = len(settings(path))
    return found


def row(path):
    """The package of a file below src/vsehub, `vsehub` for a file directly in it, else the top folder."""
    parts = path.relative_to(ROOT).parts
    return parts[0] if parts[0] != "src" else parts[min(2, len(parts) - 2)]


def statements(node):
    """The statements below a node, without docstrings."""
    below = [
        child for block in ("body", "orelse", "finalbody", "handlers", "cases") for child in getattr(node, block, ())
    ]
    docs = sum(isinstance(child, ast.Expr) and isinstance(getattr(child.value, "value", None), str) for child in below)
    return sum(isinstance(child, ast.stmt) for child in below) - docs + sum(map(statements, below))


def settings(command):
    """The keys that a command's configuration can have, over all choices of its groups."""
    entries = [entry for entry in read(command).get("defaults", []) if isinstance(entry, dict)]
    groups = [name.split()[-1] for entry in entries for name in entry if not name.startswith("override")]
    keys = set(leaves(read(command)))
    for path in (path for group in groups for path in (CONF / group).rglob("*.yaml")):
        is_global = "@package _global_" in path.read_text()
        keys.update(leaves(read(path), "" if is_global else ".".join([*path.parent.relative_to(CONF).parts, ""])))
    return keys


def read(path):
    return yaml.load(path.read_text(), yaml.CSafeLoader) or {}


def leaves(values, before=""):
    """The dotted keys of nested values; Hydra's own are left out."""
    for key, value in values.items():
        if not key.startswith("_") and key != "defaults" and before + key != "hydra":
            yield from leaves(value, f"{before}{key}.") if isinstance(value, dict) and value else [before + key]


def faults(allowed, found):
    """A line for each row that is exceeded, or more than a twentieth above what is there."""
    for name in sorted(allowed.keys() | found.keys()):
        most, size = allowed.get(name, 0), found.get(name, 0)
        if size > most:
            yield f"{name} has grown to {size}, and its row in tests/size.toml is {most}"
        elif size < 0.95 * most:
            yield f"{name} has shrunk to {size}: lower the row from {most}, python tests/test_size.py does it"


def test_no_package_grows_and_the_rows_follow_what_shrinks():
    allowed = tomllib.loads(TABLE.read_text())
    told = [f"{kind}: {line}" for kind, found in sizes().items() for line in faults(allowed[kind], found)]
    assert not told, "\n".join(told)


def test_what_the_table_refuses():
    assert [
        line.split(" to ")[0]
        for line in faults({"a": 20, "b": 20, "c": 20, "gone": 1}, {"a": 21, "b": 18, "c": 19, "new": 1})
    ] == ["a has grown", "b has shrunk", "gone has shrunk", "new has grown"]


if __name__ == "__main__":
    allowed, text = tomllib.loads(TABLE.read_text()), ""
    for kind, found in sizes().items():
        rows = [f"{name} = {min(size, allowed[kind].get(name, size))}" for name, size in sorted(found.items())]
        text += "\n".join([f"[{kind}]", *rows, "\n"])
    TABLE.write_text(text.strip() + "\n")
    print(text)

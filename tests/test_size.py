"""The project stays small: tests/size.toml has the ceilings of a few sums.

python tests/test_size.py     prints each sum beside its ceiling, and the statements of each package
"""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import yaml
from test_layers import import_graph

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"


def sizes():
    """Kind -> name -> size, for the names of tests/size.toml."""
    ceilings = tomllib.loads(Path(__file__).with_name("size.toml").read_text())
    return {
        "statements": {folder: by_package(folder).total() for folder in ceilings["statements"]},
        "settings": {command: len(settings(CONF / f"{command}.yaml")) for command in ceilings["settings"]},
        "files": {command: len(files_behind(command)) for command in ceilings["files"]},
    }, ceilings


def by_package(folder):
    """The statements of each package directly below a folder."""
    counts = Counter()
    for path in (ROOT / folder).rglob("*.py"):
        package, *below = path.relative_to(ROOT / folder).parts
        counts[package if below else "."] += statements(ast.parse(path.read_bytes()))
    return counts


def statements(tree):
    """The number of statements of a syntax tree, without docstrings."""
    nodes = list(ast.walk(tree))
    texts = [node for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    docs = sum(isinstance(node.value.value, str) for node in texts)
    return sum(isinstance(node, ast.stmt) for node in nodes) - docs


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
    """A yaml file with the blocks that its defaults take from folders beside it."""
    values = yaml.load(path.read_text(), yaml.CSafeLoader) or {}
    for entry in values.get("defaults", []):
        for name, choice in entry.items() if isinstance(entry, dict) else ():
            block = path.parent / name / f"{choice}.yaml"
            if path.parent != CONF and block.is_file():
                values[name] = read(block)
    return values


def leaves(values, before=""):
    """The dotted keys of nested values; Hydra's own are left out."""
    for key, value in values.items():
        if not key.startswith("_") and key != "defaults" and before + key != "hydra":
            yield from leaves(value, f"{before}{key}.") if isinstance(value, dict) and value else [before + key]


def files_behind(command):
    """The files of vsehub that a command's file imports, directly or through others."""
    graph, reached, todo = import_graph(), set(), [ROOT / f"src/vsehub/cli/{command}.py"]
    while todo:
        path = todo.pop()
        if path not in reached:
            reached.add(path)
            todo += graph[path]
    return reached


def test_no_sum_exceeds_its_ceiling():
    sums, ceilings = sizes()
    above = [
        f"{name} has {size} {kind}, more than {ceilings[kind][name]}"
        for kind, rows in sums.items()
        for name, size in rows.items()
        if size > ceilings[kind][name]
    ]
    assert not above, "\n".join(above)


if __name__ == "__main__":
    sums, ceilings = sizes()
    for kind, rows in sums.items():
        for name, size in rows.items():
            print(f"{kind:12}{name:14}{size:7} of {ceilings[kind][name]}")
            packages = by_package(name).most_common() if kind == "statements" else []
            print("".join(f"{'':14}{package:22}{size:7}\n" for package, size in packages), end="")

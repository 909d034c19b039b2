"""Each command reads each key of its configuration: the code is followed from the command's entry point, not run."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf"
TREES = {path.stem: ast.parse(path.read_text()) for path in (ROOT / "src" / "vsehub" / "cli").glob("*.py")}
COMMANDS = sorted(path.stem for path in CONF.glob("*.yaml"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def defined(module):
    """The functions of a file of cli/; a class stands for all its methods."""
    found = {}
    for node in TREES[module].body:
        if isinstance(node, FUNCTIONS):
            found[node.name] = [node]
        elif isinstance(node, ast.ClassDef):
            found[node.name] = [inner for inner in node.body if isinstance(inner, FUNCTIONS)]
    return found


def imported(node):
    """Name -> (file of cli/, what of it; None: the file itself), as the statements below a node import them."""
    found = {}
    for one in ast.walk(node):
        if isinstance(one, ast.ImportFrom) and one.module == "vsehub.cli":
            found |= {name.asname or name.name: (name.name, None) for name in one.names}
        elif isinstance(one, ast.ImportFrom) and (one.module or "").startswith("vsehub.cli."):
            file = one.module.removeprefix("vsehub.cli.")
            found |= {name.asname or name.name: (file, name.name) for name in one.names}
    return found


def named(module, function, known):
    """The functions and classes of cli/ that a function mentions."""
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            file, name = known.get(node.id, (module, node.id))
            if name in defined(file):
                yield file, name
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            file, name = known.get(node.value.id, (None, ""))
            if name is None and node.attr in defined(file):
                yield file, node.attr


def texts(module, function):
    """The string constants of a function, and of the constants that it mentions, of its file or imported."""
    others = [one for one in ast.walk(function) if isinstance(one, ast.ImportFrom) and one.module.startswith("vsehub.")]
    files = [ROOT / "src" / f"{one.module.replace('.', '/')}.py" for one in others]
    trees = [TREES[module], *(ast.parse(file.read_text()) for file in files if file.is_file())]
    assigned = [one for tree in trees for one in tree.body if isinstance(one, ast.Assign)]
    constants, asked = [], [function]
    while asked:  # a constant may mention others
        mentioned = {node.id for root in asked for node in ast.walk(root) if isinstance(node, ast.Name)}
        names = [
            {node.id for target in one.targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            for one in assigned
        ]
        asked = [
            one.value
            for one, own in zip(assigned, names, strict=True)
            if mentioned & own and one.value not in constants
        ]
        constants += asked
    nodes = [node for root in (function, *constants) for node in ast.walk(root)]
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def keys_read(module, function):
    """The keys that a function reads from its parameters of type DictConfig."""
    configs = {one.arg for one in function.args.args if one.annotation and "DictConfig" in ast.unparse(one.annotation)}
    for node in ast.walk(function):
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and value.args:  # of the configuration as plain values
            value = value.args[0]
        if not (isinstance(value, ast.Name) and value.id in configs):
            continue
        if isinstance(node, ast.Attribute):
            yield from texts(module, function) if node.attr == "get" else {node.attr}
        elif isinstance(node, ast.Subscript):
            index = node.slice
            yield from {index.value} if isinstance(index, ast.Constant) else texts(module, function)


def reads(config):
    """The keys that a command reads, in its code and in interpolations of its configuration."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = OmegaConf.to_container(compose(config, return_hydra_config=True), resolve=False)
    callbacks = [one["_target_"].split(".") for one in cfg["hydra"]["callbacks"].values()]
    todo = [(config, config), *((file, name) for *_, file, name in callbacks)]
    found, seen = set(re.findall(r"\$\{(?:oc\.select:)?(\w+)", OmegaConf.to_yaml(cfg))), set()
    while todo:
        module, name = todo.pop()
        if (module, name) in seen:
            continue
        seen.add((module, name))
        outside = {
            key: one
            for node in TREES[module].body
            if not isinstance(node, FUNCTIONS)
            for key, one in imported(node).items()
        }
        for function in defined(module)[name]:
            found |= set(keys_read(module, function))
            todo += named(module, function, outside | imported(function))
    return set(cfg) - {"hydra"}, found


@pytest.mark.parametrize("config", COMMANDS)
def test_every_key_is_read(config):
    keys, found = reads(config)
    assert keys <= found, f"vsehub {config} reads nothing of {', '.join(sorted(keys - found))}"


def test_what_another_command_reads_does_not_count():
    found = {config: reads(config)[1] for config in COMMANDS}
    for key, commands in {
        "approximate": "index",
        "remove_ids": "add",
        "fail_on": "diagnose",
    }.items():
        assert [config for config in COMMANDS if key in found[config]] == [commands], key

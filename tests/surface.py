"""What users may rely on (docs/stability.md), as lines of text: commands, settings, choices, Python names, formats.

python tests/surface.py          writes tests/surface.txt anew, after a change that CHANGELOG.md announces
"""

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from vsehub.cli.main import COMMANDS
from vsehub.io import records

ROOT = Path(__file__).parents[1]
STORED = Path(__file__).with_suffix(".txt")
HIDDEN = ("hydra", "defaults", "_target_", "_partial_")


def lines() -> list[str]:
    """All lines, in order."""
    return [*commands(), *choices(), *names(), *formats()]


def commands() -> Iterator[str]:
    """Each command, and each of its settings with the default."""
    for command in sorted(COMMANDS):
        yield f"command {command}"
        path = ROOT / "conf" / f"{command.replace('-', '_')}.yaml"
        if path.is_file():
            yield from settings(command, yaml.safe_load(path.read_text()))


def choices() -> Iterator[str]:
    """Each choice of each group, and each of its settings with the default."""
    for path in sorted((ROOT / "conf").glob("*/**/*.yaml")):
        group = path.parent.relative_to(ROOT / "conf").as_posix()
        if group.partition("/")[0] in ("hydra", "experiment", "recipe"):
            yield f"choice {group}={path.stem}"
            continue
        yield f"choice {group}={path.stem}"
        yield from settings(f"{group}={path.stem}", yaml.safe_load(path.read_text()) or {})


def settings(owner: str, values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Each setting of a yaml file on a line, nested ones with dots."""
    for key, value in values.items():
        if key in HIDDEN:
            continue
        if isinstance(value, dict) and value:
            yield from settings(owner, value, f"{above}{key}.")
        else:
            yield f"setting {owner} {above}{key}: {value!r}"


def names() -> Iterator[str]:
    """Each export of the packages, with the parameters of functions, constructors and public methods."""
    for stub in sorted((ROOT / "src" / "vsehub").rglob("__init__.pyi")):
        module = ".".join(stub.parent.relative_to(ROOT / "src").parts)
        for name in re.findall(r"import \w+ as (\w+)", stub.read_text()):
            made = getattr(importlib.import_module(module), name)
            yield f"python {module}.{name}{parameters(made)}"
            if inspect.isclass(made):
                yield from methods(f"{module}.{name}", made)


def methods(owner: str, made: type) -> Iterator[str]:
    """The public methods and properties that a class of ours has, inherited ones too."""
    for name, member in inspect.getmembers(made):
        home = next((one for one in made.__mro__ if name in vars(one)), made)
        if name.startswith("_") or not home.__module__.startswith("vsehub"):
            continue
        if isinstance(member, property):
            yield f"python {owner}.{name}"
        elif callable(member):
            yield f"python {owner}.{name}{parameters(member)}"


def parameters(made: Any) -> str:
    """The names of the parameters, and = after those that may be left out."""
    try:
        found = list(inspect.signature(made).parameters.values())
    except (TypeError, ValueError):
        return ""
    found = [one for one in found if one.name not in ("self", "cls")]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    shown, only = [], False
    for one in found:
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not only:
            only = True
            shown.append("*")
        shown.append(stars.get(one.kind, "") + one.name + ("" if one.default is one.empty else "="))
    return f"({', '.join(shown)})"


def formats() -> Iterator[str]:
    """Each format of a file, with its version."""
    from vsehub.data import noise
    from vsehub.evaluation import checkpoint
    from vsehub.export import model
    from vsehub.neighbors import kinds as item_kinds
    from vsehub.serving import estimator_file, index_file
    from vsehub.training import checkpoint as state

    kinds = (one for one in vars(records).values() if isinstance(one, records.Kind))
    yield from sorted(f"format {one.name}: {one.version}" for one in kinds)
    yield f"format a checkpoint: {checkpoint.VERSION}"
    yield f"format the state of a training: {state.VERSION}"
    yield f"format noisy pairs: {noise.VERSION}"
    yield f"format an export: {model.VERSION}"
    yield f"format means of kinds: {item_kinds.VERSION}"
    yield f"format a fitted search: {estimator_file.VERSION}"
    yield f"format an index of FAISS: {index_file.MARK.decode()}"


if __name__ == "__main__":
    STORED.write_text("".join(f"{line}\n" for line in lines()))

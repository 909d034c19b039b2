"""The second half of a command's --help: groups with their choices, and settings with the comments in their yaml."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vsehub.cli.nodes import components, leaves, plain
from vsehub.cli.overrides import composed, groups_and_settings
from vsehub.components import PARTIAL, TARGET

WIDTH, COLUMN = 120, 30
_COMMENT = re.compile(r"\s#\s*(.*)$")


def help_text(config: str, folders: Sequence[Path], words: Sequence[str]) -> str:
    """The help of a command under settings and choices: the template in its yaml, filled.

    Hydra's own way to it lists every group, which no template shows and takes most of the command's time.
    """
    return composed(config, folders, words, with_hydra=True).hydra.help.template


def command_help(config: str, *, _root_: DictConfig) -> str:
    """The text that fills the template of a command's help.

    config: the name of the command's yaml. _root_: the composed configuration, which OmegaConf hands to resolvers.
    """
    folders = components().folders
    choices = _root_.hydra.runtime.choices
    chosen = {group: choices[group] for group in groups_and_settings(folders[0] / f"{config}.yaml")[0]}
    comments = _comments(folders[0] / f"{config}.yaml", "")
    for group, name in chosen.items():
        for file in [folder / group / f"{name}.yaml" for folder in folders]:
            if name is not None and file.is_file():
                comments |= _comments(file, f"{group}.")
    own: list[str] = []
    parts: list[str] = []
    for key, value in _leaves(_root_):
        group, _, setting = key.partition(".")
        if (group, setting) in ((name, "KEY") for name in chosen):  # a part without settings
            continue
        (parts if group in chosen else own).append(_line(f"{key}={value}", comments.get(key.removesuffix(".KEY"), "")))
    sections = {
        "choices (group=choice), the chosen one first:": [_group(config, folders, *one) for one in chosen.items()],
        "settings (key=value):": own,
        "settings of the chosen parts:": parts,
    }
    return "\n\n".join("\n".join([title, *lines]) for title, lines in sections.items() if lines)


def _group(config: str, folders: Sequence[Path], group: str, chosen: str | None) -> str:
    """A group, its chosen component and the others; the rows of published tables are only counted."""
    files = {
        file.relative_to(folder / group).with_suffix("").as_posix(): file
        for folder in folders
        for file in (folder / group).rglob("*.yaml")
    }
    names = [name for name in sorted(files) if name != chosen and _command_of(group, files[name]) in (None, config)]
    rows = Counter(name.split("/")[0] for name in names if "/" in name)
    others = [name for name in names if "/" not in name] + [f"{paper}/LINE ({count})" for paper, count in rows.items()]
    listed = f": docs/rows.md, {folders[0] / group}" if rows else ""
    return _line(f"{group}={'null' if chosen is None else chosen}", f"or {', '.join(others)}{listed}" if others else "")


def _command_of(group: str, file: Path) -> str | None:
    """The command that an experiment or a sweep is for; None for a component."""
    if group not in ("experiment", "sweep"):
        return None
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    callbacks = settings.get("hydra", {}).get("callbacks", {})
    return callbacks.get("sweep", {}).get("command") or ("evaluate" if "evaluates" in settings else "train")


def _comments(file: Path, prefix: str) -> dict[str, str]:
    """Dotted key -> the comment after it in a yaml file."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = {}

    def walk(node: yaml.Node, prefix: str) -> None:
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            comment = _COMMENT.search(lines[key.start_mark.line])
            if comment:
                found[f"{prefix}{key.value}"] = comment[1]
            walk(value, f"{prefix}{key.value}.")

    walk(yaml.compose(text, Loader=yaml.SafeLoader), "" if text.startswith("# @package _global_") else prefix)
    return found


def _leaves(root: DictConfig) -> Iterator[tuple[str, str]]:
    """Dotted key and value of each setting, with references to other settings resolved; omits what Hydra derives."""
    settings = {key: value for key, value in plain(root, resolve=False).items() if key != "hydra"}
    for name, value in leaves(settings):
        if name.split(".")[-1] in (TARGET, PARTIAL) or (isinstance(value, str) and "${hydra:" in value):
            continue
        if value == {}:  # the user chooses the keys
            yield f"{name}.KEY", "VALUE"
        else:
            yield name, _shown(root, name, value)


def _shown(root: DictConfig, name: str, value: Any) -> str:
    if isinstance(value, str) and "${" in value and "${now:" not in value:
        try:
            value = OmegaConf.select(root, name)
        except OmegaConfBaseException:
            return str(value)
    text = value if isinstance(value, str) else yaml.safe_dump(value, default_flow_style=True, width=WIDTH)
    return text.removesuffix("\n...\n").strip()


def _line(setting: str, note: str) -> str:
    first = f"  {setting:<{COLUMN}}"
    if not note:
        return first.rstrip()
    break_first = [] if len(first) == COLUMN + 2 else [first]
    start = first + "  " if not break_first else " " * (COLUMN + 4)
    wrapped = textwrap.fill(
        note, WIDTH, initial_indent=start, subsequent_indent=" " * (COLUMN + 4), break_on_hyphens=False
    )
    return "\n".join([*break_first, wrapped])


OmegaConf.register_new_resolver("command_help", command_help, replace=True)
OmegaConf.register_new_resolver(
    "choices_of",
    lambda group: "\n  ".join(textwrap.wrap(", ".join(components().choices(group)), WIDTH - 16)),
    replace=True,
)

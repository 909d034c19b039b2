"""Overrides on the command line: quotes file names and texts for Hydra, and checks every key and value."""

import argparse
import re
from collections.abc import Collection, Sequence
from functools import reduce
from itertools import product
from operator import getitem
from pathlib import Path
from typing import Any, NoReturn

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from vsehub.checks import InputError, fail, nearest, regular, require
from vsehub.cli.file_settings import FILES
from vsehub.cli.nodes import leaves, plain
from vsehub.components import PARTIAL, TARGET

# Settings that take a list or a single value.
_LISTS = frozenset(["trust", "checkpoint", "teacher", "member_weights", "criteria", "query", "runs"])
# Options of Hydra that take the next argument as their value.
WITH_VALUE = (
    "-c",
    "--cfg",
    "-p",
    "--package",
    "-cp",
    "--config-path",
    "-cn",
    "--config-name",
    "-cd",
    "--config-dir",
    "-i",
    "--info",
)
MULTIRUN = {"-m", "--multirun"}
INFO = ["all", "config", "defaults", "defaults-tree", "plugins", "searchpath"]  # what --info takes
# Hydra's options that vsehub refuses: each command has exactly one configuration.
_NOT_OURS = ("config_path", "config_name", "package", "experimental_rerun")
_OF_OTHERS = ("experiment", "recipe", "sweep")  # groups whose files have settings of other parts only
# Choices that papers use with two meanings.
HINTS = {
    ("protocol", "5k"): 'the papers\' "5k" is protocol=c2, the mean over five folds of 1,000 images; '
    "one ranking over 5,000 images, which later papers call 5K, is protocol=full5k",
    ("protocol", "1k"): 'on COCO the papers\' "1k" is protocol=c1, the first 1,000 images; the mean over five folds of '
    "1,000, which later papers call 1K, is protocol=c2; Flickr30k's 1,000 test images are the whole split: single",
}
# What Hydra reads as a setting: a key, with its prefix and package, directly before the equals sign.
_SETTING = re.compile(r"[+~]{0,2}[\w./@:-]+=|~[\w./@:-]+$")
_KEY = re.compile(r"[+~]{0,2}[\w./@:-]+$")


def quoted(text: str) -> str:
    """The text, quoted so that Hydra's grammar reads it literally."""
    # OmegaConf would replace "${...}": it is escaped by a backslash, and backslashes before it are doubled.
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
    return QuotedString(text=text, quote=Quote.single).with_quotes()


def readable(arguments: Sequence[str]) -> list[str]:
    """The arguments, with quotes around values that Hydra's grammar would refuse or misread.

    These are file names (except with -m, where commas separate the values of a sweep) and values that do not parse.
    """
    several, parser = bool(MULTIRUN & set(arguments)), OverridesParser.create()
    return [
        argument if _is_option(arguments, number) else _readable(argument, several, parser)
        for number, argument in enumerate(arguments)
    ]


def _readable(argument: str, several: bool, parser: OverridesParser) -> str:
    key, sign, value = argument.partition("=")
    if not sign or not _KEY.match(key) or value in ("", "null") or value[0] in "'\"":
        return argument
    own = not key.lstrip("+").startswith("hydra") and key.split(".")[-1] in FILES
    if own and not several and not (value.startswith("[") and value.endswith("]")):
        return f"{key}={quoted(value)}"
    try:
        parser.parse_override(argument)
    except HydraException:
        return argument if value[0] in "[{" else f"{key}={quoted(value)}"
    return argument


def _is_option(arguments: Sequence[str], number: int) -> bool:
    return arguments[number].startswith("-") or (number > 0 and arguments[number - 1] in WITH_VALUE)


def text_of(argument: str, config: str) -> str | None:
    """The value of a command's setting that names a file, None for null.

    argument: as the user gave the setting or as `readable` wrote it. config: the name of the command's yaml.
    """
    value = parsed(readable([argument])[0], config).value()
    value = value.text if isinstance(value, QuotedString) else value
    return None if value is None else str(OmegaConf.create({"value": value}).value)  # without the escapes of `quoted`


def ordered(arguments: Sequence[str]) -> list[str]:
    """The arguments with Hydra's options first: Hydra refuses settings on both sides of an option.

    Raises InputError for an option that is unknown, lacks its value, or is not supported.
    """
    first = [argument for number, argument in enumerate(arguments) if _is_option(arguments, number)]
    parser = _options()

    def refuse(message: str) -> NoReturn:
        fail(f"{message}; the options are --help, --cfg job, --multirun (-m) and --config-dir=FOLDER")

    parser.error = refuse  # type: ignore[method-assign]
    if "--version" not in first:
        known = vars(parser.parse_args(first))
        for name in _NOT_OURS:
            require(known[name] is None, f"--{name.replace('_', '-')} is not an option of vsehub; leave it out")
    return [*first, *_settings_of(arguments)]


def _options() -> argparse.ArgumentParser:
    """Hydra's options, as its documentation lists them."""
    parser = argparse.ArgumentParser(add_help=False)
    for names in (("--help", "-h"), ("--hydra-help",), ("--resolve",), ("--run", "-r"), ("--multirun", "-m")):
        parser.add_argument(*names, action="store_true")
    parser.add_argument("--cfg", "-c", choices=["job", "hydra", "all"])
    parser.add_argument("--info", "-i", const="all", nargs="?", choices=INFO)
    for names in (("--config-dir", "-cd"), ("--config-path", "-cp"), ("--config-name", "-cn"), ("--package", "-p")):
        parser.add_argument(*names)
    parser.add_argument("--experimental-rerun")
    parser.add_argument("overrides", nargs="*")
    return parser


def config_dir(arguments: Sequence[str]) -> list[Path]:
    """The folder that --config-dir gives, if any. arguments: as `ordered` returns them."""
    given = _options().parse_args(arguments).config_dir
    require(given is None or Path(given).is_dir(), f"--config-dir: no such folder: {given}")
    return [] if given is None else [Path(given)]


def check(config: str, folders: Sequence[Path], arguments: Sequence[str]) -> None:
    """Raise InputError for what the words of a command line show to be wrong, without composing a configuration.

    These are choices that have no yaml, lists without -m, and values of another kind than the command's yaml has. Other
    settings are checked where the parts are built, and Hydra refuses those that are unknown; see `refuse_unknown`.
    config: the name of the command's yaml. folders: conf/ and, if it was given, the folder of --config-dir.
    """
    several = bool(MULTIRUN & set(arguments))
    for folder, group in product(folders[1:], _groups(folders[:1])):
        for path in (folder / group).rglob("*.yaml"):
            regular(path)  # Hydra opens them
            _require_read(path, folders[0] / path.relative_to(folder))
    own, defaults = groups_and_settings(folders[0] / f"{config}.yaml")
    overrides, groups = _overrides(config, arguments), _groups(folders)
    for one in overrides:
        name = one.key_or_group
        require(
            one.package is None,
            f"{one.input_line}: a part cannot be put at another place, which @{one.package} asks for; give "
            f"{name}={one.value()}",
        )
        require(
            not (name in groups and one.is_delete()),
            f"{one.input_line}: a part cannot be left out; choose another, as in {name}=NAME",
        )
        if _is_choice(one, groups):
            require(
                name in own,
                f"{config} has no group {name!r}{nearest(name, [*own, *defaults])}; its groups: "
                f"{', '.join(sorted(own)) or 'none'}",
            )
            _check_choice(one, folders, several)
        else:
            _require_single(one, several)
            _check_value(one, defaults, own)
    chosen = own | {one.key_or_group: one.value() for one in overrides if _is_choice(one, groups)}
    parts = {group for group, choice in chosen.items() if choice is not None and group not in _OF_OTHERS}
    tops = {one.key_or_group.partition(".")[0] for one in overrides if not _is_choice(one, groups)}
    # Hydra would take any +KEY=VALUE, and a sweep would begin to write before its first job is composed.
    if several or not tops <= defaults.keys() | parts:
        refuse_unknown(config, folders, arguments)


def _require_read(path: Path, ours: Path) -> None:
    """Raise InputError for a yaml of --config-dir in whose place Hydra reads one of vsehub that says something else."""
    require(
        not ours.is_file() or path.read_bytes() == ours.read_bytes(),
        f"--config-dir: {path} would not be read, since vsehub has {ours.parent.name}/{ours.name} itself; give it "
        "another name",
    )


def refuse_unknown(config: str, folders: Sequence[Path], arguments: Sequence[str]) -> None:
    """Raise InputError for settings that are unknown, with the most similar names.

    A configuration is composed to know the names: of the chosen parts, and of a sweep's first ones.
    """
    own, groups = groups_and_settings(folders[0] / f"{config}.yaml")[0], _groups(folders)
    overrides = _overrides(config, arguments)
    choices = [one for one in overrides if _is_choice(one, groups)]
    swept = any(one.is_sweep_override() or one.key_or_group == "sweep" for one in choices)  # later ones may have more
    first = [f"{one.key_or_group}={_choices(one)[0]}" for one in choices]
    try:
        settings = plain(composed(config, folders, first), resolve=False)
    except (HydraException, OmegaConfBaseException) as error:
        raise InputError(explained(error)) from error
    names = [name for name, _ in leaves(settings) if name.split(".")[-1] not in (TARGET, PARTIAL)] + list(own)
    for one in overrides:
        key = one.key_or_group
        added = one.is_add() or one.is_force_add()
        if one in choices or one.is_delete() or _holds(settings, key.split(".")[0] if added else key):
            continue
        if added or not swept:
            if not added and key.split(".")[0] in own:
                _require_of_choice(key, folders)
            fail(f"there is no setting {key!r}{_like(key, names)}")


def composed(config: str, folders: Sequence[Path], words: Sequence[str], with_hydra: bool = False) -> DictConfig:
    """The configuration of a command under settings and choices, without Hydra's own part or with it."""
    searched = [f"hydra.searchpath=[{','.join(quoted(f'file://{folder.resolve()}') for folder in folders[1:])}]"]
    with initialize_config_dir(str(folders[0]), version_base="1.3"):
        return compose(config, [*words, *(searched if folders[1:] else [])], return_hydra_config=with_hydra)


def _settings_of(arguments: Sequence[str]) -> list[str]:
    """The settings and choices among the arguments."""
    return [one for number, one in enumerate(arguments) if not _is_option(arguments, number)]


def one_of_each(config: str, arguments: Sequence[str]) -> list[str]:
    """The settings and choices among the arguments, of several values the first, without those that are drawn."""
    found = []
    for one in _overrides(config, arguments):
        if not one.is_sweep_override():
            found.append(str(one.input_line))
        elif one.is_discrete_sweep():
            found.append(f"{one.key_or_group}={next(one.sweep_string_iterator())}")
    return found


def _overrides(config: str, arguments: Sequence[str]) -> list[Override]:
    """The parsed settings and choices among the arguments, except Hydra's own."""
    found = [parsed(word, config) for word in _settings_of(arguments)]
    return [one for one in found if one.key_or_group.split("/")[0].split(".")[0] != "hydra"]


def _is_choice(one: Override, groups: Collection[str]) -> bool:
    return one.key_or_group in groups and not isinstance(one.value(), dict)


def _require_single(one: Override, several: bool) -> None:
    """Raise InputError for several values of a setting without -m."""
    name, listed = one.key_or_group, one.key_or_group in _LISTS
    if several or not one.is_sweep_override():
        return
    if listed:
        words = str(one.input_line).partition("=")[2]
        fail(f"{one.input_line} gives several values; put the list in brackets: '{name}=[{words}]'")
    fail(
        f"{one.input_line} gives several values; add -m to run the command for each of them, put a list in "
        f"brackets: '{name}=[A,B]', or quote a text with commas within the argument: \"{name}='A, B'\""
    )


def parsed(word: str, config: str) -> Override:
    """The parsed override. Raises InputError if `word` is not one."""
    key = word.partition("=")[0]
    try:
        require(key != "", f"{word!r} is not a setting: there is no key before the =; settings are KEY=VALUE")
        return OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise InputError(
            f"{word!r} is not a setting{'' if '=' in word else ': it has no ='}; settings are KEY=VALUE, and "
            f"`vsehub {config.replace('_', '-')} --help` lists them"
        ) from error


def groups_and_settings(path: Path) -> tuple[dict[str, str | None], dict[str, Any]]:
    """A command's groups with its choices, in the order of its yaml, and its own settings, nested and unresolved."""
    settings = plain(OmegaConf.load(path), resolve=False)
    settings.pop("hydra", None)
    entries = [one for one in settings.pop("defaults", []) if isinstance(one, dict)]
    groups = {key.removeprefix("optional "): choice for one in entries for key, choice in one.items()}
    return {group: choice for group, choice in groups.items() if not group.startswith("override ")}, settings


def _groups(folders: Sequence[Path]) -> set[str]:
    return {path.name for folder in folders for path in folder.iterdir() if path.is_dir() and path.name != "hydra"}


def _choices(override: Override) -> list[Any]:
    """The choices that an override names: several in a sweep."""
    discrete = override.is_sweep_override() and override.is_discrete_sweep()
    return list(override.sweep_string_iterator()) if discrete else [override.value()]


def _check_choice(override: Override, folders: Sequence[Path], several: bool) -> None:
    """Raise InputError if a choice has no yaml, and for several choices without -m."""
    name, value = override.key_or_group, override.value()
    sweep = override.is_sweep_override()
    require(several or not sweep, f"{override.input_line} gives several choices; add -m to run the command for each")
    require(
        several or name != "sweep" or not isinstance(value, str),
        f"sweep={value} is a grid of runs; add -m to run them: vsehub train -m sweep={value}",
    )
    names = _yaml_names(name, folders)
    shown = names if len(names) <= 30 else [*names[:10], f"... ({len(names)} in all)"]
    for choice in _choices(override):
        hint = HINTS.get((name, str(choice)))
        require(hint is None, f"{name}={choice} is ambiguous: {hint}")
        require(
            isinstance(choice, str | int | float) and str(choice) in names,
            f"{name}={'null' if choice is None else choice} is not a choice of {name}{nearest(str(choice), names)}; "
            f"choose one of {', '.join(shown)}",
        )


def _yaml_names(group: str, folders: Sequence[Path], holding: str | None = None) -> list[str]:
    """The choices of a group. holding: only those whose yaml has this setting."""
    files = {
        path.relative_to(folder / group).with_suffix("").as_posix(): path
        for folder in folders
        for path in (folder / group).rglob("*.yaml")
    }
    return [
        name
        for name, path in sorted(files.items())
        if holding is None or _holds(plain(OmegaConf.load(path), resolve=False), holding)
    ]


def _require_of_choice(key: str, folders: Sequence[Path]) -> None:
    """Raise InputError for a setting that other choices of its group have, naming them."""
    group, _, rest = key.partition(".")
    owners = _yaml_names(group, folders, holding=rest) if rest else []
    if owners:
        words = " or ".join(f"{group}={name}" for name in owners[:5]) + (" and others" if len(owners) > 5 else "")
        fail(f"{key} belongs to {words}; add {group}={owners[0]}")


def _holds(settings: Any, key: str) -> bool:
    """Whether nested settings have a dotted key, be it null."""
    for part in key.split("."):
        if not isinstance(settings, dict) or part not in settings:
            return False
        settings = settings[part]
    return True


def _check_value(one: Override, defaults: dict[str, Any], groups: Collection[str]) -> None:
    """Raise InputError for a value that no setting has, and for one of another kind than a default of the command.

    defaults: of the command's own settings. The settings of parts, in `groups`, are checked by their constructors.
    """
    key = one.key_or_group
    if one.is_delete():
        return
    last = key.split(".")[-1]
    require(not last.startswith("_") or last == TARGET, f"{key} cannot be set; a part only takes its own settings")
    for value in _values(one):
        require(value != "", f"{key} is empty; give a value, or leave it out")
        require(key not in groups, f"{key} stands for several settings; set them one by one: {key}.KEY=VALUE")
        if _holds(defaults, key):
            _check_kind(key, value, reduce(getitem, key.split("."), defaults))


def _values(one: Override) -> list[Any]:
    """The values that an override gives: several in a sweep, none where one is drawn from an interval."""
    found: list[Any] = [one.value()]
    if one.is_sweep_override():
        found = list(one.sweep_iterator()) if one.is_discrete_sweep() else []
    return [value.text if isinstance(value, QuotedString) else value for value in found]


def _like(key: str, names: list[str]) -> str:
    last = key.split(".")[-1]
    same = [name for name in names if name.split(".")[-1] == last]
    if same and key not in same:
        return f" (did you mean {' or '.join(same[:3])}?)"
    return nearest(key, names) or nearest(last, [name.split(".")[-1] for name in names])


def _check_kind(key: str, value: Any, default: Any) -> None:
    """Raise InputError if a value cannot replace the default of a command's own setting."""
    top, text = "." not in key, str(value)
    if isinstance(default, bool):
        require(isinstance(value, bool), f"{key} is {value!r}; expected true or false")
    if isinstance(default, dict):
        inner = [name for name, _ in leaves(default, f"{key}.")] or [f"{key}.KEY=VALUE"]
        fail(f"{key} stands for several settings; set them one by one: {', '.join(inner[:5])}")
    if value is None:
        require(not top or default is None, f"{key} is null; give a value, or leave it out")
        return
    if isinstance(default, int | float) and not isinstance(default, bool) and "${" not in text:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        require(number, f"{key} is {text!r}; expected a number")
    if isinstance(default, list):
        require(
            isinstance(value, list) or key == "criteria", f"{key} is {text!r}; expected a list, as in {key}=[{text}]"
        )
    else:
        single = not isinstance(value, dict) and (not isinstance(value, list) or key in _LISTS)
        require(single, f"{key} is {text}; expected a single value")


def explained(error: BaseException) -> str:
    """The message of an error from Hydra or OmegaConf on one line, without its advice."""
    said = str(error) or str(error.__cause__ or "")
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    advice = ("full_key", "object_type", "reference_type", "To append", "Set the environment")
    text = " ".join(line for line in lines if not line.startswith(advice))
    key = next((line.partition(":")[2].strip() for line in lines if line.startswith("full_key:")), "")
    return text if not key or key in text else f"{key}: {text}"


def bare_texts(arguments: Sequence[str]) -> list[str]:
    """The arguments that are neither options nor settings."""
    return [one for number, one in enumerate(arguments) if not (_SETTING.match(one) or _is_option(arguments, number))]


def with_texts(arguments: Sequence[str], key: str) -> list[str]:
    """The arguments, with all texts collected in one list `key=[...]`.

    A text is an argument that is neither an option nor a setting, or one of the form `key=TEXT`. A list `key=[...]` in
    Hydra's grammar is kept. Raises InputError if both are given.
    """
    texts, rest, listed = [], [], False
    for number, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if sign and name == key and not value.startswith("["):
            texts += [] if value == "null" else [value]
        elif _SETTING.match(argument) or _is_option(arguments, number):
            rest.append(argument)
            listed |= bool(sign) and name == key
        else:
            texts.append(argument)
    require(not (texts and listed), f"both texts and {key}=[...] were given; give all texts in one of these forms")
    return [*rest, f"{key}=[{','.join(map(quoted, texts))}]"] if texts else rest

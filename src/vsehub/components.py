"""Building components from plain values, restricted to the classes that a group's yaml files name.

A configuration may come from an untrusted file, such as someone else's checkpoint. Building from it only imports and
calls classes that the yaml files of its group name (docs/security.md).
"""

import importlib
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from vsehub.checks import InputError, fail, is_out_of_memory, nearest, regular, require

TARGET, PARTIAL = "_target_", "_partial_"
MISSING = "???"  # as OmegaConf writes a value that must be given
_CLASS = re.compile(r"\w+(\.\w+)+")
# Raised again unchanged: their messages say more than "refuses its settings".
_NOT_REFUSALS = (OSError, ImportError, MemoryError)


class Component:
    """Base class of components that tell the builder more than their constructor's signature does.

    SLOTS: argument -> config group, for arguments that are themselves components, or lists of them. rebuilt: argument
    -> value that replaces the configured one when the component is built from a checkpoint, for arguments that name
    files which may no longer exist or must not be written.
    """

    SLOTS: Mapping[str, str] = {}
    rebuilt: Mapping[str, Any] = {}

    @classmethod
    def admit(cls, settings: Mapping[str, Any], trust: Sequence[str]) -> None:
        """Raise InputError for settings of a checkpoint that would open files other than those of `trust`."""


def declared(made: object) -> Component | type[Component]:
    """What a class or an object declares to the builder: itself if it is a `Component`, else the defaults."""
    if isinstance(made, Component) or (isinstance(made, type) and issubclass(made, Component)):
        return made
    return Component


def conf_folder() -> Path:
    """The folder of the configuration: inside an installed wheel, or at the top of the checkout."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent.parent / "conf"


@dataclass(frozen=True)
class Components:
    """The classes that each group may name: those of the yaml files below `folders`, and those of `trust`.

    folders: each has one folder per group (`loss/`, `criterion/`, ...) with one yaml file per choice, like conf/.
    trust: full names of further classes, "package.module.Class", and paths of files and folders that a checkpoint may
    name. Raises InputError if one is neither.
    """

    folders: Sequence[Path]
    trust: Sequence[str] = ()

    def __post_init__(self) -> None:
        named = isinstance(self.trust, list | tuple) and all(
            isinstance(one, str) and (_CLASS.fullmatch(one) or os.path.exists(one)) for one in self.trust
        )
        require(
            named,
            f"trust is {self.trust!r}; expected full names of classes, as in trust=mypackage.losses.Mine, or paths of "
            "files and folders that are there",
        )

    def build(self, group: str, node: Mapping[str, Any], restored: bool = False, **given: Any) -> Any:
        """The component that `node` describes, or a function that makes it if its yaml says `_partial_`.

        node: `_target_`, the class, and plain values for its arguments. Arguments that are components themselves are
        those of `Component.SLOTS`; an argument whose annotation is a `Component` is made from its own settings. given:
        arguments that come from elsewhere. restored: the node comes from a checkpoint, so that `Component.rebuilt`
        replaces arguments that would read or write other files. Raises
        InputError for a class that no yaml of the group names, for settings that are unknown, missing or of the wrong
        type, and for everything that the constructor refuses.
        """
        made = self.find(group, node)
        settings = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)} | given
        if restored:
            settings = without_own_files(made, settings)
            declared(made).admit(settings, self.trust)
        is_partial = self._targets(group).get(node[TARGET], bool(node.get(PARTIAL)))
        _check_settings(group, made, settings, given, is_partial)
        for name, slot in declared(made).SLOTS.items():
            if name in settings:
                settings[name] = self._slot(slot, settings[name], restored)
        for name, kind in nested(made).items():
            if name not in given and settings.get(name) is not None:
                settings[name] = make(f"{group}.{name}", kind, settings[name])
        call = partial(_called, group, made)
        return partial(call, **settings) if is_partial else call(**settings)

    def find(self, group: str, node: Mapping[str, Any]) -> Callable[..., Any]:
        """The imported class that `node` names. Raises InputError if no yaml of the group names it."""
        target = node.get(TARGET) if isinstance(node, Mapping) else None
        if not isinstance(target, str):
            fail(f"{group} is {node!r}; expected a component: a choice, as in {group}=NAME")
        known = self._targets(group)
        require(
            target in known or target in self.trust,
            f"{group}: {target} is not a class that a yaml file of {group} names; refused, since building it would run "
            f"its code. If you trust it, give the folder of its yaml with --config-dir, or trust={target}",
        )
        module, _, name = target.rpartition(".")
        try:
            found: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"{group}: {target} cannot be imported ({error})") from error
        return found

    def choices(self, group: str) -> list[str]:
        """The names of the yaml files of a group."""
        return sorted({path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")})

    def path(self, group: str, choice: str) -> Path:
        """The yaml file of a choice. Raises InputError with the most similar name if there is none."""
        names = self.choices(group)
        for folder in reversed(self.folders):
            path = folder / group / f"{choice}.yaml"
            if choice in names and path.is_file():  # not "../other/name"
                return path
        fail(f"{group} is {choice!r}{nearest(str(choice), names)}; choose one of {', '.join(names)}")

    def node(self, group: str, choice: str) -> Mapping[str, Any]:
        """The content of a choice's yaml file, which `build` takes: the class and its settings.

        Raises InputError with the most similar name if there is no such choice, and if the file does not name a class.
        """
        path = self.path(group, choice)
        node = _of_group(group, _read_yaml(path))
        require(isinstance(node, dict) and TARGET in node, f"{path} is no component; expected {TARGET}: CLASS")
        return types.MappingProxyType(node)

    def _slot(self, group: str, value: Any, restored: bool) -> Any:
        if isinstance(value, list | tuple):
            return [self.build(group, one, restored) for one in value]
        return None if value is None else self.build(group, value, restored)

    def _targets(self, group: str) -> dict[str, bool]:
        """Class -> whether its yaml says `_partial_`."""
        found: dict[str, bool] = {}
        for folder in self.folders:
            for path in sorted((folder / group).glob("*.yaml")):
                own = _of_group(group, _read_yaml(path))
                found |= {node[TARGET]: bool(node.get(PARTIAL)) for node in _nodes(own)}
        return found


_PARSED: dict[tuple[Path, int, int], Any] = {}


def _of_group(group: str, content: Any) -> Any:
    """A group's own part of a yaml file: in one of the package _global_ the group is one key among others."""
    return content.get(group, content) if isinstance(content, dict) else content


def _read_yaml(path: Path) -> Any:
    stat = path.stat()
    key = path, stat.st_mtime_ns, stat.st_size
    if key not in _PARSED:
        try:
            _PARSED[key] = yaml.safe_load(regular(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is not a yaml file: {' '.join(str(error).split())}") from error
    return _PARSED[key]


def _nodes(value: Any) -> Iterable[dict[str, Any]]:
    """Every mapping that names a class, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(TARGET), str):
            yield value
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _nodes(inner)


def _require_plain(name: str, value: Any) -> None:
    """Raise InputError if a value outside of `Component.SLOTS` holds a component, or anything but plain values."""
    if isinstance(value, Mapping):
        require(
            TARGET not in value,
            f"{name} names a class, {value.get(TARGET)}, where only plain values belong; a class that takes components "
            "declares them in its attribute SLOTS (`vsehub.components.Component`)",
        )
        for key, inner in value.items():
            _require_plain(f"{name}.{key}", inner)
    elif isinstance(value, list | tuple):
        for place, inner in enumerate(value):
            _require_plain(f"{name}[{place}]", inner)
    else:
        require(
            value is None or isinstance(value, bool | int | float | str),
            f"{name} is a {type(value).__name__}; expected a plain value",
        )
        require(not isinstance(value, float) or math.isfinite(value), f"{name} is {value}; expected a finite number")


def _check_settings(
    group: str, made: Callable[..., Any], settings: Mapping[str, Any], given: Mapping[str, Any], is_partial: bool
) -> None:
    """Raise InputError for settings that are unknown to the constructor, missing, or of the wrong type."""
    parameters = inspect.signature(made).parameters
    named = {name: one for name, one in parameters.items() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    title = getattr(made, "__name__", str(made))
    kinds = _annotations(made)
    for name, value in settings.items():
        require(
            takes_any or name in named,
            f"{group}: {title} has no setting {name!r}{nearest(name, named)}; its settings: {', '.join(named)}",
        )
        if name not in given:
            require(value != MISSING, f"{group}.{name} is not set; give {group}.{name}=VALUE")
            if name not in declared(made).SLOTS:
                _require_plain(f"{group}.{name}", value)
            own = nested(made).get(name)
            kind = kinds.get(name, Any)
            require_kind(f"{group}.{name}", value, kind if own is None else Mapping[str, Any] | None)
    required = [name for name, one in named.items() if one.default is one.empty]
    lacking = [name for name in required[1 if is_partial else 0 :] if name not in settings]
    require(not lacking, f"{group}: {title} needs {', '.join(lacking)}; give {group}.{(lacking or [''])[0]}=VALUE")


def _annotations(made: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(made.__init__ if inspect.isclass(made) else made)
    except (NameError, TypeError):  # an annotation that only a type checker can evaluate
        return {}


def nested(made: Callable[..., Any]) -> dict[str, type[Component]]:
    """The arguments that are objects of one class with settings of their own, such as `pictures` of a source.

    The annotation chooses the class; the configuration gives its settings only.
    """
    found = {}
    for name, kind in _annotations(made).items():
        classes = typing.get_args(kind) if typing.get_origin(kind) in (typing.Union, types.UnionType) else (kind,)
        own = [one for one in classes if isinstance(one, type) and issubclass(one, Component)]
        if own and name != "return" and name not in declared(made).SLOTS:
            found[name] = own[0]
    return found


def without_own_files(made: Callable[..., Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a checkpoint with `Component.rebuilt` in the place of files that the checkpoint may not name."""
    return {**settings, **declared(made).rebuilt}


def changed(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with changes; a change of one nested setting leaves the others beside it."""
    found = dict(settings)
    for name, value in changes.items():
        before = found.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            found[name] = changed(before, value)
        else:
            found[name] = value
    return found


def require_kind(name: str, value: Any, kind: Any) -> None:
    """Raise InputError if a plain value is not of the declared kind; other kinds are not checked."""
    wanted = _plain_kinds(kind)
    if wanted is None or any(_is(value, one) for one in wanted):
        return
    words = " or ".join(dict.fromkeys(_words(one) for one in wanted))
    fail(f"{name} is {value!r}; expected {words}")


_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "null",
    list: "a list",
    dict: "settings",
}


def _words(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    return f"a list of {len(kind)}" if isinstance(kind, tuple) else _WORDS[kind]


def _plain_kinds(kind: Any) -> tuple[Any, ...] | None:
    """The plain kinds that an annotation allows; None if it allows other kinds too, which are not checked.

    A kind is a type, a `Literal`, or, for a tuple of a certain length, its members' annotations.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        found: tuple[Any, ...] = ()
        for one in args:
            kinds = _plain_kinds(one)
            if kinds is None:
                return None
            found += kinds
        return found
    if origin is typing.Literal:
        return (kind,)
    if origin is tuple and args and args[-1] is not ...:
        return (args,)
    if isinstance(origin, type):
        kind = origin
    if not isinstance(kind, type):
        return None
    if kind in (bool, int, float, str, type(None)):
        return (kind,)
    if kind is Path:
        return (str,)
    if issubclass(kind, Mapping) or kind is Mapping:
        return (dict,)
    return (list,) if issubclass(kind, list | tuple) or kind is Sequence else None


def _is(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is typing.Literal:
        return any(value == one and type(value) is type(one) for one in typing.get_args(kind))
    if isinstance(kind, tuple):
        return isinstance(value, list | tuple) and len(value) == len(kind)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind is list:
        return isinstance(value, list | tuple)
    return isinstance(value, kind)


def make(group: str, made: Callable[..., Any], settings: Mapping[str, Any], /, **given: Any) -> Any:
    """An object of a known class from plain values, which are checked as in `Components.build`.

    group: the name of the settings in messages, as on the command line. given: arguments that come from elsewhere.
    """
    require(isinstance(settings, Mapping), f"{group} is {settings!r}; expected settings, as in {group}.KEY=VALUE")
    _check_settings(group, made, {**settings, **given}, given, False)
    return _called(group, made, **settings, **given)


def _called(group: str, made: Callable[..., Any], /, *args: Any, **settings: Any) -> Any:
    """The object that the constructor makes. Raises InputError if the constructor refuses its arguments."""
    try:
        return made(*args, **settings)
    except InputError as error:
        first, _, rest = str(error).partition(" ")
        if first.rstrip(":").partition(".")[0] in settings:  # named in full, as on the command line
            raise InputError(f"{group}.{first} {rest}") from error
        raise
    except _NOT_REFUSALS:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{group}: {getattr(made, '__name__', made)} refuses its settings: {said}") from error

"""Building components from plain values, as `hydra.utils.instantiate` does, but behind an allow-list.

A configuration may come from an untrusted file, such as someone else's checkpoint. Building from it only imports and
calls classes that the yaml files of its group name (docs/security.md).
"""

import importlib
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from vsehub.checks import InputError, boolean, fail, regular, require, suggest

TARGET, PARTIAL = "_target_", "_partial_"
MISSING = "???"  # as OmegaConf writes a value that must be given
FURTHER_FOLDERS: list[Path] = []  # of the command's --config-dir
# Raised again unchanged: their messages say more than "refuses its settings".
_NOT_REFUSALS = (OSError, ImportError, MemoryError)


class Component:
    """Base class of components that a checkpoint may name, and of classes that an argument's annotation names.

    rebuilt: argument -> value that replaces the configured one when the component is built from a checkpoint, for
    arguments that name files which may no longer exist or must not be written.
    """

    rebuilt: Mapping[str, Any] = {}

    @classmethod
    def restored(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings from a checkpoint, with `rebuilt`. Raises InputError if they would open other files."""
        return {**settings, **cls.rebuilt}


def component_class(factory: Callable[..., Any]) -> type[Component]:
    """The class, if it is a `Component`, else `Component` itself, whose declarations are the defaults."""
    return factory if isinstance(factory, type) and issubclass(factory, Component) else Component


def conf_folder() -> Path:
    """The folder of the configuration: inside an installed wheel, or at the top of the checkout."""
    package = Path(__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent.parent / "conf"


def conf_folders() -> tuple[Path, ...]:
    """The folder of the configuration, and those of a command's --config-dir."""
    return (conf_folder(), *FURTHER_FOLDERS)


@dataclass(frozen=True)
class Components:
    """The classes that each group may name: those of the yaml files below `folders`, and those of `trust`.

    folders: each has one folder per group (`loss/`, `criterion/`, ...) with one yaml file per choice, like conf/.
    trust: full names of further classes, "package.module.Class". any_class: all nodes are from the command line, which
    may name any class.
    """

    folders: Sequence[Path]
    trust: Sequence[str] = ()
    any_class: bool = False

    def __post_init__(self) -> None:
        require(
            isinstance(self.trust, list | tuple),
            f"trust is {self.trust!r}; expected full names of classes, as in trust=mypackage.losses.Mine",
        )

    def build(self, group: str, node: Mapping[str, Any], restored: bool = False, **arguments: Any) -> Any:
        """The component that `node` describes, or a function that makes it if the node says `_partial_`.

        node: `_target_`, the class, and values for its arguments, components of the same group among them; an argument
        whose annotation is a `Component` is made from its own settings. arguments: further arguments, passed as they
        are. restored: the node is a checkpoint's, see `Component.restored`. Raises InputError for a class that no yaml
        of the group names, for values that are missing, and for everything that the constructor refuses.
        """
        factory = self.find(group, node)
        settings = {key: value for key, value in node.items() if key not in (TARGET, PARTIAL)} | arguments
        if restored:
            settings = component_class(factory).restored(settings)
        nested = nested_settings(factory)
        for name, value in settings.items():
            if name in arguments or (name in nested and value is None):
                continue
            require(value != MISSING, f"{group}.{name} is not set; give {group}.{name}=VALUE")
            if name in nested:
                settings[name] = make(f"{group}.{name}", nested[name], value)
            else:
                settings[name] = self._inner(group, value, restored)
        call = partial(_call, group, factory)
        return partial(call, **settings) if node.get(PARTIAL) else call(**settings)

    def find(self, group: str, node: Mapping[str, Any]) -> Callable[..., Any]:
        """The imported class that `node` names. Raises InputError if no yaml of the group names it."""
        target = node.get(TARGET) if isinstance(node, Mapping) else None
        if not isinstance(target, str):
            fail(f"{group} is {node!r}; expected a component: a choice, as in {group}=NAME")
        require(
            self.any_class or target in self.trust or target in self._targets(group),
            f"{group}: {target} is not a class that a yaml file of {group} names; refused, since building it would run "
            f"its code. If you trust it, give the folder of its yaml with --config-dir, or trust={target}",
        )
        module, _, name = target.rpartition(".")
        try:
            factory: Callable[..., Any] = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"{group}: {target} cannot be imported ({error})") from error
        return factory

    def choices(self, group: str) -> list[str]:
        """The names of the yaml files of a group."""
        return sorted({path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")})

    def node(self, group: str, choice: str) -> Mapping[str, Any]:
        """The content of a choice's yaml file, which `build` takes: the class and its settings.

        Raises InputError with the most similar name for an unknown choice, and if the file does not name a class.
        """
        names = self.choices(group)  # "../other/name" is not among them
        advice = f"{suggest(str(choice), names)}; choose one of {', '.join(names)}"
        require(choice in names, f"{group} is {choice!r}{advice}")
        paths = [folder / group / f"{choice}.yaml" for folder in reversed(self.folders)]
        node = _content(next(path for path in paths if path.is_file()))
        require(isinstance(node, dict) and TARGET in node, f"{group}={choice} is not a component; it names no {TARGET}")
        return types.MappingProxyType(node)

    def _inner(self, group: str, value: Any, restored: bool) -> Any:
        """A setting in which each component, at any depth, is built."""
        if isinstance(value, Mapping) and TARGET in value:
            return self.build(group, value, restored)
        if isinstance(value, Mapping):
            return {key: self._inner(group, inner, restored) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self._inner(group, inner, restored) for inner in value]
        return value

    def _targets(self, group: str) -> set[str]:
        """The classes that the yaml files of a group name."""
        paths = [path for folder in self.folders for path in (folder / group).glob("*.yaml")]
        return {target for path in paths for target in named_classes(_content(path))}


@cache
def _content(path: Path) -> Any:
    try:
        return yaml.safe_load(regular(path).read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a yaml file: {' '.join(str(error).split())}") from error


def named_classes(value: Any) -> Iterable[str]:
    """Every class that a value names, at any depth."""
    if isinstance(value, dict):
        if isinstance(value.get(TARGET), str):
            yield value[TARGET]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from named_classes(inner)


def _annotations(factory: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(factory.__init__ if inspect.isclass(factory) else factory)
    except (NameError, TypeError):  # an annotation that only a type checker can evaluate
        return {}


def nested_settings(factory: Callable[..., Any]) -> dict[str, type[Component]]:
    """argument -> class, for arguments annotated with a `Component`, such as `pictures` of a source.

    The configuration gives only the settings of such an argument.
    """
    nested = {}
    for name, annotation in _annotations(factory).items():
        is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
        classes = typing.get_args(annotation) if is_union else (annotation,)
        components = [kind for kind in classes if isinstance(kind, type) and issubclass(kind, Component)]
        if components and name != "return":
            nested[name] = components[0]
    return nested


def component_nodes(value: Any) -> list[Any]:
    """The nodes of a setting that takes one component, a list of them, or several by name; [] for null."""
    if isinstance(value, Mapping) and TARGET not in value:
        return list(value.values())
    if isinstance(value, list | tuple):
        return list(value)
    return [value] if value else []


def with_changes(settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with changes; a change of one nested setting leaves the others beside it."""
    result = {**settings, **changes}
    for name, change in changes.items():
        if isinstance(change, Mapping) and isinstance(settings.get(name), Mapping):
            result[name] = with_changes(settings[name], change)
    return result


def make(group: str, factory: Callable[..., Any], settings: Mapping[str, Any], /, **arguments: Any) -> Any:
    """An object of a known class from plain values.

    group: the name of the settings in messages, as on the command line. arguments: further arguments, passed as they
    are. Raises InputError for everything that the constructor refuses.
    """
    require(
        isinstance(settings, Mapping) and TARGET not in settings,
        f"{group} is {settings!r}; expected settings, as in {group}.KEY=VALUE",
    )
    return _call(group, factory, **settings, **arguments)


def _call(group: str, factory: Callable[..., Any], /, *args: Any, **settings: Any) -> Any:
    """The object that the constructor makes. Raises InputError if the constructor refuses its arguments."""
    for name, kind in _annotations(factory).items():
        if kind in (bool, bool | None) and name in settings:  # a word such as "no" would count as true
            boolean(f"{group}.{name}", settings[name], or_none=kind is not bool)
    try:
        return factory(*args, **settings)
    except InputError as error:
        first, _, rest = str(error).partition(" ")
        # A message that begins with an argument's name, "margin is -1": the group makes it "loss.margin is -1".
        if first.rstrip(":").partition(".")[0] in settings:
            raise InputError(f"{group}.{first} {rest}") from error
        raise
    except _NOT_REFUSALS:
        raise
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{group}: {getattr(factory, '__name__', factory)} refuses its settings: {said}") from error

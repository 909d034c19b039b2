"""From nodes of the configuration to plain values, components and devices."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import require
from vsehub.components import Components, conf_folder

if TYPE_CHECKING:
    import torch


MODEL_SETTINGS = {"weights": None, "prompt": "{}"}


def plain(node: Any, resolve: bool = True) -> Any:
    """The plain values of a configuration node; resolve: replace interpolations by their values."""
    return OmegaConf.to_container(node, resolve=resolve) if OmegaConf.is_config(node) else node


def as_list(node: Any) -> list[Any]:
    """The plain values of a setting that takes one value or a list of them; [] for null."""
    value = plain(node)
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def literal(values: dict[str, Any]) -> DictConfig:
    """Plain values of a file as a configuration. Raises InputError for an interpolation, which could read secrets."""
    require("${" not in json.dumps(values), "a record holds ${...}, which vsehub does not write")
    return OmegaConf.create(values)


def components(trust: str | Sequence[str] | None = None, any_class: bool = False) -> Components:
    """The classes that a configuration may name: those of conf/, of the command's --config-dir, and of `trust`.

    any_class: all nodes are from the command line, not from a file, and may name any class.
    """
    return Components([conf_folder(), *config_dirs()], as_list(trust), any_class)


def choice_in(group: str) -> str:
    """The name of the chosen yaml file of a group, such as "csls" in the group "criterion"."""
    return str(HydraConfig.get().runtime.choices[group])


def config_dirs() -> list[Path]:
    """The folder of --config-dir as a list, empty without one.

    It is read from Hydra's state, since a job of a sweep in another process has no command line.
    """
    hydra = GlobalHydra.instance()
    if hydra.is_initialized():  # then the configuration itself may not be composed yet
        sources: list[Any] = hydra.config_loader().get_sources()
    else:
        sources = HydraConfig.get().runtime.config_sources if HydraConfig.initialized() else []
    return [Path(source.path) for source in sources if source.provider == "command-line"]


def build(group: str, node: Any, trust: str | Sequence[str] | None = None, **arguments: Any) -> Any:
    """The component of a node of the command line; see `Components.build`."""
    return components(trust, any_class=True).build(group, plain(node), **arguments)


def require_unset(cfg: DictConfig, names: Iterable[str], condition: str, unless: bool = False) -> None:
    """Raise InputError if one of the settings `names` is set although it has no effect.

    condition: what makes them ineffective, for the message. unless: True if they have an effect: nothing is raised.
    """
    ignored = [name for name in names if cfg[name] not in (None, {})]
    require(unless or not ignored, f"{', '.join(ignored)}: has no effect with {condition}; omit it")


def model_settings(cfg: DictConfig) -> dict[str, Any]:
    """The settings of `model=`. Raises InputError unless either a checkpoint or a published model is given."""
    require(
        (cfg.checkpoint is None) != (cfg.model is None),
        f"checkpoint is {'not set' if cfg.model is None else 'given with model'}; give checkpoint=RUN_FOLDER/"
        "checkpoints/best.safetensors, or model=LIBRARY:NAME for a published model as it is",
    )
    changed = [name for name, default in MODEL_SETTINGS.items() if cfg[name] != default]
    require(cfg.model is not None or not changed, f"{', '.join(changed)}: has an effect only with model=; omit it")
    return {name: cfg[name] for name in MODEL_SETTINGS}


def device_named(name: str) -> "torch.device":
    """The device; "auto" is the GPU if there is one. Raises InputError if it is not available on this machine."""
    import torch

    from vsehub.machine import usable_device

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return usable_device(str(name), "auto, cpu or cuda")


def decay_epoch(epochs: Any) -> int:
    """Two thirds of a training's epochs, at least 1: 10 of 15, as AAAI trains HAL."""
    return max(1, round(2 * epochs / 3)) if isinstance(epochs, int) else 1  # anything else is refused later


# `by`: the entry of a table under a key, or else the last argument. `first`: the first value that is not null.
OmegaConf.register_new_resolver("by", lambda key, table, other: table.get(key, other), replace=True)
OmegaConf.register_new_resolver(
    "first", lambda *values: next(value for value in values if value is not None), replace=True
)
OmegaConf.register_new_resolver("decay_epoch", decay_epoch, replace=True)

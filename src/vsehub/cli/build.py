"""From configuration to objects."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import require
from vsehub.components import Components, conf_folder, make
from vsehub.data.noise import Noise
from vsehub.data.sources import Source


def plain(node: Any) -> Any:
    """Resolved plain values of a configuration node."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def literal(values: dict[str, Any]) -> DictConfig:
    """Plain values, from a file for example, as a configuration in which no text is an interpolation."""
    return OmegaConf.create(_literal(values))


def _literal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _literal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_literal(inner) for inner in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value


def components(trust: str | Sequence[str] | None = None) -> Components:
    """The classes that a configuration may name: those of conf/, of the command's --config-dir, and of `trust`."""
    trust = [] if trust is None else [trust] if isinstance(trust, str) else plain(trust)
    return Components([conf_folder(), *_given_folders()], trust)


def _given_folders() -> list[Path]:
    """The folder of --config-dir, where one was given."""
    if not HydraConfig.initialized():
        return []
    sources = HydraConfig.get().runtime.config_sources
    return [Path(unquote(urlsplit(one.path).path) or one.path) for one in sources if one.provider == "command-line"]


def build(group: str, node: Any, trust: Any = None, **given: Any) -> Any:
    """The component of a configuration node; see `Components.build`."""
    return components(trust).build(group, plain(node), **given)


def build_source(cfg: DictConfig) -> Source:
    """The data source of `cfg.data`; InputError where a mandatory setting is missing, or noise is asked for."""
    node = plain(cfg.data)
    noise = make("data.noise", Noise, node.pop("noise", None) or {})
    require(not noise.wanted, "data.noise is for training only; leave data.noise.rate and .index out")
    return components(cfg.get("trust")).build("data", node)

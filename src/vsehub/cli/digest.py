"""Digests of settings: a sweep names the folders of its runs by them, and so recognises finished runs."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

from vsehub.cli.nodes import plain
from vsehub.recipes import class_name, decides, named_classes


def digest(cfg: DictConfig) -> str:
    """Eight letters for a run's settings. 30 equals 30.0, and null equals an absent setting."""
    return digest_of(dict(_settings(cfg)))


def digest_of(settings: Any) -> str:
    """Eight letters for plain values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]


def _settings(node: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key in map(str, node):
        name = f"{prefix}{key}"
        value = _value(node, key) if decides(name) else None
        if isinstance(value, DictConfig):
            yield from _settings(value, f"{name}.")
        elif value is not None:
            yield name, class_name(value) if key == "_target_" else _alike(named_classes(plain(value)))


def _value(node: DictConfig, key: str) -> Any:
    """The value, unresolved if it cannot be resolved: training reports what is missing."""
    try:
        return node[key]
    except (MissingMandatoryValue, InterpolationResolutionError):
        return plain(node, resolve=False)[key]


def _alike(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_alike(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


OmegaConf.register_new_resolver("settings_digest", lambda *, _root_: digest(_root_), replace=True)

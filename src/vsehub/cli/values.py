"""Configurations as plain values, and plain values as configurations."""

import re
from typing import Any

from omegaconf import DictConfig, OmegaConf


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

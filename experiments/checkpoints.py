"""Trained models and their data, criteria and protocols, as the studies measure them."""

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from vsehub.cli.measure import Encodings, encodings_of
from vsehub.cli.nodes import components


def restored(run: Path, root: str | None) -> Encodings:
    """A run's best checkpoint with its data, encoded when asked for. root: where the data lies now, if elsewhere."""
    return encodings_of(run / "checkpoints" / "best.safetensors", {} if root is None else {"root": root})


def chosen(group: str, name: str, **changes: Any) -> Any:
    """The component of a choice, e.g. of criterion=csls, with some settings changed."""
    known = components()
    return known.build(group, OmegaConf.to_container(OmegaConf.load(known.path(group, name))) | changes)

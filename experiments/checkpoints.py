"""Trained models and their data, criteria and protocols, as the studies measure them."""

from pathlib import Path
from typing import Any

import vsehub
from vsehub.components import Components, conf_folder


def restored(run: Path, root: str | None) -> vsehub.TrainedModel:
    """A run's best model with its data. root: where the data lies now, if elsewhere."""
    return vsehub.load(run / "checkpoints" / "best.safetensors", data={} if root is None else {"root": root})


def chosen(group: str, name: str, **changes: Any) -> Any:
    """The component of a choice, e.g. of criterion=csls, with some settings changed."""
    known = Components([conf_folder()])
    return known.build(group, {**known.node(group, name), **changes})


def of_record(group: str, node: dict[str, Any]) -> Any:
    """The component that a run's record describes."""
    return Components([conf_folder()]).build(group, node)

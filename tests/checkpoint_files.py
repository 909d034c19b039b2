"""Checkpoints that are changed by hand."""

import json

from safetensors import safe_open
from safetensors.torch import save

from vsehub.models.checkpoint import with_sorted_metadata


def changed(path, to, change=lambda description, weights: None, **entries):
    """The path `to`, at which the checkpoint `path` stands with description and weights as `change` leaves them."""
    with safe_open(path, "pt") as file:
        facts, weights = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    description = json.loads(facts["description"])
    change(description, weights)
    to.write_bytes(with_sorted_metadata(save(weights, facts | {"description": json.dumps(description)} | entries)))
    return to

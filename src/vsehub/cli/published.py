"""Code shared by `evaluate` and `search`: opening `model=`, a published model as it is, or `checkpoint=`."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from vsehub.checks import require

MODEL_SETTINGS = {"weights": None, "pretrained": True, "prompt": "{}"}


def model_settings(cfg: DictConfig) -> dict[str, Any]:
    """The settings of `model=` in a command's configuration."""
    return {name: cfg[name] for name in MODEL_SETTINGS}


def require_one_model(checkpoint: Any, model: Any, without: str = "") -> None:
    """Raise InputError unless either a checkpoint or a published model is set. without: advice if both are missing."""
    require(
        (checkpoint is None) != (model is None),
        f"checkpoint is {'not set' if model is None else 'given with model'}; give checkpoint=RUN_FOLDER/checkpoints/"
        "best.safetensors, or model=LIBRARY:NAME for a published model as it is" + ("" if model else without),
    )


def require_checkpoint_alone(settings: Mapping[str, Any]) -> None:
    """Raise InputError for settings of `model=` beside a checkpoint."""
    own = [name for name, usual in MODEL_SETTINGS.items() if settings[name] != usual]
    require(not own, f"{', '.join(own)}: of model=; a checkpoint says all of its model. Leave it out")

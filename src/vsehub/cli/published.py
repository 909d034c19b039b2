"""Code shared by `evaluate` and `search`: opening `model=`, a published model as it is, or `checkpoint=`."""

from typing import Any

from omegaconf import DictConfig

from vsehub.checks import require

MODEL_SETTINGS = {"weights": None, "prompt": "{}"}


def model_settings(cfg: DictConfig) -> dict[str, Any]:
    """The settings of `model=`. Raises InputError unless either a checkpoint or a published model is given."""
    require(
        (cfg.checkpoint is None) != (cfg.model is None),
        f"checkpoint is {'not set' if cfg.model is None else 'given with model'}; give checkpoint=RUN_FOLDER/"
        "checkpoints/best.safetensors, or model=LIBRARY:NAME for a published model as it is",
    )
    settings = {name: cfg[name] for name in MODEL_SETTINGS}
    own = [name for name, usual in MODEL_SETTINGS.items() if settings[name] != usual]
    require(cfg.model is not None or not own, f"{', '.join(own)}: of model=; a checkpoint says all of its model")
    return settings

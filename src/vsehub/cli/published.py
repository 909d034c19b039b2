"""The settings of `model=`, a published model as it is, which `evaluate` and `search` share."""

from omegaconf import DictConfig

from vsehub.checks import require

MODEL_SETTINGS = {"weights": None, "pretrained": True, "prompt": "{}", "dtype": "float32"}


def require_checkpoint_alone(cfg: DictConfig) -> None:
    """Raise InputError for settings of `model=` beside a checkpoint."""
    own = [name for name, usual in MODEL_SETTINGS.items() if cfg[name] != usual]
    require(not own, f"{', '.join(own)}: of model=; a checkpoint says all of its model. Leave it out")

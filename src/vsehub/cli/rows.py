"""Rows of the papers, `experiment=PAPER/LINE`: most train; those with `evaluates` measure what another row trains."""

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import fail, require
from vsehub.cli.app import conf_folder


def require_training(cfg: DictConfig, name: str) -> None:
    """Raise InputError, with the commands to run instead, where the chosen row only measures what another trains."""
    trained = cfg.get("evaluates")
    require(
        trained is None,
        f"experiment={name} trains nothing of its own, it measures what {trained} trains: run "
        f"`vsehub train experiment={trained} data.root=FOLDER`, then "
        f"`vsehub evaluate experiment={name} checkpoint=RUN_FOLDER/checkpoints/best.safetensors`",
    )


def require_measuring(overrides: list[str]) -> None:
    """Raise InputError, with the commands to run instead, where experiment= names settings for training.

    Asked before Hydra composes, which would only say that `vsehub evaluate` lacks the groups that such a file chooses.
    """
    for override in overrides:
        group, _, names = override.lstrip("+").partition("=")
        for name in names.split(",") if group == "experiment" else ():
            path = conf_folder() / "experiment" / f"{name}.yaml"
            if path.is_file():
                _refuse_training(name, OmegaConf.load(path))


def _refuse_training(name: str, settings: DictConfig) -> None:
    if "evaluates" in settings:
        return
    chosen = {group: choice for one in settings.get("defaults", ()) for group, choice in one.items()}
    protocol = chosen.get("override /protocol", "single")
    fail(
        f"experiment={name} is for training: `vsehub train experiment={name}` measures its best checkpoint as it ends; "
        f"to measure it again: `vsehub evaluate checkpoint=RUN_FOLDER/checkpoints/best.safetensors protocol={protocol}`"
    )

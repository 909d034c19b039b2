"""Going on with a run: its own configuration, with what the command line changes of it."""

import json
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, existing, require


def resumed(folder: Path, overrides: list[str]) -> DictConfig:
    """The configuration of the run in `folder`, changed by key=value overrides of single settings.

    Raises InputError where the folder holds no run, the run was started elsewhere, or an override names a group or a
    setting that is not there.
    """
    cfg = recorded(folder)
    changes = [override for override in overrides if not override.startswith("resume=")]
    for change in OmegaConf.from_dotlist(changes).items() if changes else ():
        _require_known(cfg, *change, change[0])
    return OmegaConf.merge(cfg, OmegaConf.from_dotlist(changes))


def recorded(folder: Path) -> DictConfig:
    """The configuration of the run in `folder`; InputError where there is none or it was started elsewhere."""
    record = run_record(folder)
    try:
        cfg = OmegaConf.create(json.loads(record.read_text())["config"])
    except (json.JSONDecodeError, KeyError) as error:
        raise InputError(f"resume: {record} is damaged ({error}); start a new run") from error
    # Lightning keeps the best checkpoint's score by its path alone: elsewhere any later epoch would pass for the best.
    require(
        Path(cfg.run_folder).resolve() == folder.resolve(),
        f"resume: the run in {folder} was started in {cfg.run_folder} and goes on only there; move it back",
    )
    return cfg


def run_record(folder: Path) -> Path:
    """The run.json of a run's folder, or InputError where there is none."""
    return existing(
        "resume", folder / "run.json", "Give the folder of a run that `vsehub train` started; it holds a run.json"
    )


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to go on from, or None where the run was killed before its first."""
    path = folder / "checkpoints" / "last.ckpt"
    return path if path.is_file() else None


def _require_known(cfg: DictConfig, key: str, value, name: str) -> None:
    require(key in cfg, f"resume: the run has no setting {name}; settings can be changed, not added")
    if OmegaConf.is_dict(cfg[key]):
        require(
            OmegaConf.is_dict(value),
            f"resume: {name}={value} would change a whole component of a run under way; change single settings, "
            f"e.g. trainer.max_epochs=20, or start a new run",
        )
        for inner, deeper in value.items():
            _require_known(cfg[key], inner, deeper, f"{name}.{inner}")

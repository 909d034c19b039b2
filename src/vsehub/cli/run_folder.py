"""The folder of a training run: new, or left by a killed start, and used by one process at a time."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, fail, require
from vsehub.cli import app, launch
from vsehub.cli.nodes import plain
from vsehub.components import conf_folder
from vsehub.data.noise import INDEX_FILE
from vsehub.evaluation.checkpoint_file import checkpoint_file
from vsehub.evaluation.hub import is_on_hub
from vsehub.extras import require_packages
from vsehub.io.files import LOCK, claimed, remove_abandoned, require_no_way_out


def require_means(cfg: DictConfig) -> None:
    """Raise InputError where a training, in a sweep each of them, lacks what it needs: packages, or its teachers."""
    require_packages("training", "train", "pytorch_lightning")
    require(
        not cfg.solver or cfg.teacher is None,
        "solver and teacher are both given, and what is solved in closed form learns from no teacher; omit one",
    )
    given = plain(cfg.teacher)
    require(given != [], "teacher is an empty list; give teacher=FILE or teacher=[FILE,FILE]")
    for one in given if isinstance(given, list) else [given]:
        if one is not None and not is_on_hub(one):
            try:
                checkpoint_file(one)
            except InputError as error:
                raise InputError(f"teacher: {error}") from error


def require_training(trained: str | None, name: str) -> None:
    """Raise InputError, with the commands to run instead, if the row `name` measures what the row `trained` trains."""
    require(
        trained is None,
        f"experiment={name} trains nothing; it measures the checkpoint that {trained} trains: run "
        f"`vsehub train experiment={trained} data.root=FOLDER`, then "
        f"`vsehub evaluate experiment={name} checkpoint=RUN_FOLDER/checkpoints/best.safetensors`",
    )


def require_measuring(overrides: list[str]) -> None:
    """Raise InputError, with the commands to run instead, if experiment= names settings for training.

    Called before Hydra, whose error would only say that `vsehub evaluate` lacks the groups that such a file chooses.
    """
    for override in overrides:
        group, _, names = override.lstrip("+").partition("=")
        for name in names.split(",") if group == "experiment" else ():
            path = conf_folder() / "experiment" / f"{name}.yaml"
            if path.is_file():
                _refuse_training(name, plain(OmegaConf.load(path), resolve=False))


def _refuse_training(name: str, settings: Mapping[str, Any]) -> None:
    if "evaluates" in settings:
        return
    chosen = {group: choice for one in settings.get("defaults", ()) for group, choice in one.items()}
    protocol = chosen.get("override /protocol", "single")
    fail(
        f"experiment={name} is for training: `vsehub train experiment={name}` measures its best checkpoint as it ends; "
        f"to measure it again: `vsehub evaluate checkpoint=RUN_FOLDER/checkpoints/best.safetensors protocol={protocol}`"
    )


# Files that a run leaves when it is killed before its record is written: Hydra's notes, the log, the lock.
BEFORE_THE_RECORD = {".hydra", "train.log", LOCK}
# More such files if the run had started its loggers. They count as remains only next to a log and a lock.
OF_A_START = {INDEX_FILE, "csv", "tensorboard", "wandb"}


class RunFolder(Callback):
    """Claims the folder of a single run before Hydra writes to it; the runs of a sweep are claimed one by one."""

    held: ClassVar[FileLock | None] = None
    made: ClassVar[list[Path]] = []  # those of the folder and its parents that this command created
    folder: ClassVar[Path | None] = None
    before: ClassVar[set[str]] = set()  # the names that the folder held

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that is in use. The boundary is needed since Hydra turns exceptions here into warnings."""
        if launch.number() > 0:
            return
        with app.boundary():
            HydraConfig.instance().set_config(config)  # the folder's name needs it, and Hydra sets it only later
            folder = Path(config.hydra.run.dir)
            if config.resume is None:
                require_new(folder)
            try:
                held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
                made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
                RunFolder.folder, RunFolder.before, RunFolder.made = folder, held, made
                RunFolder.held = claimed(folder, "training")
            except OSError as error:
                app.end(f"hydra.run.dir: {folder} cannot be made or written to: {error.strerror or error}", 1)

    @classmethod
    def release(cls) -> None:
        """Release the folder at the end of the command; if no run has begun in it, restore it."""
        if cls.held is not None:
            cls.held.release()
        folder = cls.folder
        if folder is not None and cls.held is not None and not (folder / "run.json").exists():
            with suppress(OSError):
                ours = BEFORE_THE_RECORD | OF_A_START | {"checkpoints"}
                for path in [folder / name for name in ours - cls.before if (folder / name).exists()]:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                for path in cls.made:
                    path.rmdir()  # fails if anything else is in it
        cls.held, cls.folder, cls.before, cls.made = None, None, set(), []


def require_new(folder: Path) -> None:
    """Raise InputError if `folder` is a file, or holds anything except the remains of a killed start."""
    if not folder.exists() and not folder.is_symlink():
        return
    require(folder.is_dir(), f"hydra.run.dir: {folder} is a file; give another folder")
    if (folder / "run.json").exists():
        fail(
            f"hydra.run.dir: {folder} already holds a run; continue it with `vsehub train resume={folder}`, or give "
            "another folder"
        )
    remove_abandoned(folder / "run.json")  # of a start that was killed while it wrote its first record
    remove_abandoned(folder / INDEX_FILE)
    names = {path.name for path in folder.iterdir()}
    other = sorted(names - BEFORE_THE_RECORD - (OF_A_START if {"train.log", LOCK} <= names else set()))
    require(
        not other,
        f"hydra.run.dir: {folder} holds {', '.join(other[:3])}{' and more' if len(other) > 3 else ''}, which does not "
        "belong to a run; give another folder",
    )
    require_no_way_out(folder)


def forget_start(folder: Path) -> None:
    """Remove the remains of a start that was killed before its record was written, so that the run can start again."""
    (folder / INDEX_FILE).unlink(missing_ok=True)
    for logs in ("csv", "tensorboard"):
        for version in (folder / logs).glob("version_*"):
            shutil.rmtree(version, ignore_errors=True)
        with suppress(OSError):  # absent, or it holds something else
            (folder / logs).rmdir()

"""The folder of a training run: never one that holds something already, and one process at a time."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from vsehub.checks import InputError, fail, require
from vsehub.cli import app
from vsehub.data.noise_file import INDEX_FILE
from vsehub.files import LOCK, claimed, remove_abandoned

# What a run leaves that was killed before its record was written: Hydra's notes, the log, the lock.
BEFORE_THE_RECORD = {".hydra", "train.log", LOCK}
# And what it leaves besides where it came as far as its loggers; theirs only where there are a log and a lock as well.
OF_A_START = {INDEX_FILE, "csv", "tensorboard", "wandb"}


class RunFolder(Callback):
    """Claims the folder of a single run before Hydra writes into it; a sweep's runs are claimed one by one."""

    held: ClassVar[FileLock | None] = None
    made: ClassVar[Path | None] = None  # the folder, where this command made it

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that is taken; Hydra turns other exceptions in here into warnings."""
        HydraConfig.instance().set_config(config)  # which Hydra itself does later; the folder's name asks for it
        folder = Path(config.hydra.run.dir)
        try:
            if config.resume is None:
                require_new(folder)
            is_new = not folder.exists()
            RunFolder.held, RunFolder.made = claimed(folder, "training"), folder if is_new else None
        except InputError as error:
            app.end(str(error), 2)
        except OSError as error:
            app.end(f"hydra.run.dir: {folder} cannot be made or written to: {error.strerror or error}", 1)

    @classmethod
    def release(cls) -> None:
        """Let go of the folder at the end of the command, and remove it if no run has begun in it."""
        if cls.held is not None:
            cls.held.release()
        if cls.made is not None and not (cls.made / "run.json").exists():
            with suppress(OSError):
                forget_start(cls.made)
                shutil.rmtree(cls.made / ".hydra", ignore_errors=True)
                for name in BEFORE_THE_RECORD - {".hydra"}:
                    (cls.made / name).unlink(missing_ok=True)
                cls.made.rmdir()  # not where anything else is in it
        cls.held = cls.made = None


def require_new(folder: Path) -> None:
    """Raise InputError where `folder` is a file, or holds anything but what a killed start leaves."""
    if not folder.exists() and not folder.is_symlink():
        return
    require(folder.is_dir(), f"hydra.run.dir: {folder} is a file; give another folder")
    if (folder / "run.json").exists():
        fail(
            f"hydra.run.dir: {folder} holds a run already; `vsehub train resume={folder}` goes on with it, or give "
            "another folder"
        )
    remove_abandoned(folder / "run.json")  # of a start that was killed while it wrote its first record
    remove_abandoned(folder / INDEX_FILE)
    names = {path.name for path in folder.iterdir()}
    other = sorted(names - BEFORE_THE_RECORD - (OF_A_START if {"train.log", LOCK} <= names else set()))
    require(
        not other,
        f"hydra.run.dir: {folder} holds {', '.join(other[:3])}{' and more' if len(other) > 3 else ''}, which is not a "
        "run's; give another folder",
    )


def forget_start(folder: Path) -> None:
    """Remove what a start left in a run's folder that was killed before its record: the run begins anew."""
    (folder / INDEX_FILE).unlink(missing_ok=True)
    for logs in ("csv", "tensorboard"):
        for version in (folder / logs).glob("version_*"):
            shutil.rmtree(version, ignore_errors=True)
        with suppress(OSError):  # there is none, or it holds something else
            (folder / logs).rmdir()

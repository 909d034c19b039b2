"""The folder of a training run: never one that holds something already, and one process at a time."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from vsehub.checks import fail, require
from vsehub.cli import app

LOCK = ".lock"
# What a run leaves that was killed before its record was written: Hydra's notes, the log, the lock.
BEFORE_THE_RECORD = {".hydra", "train.log", LOCK}


class RunFolder(Callback):
    """Claims the folder of a single run before Hydra writes into it; a sweep's runs are claimed one by one."""

    held: ClassVar[FileLock | None] = None
    made: ClassVar[list[Path]] = []  # the folder and those above it, where this command made them
    folder: ClassVar[Path | None] = None
    before: ClassVar[set[str]] = set()  # what the folder held

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that is taken; Hydra turns other exceptions in here into warnings."""
        with app.boundary():
            HydraConfig.instance().set_config(config)  # which Hydra itself does later; the folder's name asks for it
            folder = Path(config.hydra.run.dir)
            if config.resume is None:
                require_new(folder)
            try:
                held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
                made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
                RunFolder.folder, RunFolder.before, RunFolder.made = folder, held, made
                RunFolder.held = claimed(folder)
            except OSError as error:
                app.end(f"hydra.run.dir: {folder} cannot be made or written to: {error.strerror or error}", 1)

    @classmethod
    def release(cls) -> None:
        """Let go of the folder at the end of the command; if no run has begun in it, it is as it was before."""
        if cls.held is not None:
            cls.held.release()
        folder = cls.folder
        if folder is not None and cls.held is not None and not (folder / "run.json").exists():
            with suppress(OSError):
                for path in [path for path in folder.iterdir() if path.name not in cls.before]:
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                for path in cls.made:
                    path.rmdir()  # not where anything else is in it
        cls.held, cls.folder, cls.before, cls.made = None, None, set(), []


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
    other = sorted(path.name for path in folder.iterdir() if path.name not in BEFORE_THE_RECORD)
    require(
        not other,
        f"hydra.run.dir: {folder} holds {', '.join(other[:3])}{' and more' if len(other) > 3 else ''}, which is not a "
        "run's; give another folder",
    )


def claimed(folder: Path) -> FileLock:
    """The folder's lock, held until it is released or the process ends; InputError where another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        with suppress(OSError):  # filelock leaves what others hold
            lock.release()
        fail(f"{folder}: another process is training in this folder; wait for it, or give another folder")
    return lock

"""The folder of a training run: claimed for a new run, or read again to resume one, by one process at a time."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import existing, nearest, regular, require
from vsehub.cli import app, launch
from vsehub.cli.nodes import components, leaves, literal, plain
from vsehub.components import TARGET, component_nodes
from vsehub.data.noise import INDEX_FILE
from vsehub.io.address import require_given
from vsehub.io.files import LOCK, claimed, remove_abandoned, require_no_way_out
from vsehub.io.records import RUN, read_record
from vsehub.io.text import stays_inside
from vsehub.recipes import decides

LONGER = "trainer.max_epochs"
# Files that a run leaves when it is killed before its record is written: Hydra's notes, the log, the lock.
BEFORE_THE_RECORD = {".hydra", "train.log", LOCK}
# More such files if the run had started its loggers. They count as remains only next to a log and a lock.
OF_A_START = {INDEX_FILE, "csv", "tensorboard", "wandb"}


class RunFolder(Callback):
    """Claims the folder of a single run before Hydra writes to it; the runs of a sweep are claimed one by one."""

    held: ClassVar[FileLock | None] = None
    made: ClassVar[list[Path]] = []  # those of the folder and its parents that this command created

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse a folder that is in use. The boundary is needed since Hydra turns exceptions here into warnings."""
        if launch.number() > 0:
            return
        with app.boundary():
            HydraConfig.instance().set_config(config)  # the folder's name needs it, and Hydra sets it only later
            folder = Path(config.hydra.run.dir)
            if config.resume is None:
                require_new(folder)
            made = [path for path in (folder, *folder.absolute().parents) if not path.exists()]
            try:
                RunFolder.held, RunFolder.made = claimed(folder, "training"), made
            except OSError as error:
                app.end(f"hydra.run.dir: {folder} cannot be made or written to: {error.strerror or error}", 1)

    @classmethod
    def release(cls) -> None:
        """Release the folder at the end of the command; remove it if the command made it and no run has begun."""
        if cls.held is not None:
            cls.held.release()
        if cls.made and not (cls.made[0] / "run.json").exists():
            shutil.rmtree(cls.made[0], ignore_errors=True)
            with suppress(OSError):
                for parent in cls.made[1:]:
                    parent.rmdir()  # fails if anything else is in it
        cls.held, cls.made = None, []


def require_new(folder: Path) -> None:
    """Raise InputError if `folder` is a file, or holds anything except the remains of a killed start."""
    if not folder.exists() and not folder.is_symlink():
        return
    require(folder.is_dir(), f"hydra.run.dir: {folder} is a file; give another folder")
    require(
        not (folder / "run.json").exists(),
        f"hydra.run.dir: {folder} already holds a run; continue it with `vsehub train resume={folder}`, or give "
        "another folder",
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
    for version in [*folder.glob("csv/version_*"), *folder.glob("tensorboard/version_*")]:
        shutil.rmtree(version, ignore_errors=True)


def resumed(folder: Path, overrides: list[str]) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration of the unfinished run in `folder`, changed by key=value overrides, and its record.

    Overrides may change the number of epochs, the paths of the data and the settings of the machine: the run's record
    stays true. Raises InputError for other changes, or if the folder holds no run or a run that was moved.
    """
    record = read_run(folder)
    cfg = literal(record["config"])
    # Lightning identifies the best checkpoint only by its path: in another folder any later epoch would count as best.
    place = cfg.get("run_folder")
    require(
        isinstance(place, str) and Path(place).resolve() == folder.resolve(),
        f"resume: the run in {folder} was started in {place} and can only continue there; move it back",
    )
    # A record must not decide where files are written, nor which classes are trusted.
    cfg.logger, cfg.trust = _loggers(cfg, folder, record.get("wandb")), None
    own = (f"data={data_choice(record)}", "resume=")
    changed = OmegaConf.from_dotlist([one for one in overrides if not one.startswith(own)])
    given, before = (dict(leaves(plain(one, resolve=False))) for one in (changed, cfg))
    for name, value in given.items():
        if name != "trust":  # which a run has from its command only
            _require_changeable(before, name, value)
    require_given({name: value for name, value in before.items() if name not in given})
    merged = OmegaConf.merge(cfg, changed)
    assert isinstance(merged, DictConfig)  # as cfg is
    return merged, record


def _loggers(cfg: DictConfig, folder: Path, wandb: Any) -> Any:
    """The settings of a recorded run's loggers, which write into its folder. wandb: the run of wandb to continue."""
    loggers = plain(cfg.get("logger"), resolve=False)
    for node in component_nodes(loggers):
        if node.get("save_dir") is not None:
            node["save_dir"] = cfg.run_folder
        for name, value in leaves(node):
            texts = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str)]
            require(
                name == "save_dir" or all(map(stays_inside, texts)),
                f"resume: logger.{name} is {value!r} in {folder / 'run.json'}, which leads out of the run's folder; "
                "start a new run",
            )
        if wandb and str(node[TARGET]).endswith("WandbLogger"):
            node |= {"id": wandb["id"], "resume": "must"}
    return loggers


def _require_changeable(before: Mapping[str, Any], name: str, value: Any) -> None:
    """Raise InputError unless a run of the settings `before` may go on with another value."""
    moved = name.startswith("data.") and name != "data.noise.protocol" and isinstance(value, str)
    allowed = name in before and (before[name] == value or moved or name == LONGER or not decides(name))
    require(
        allowed,
        f"resume: {name}={value} would make the run's record false{'' if name in before else nearest(name, before)}. A "
        f"resumed run can only change settings that it has: {LONGER}, the paths of its data and settings of the "
        "machine; else start a new run",
    )


def data_choice(record: Mapping[str, Any]) -> str | None:
    """The name of the yaml file of a run's data, without which the command line knows no other data's settings.

    None if no file of conf/data names the class.
    """
    known = components()
    data = record["config"].get("data")
    target = data.get(TARGET) if isinstance(data, Mapping) else None
    return next((name for name in known.choices("data") if known.node("data", name)[TARGET] == target), None)


def read_run(folder: Path) -> dict[str, Any]:
    """The run.json of a run's folder. Raises InputError if it is missing, or if a link leads out of the folder."""
    hint = "Give the folder of a run that `vsehub train` started; it holds a run.json"
    path = existing("resume", folder / "run.json", hint)
    require_no_way_out(folder)
    return read_record(path, RUN, "Start a new run in another folder")


def last_checkpoint(folder: Path) -> Path | None:
    """The checkpoint to continue from, or None if the run was killed before its first checkpoint."""
    path = folder / "checkpoints" / "last.ckpt"
    return regular(path) if path.exists() else None


def require_same_data(record: dict[str, Any], data: dict[str, dict]) -> None:
    """Raise InputError if a split differs from that of the run's start."""
    for split, facts in data.items():
        before = (record["data"].get(split) or {}).get("fingerprint")
        require(
            before in (None, facts["fingerprint"]),
            f"resume: the {split} data differ from those with which the run was started ({facts['fingerprint']}, not "
            f"{before}); give the same data (data.KEY=PATH if they were moved), or start a new run",
        )

"""The folder of a training run: locking it for one process, and reading the run that it holds to continue it."""

import hashlib
import re
import shutil
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import existing, require, suggest
from vsehub.cli.nodes import literal, plain
from vsehub.components import TARGET, Components, component_nodes, named_classes
from vsehub.io.address import require_no_address, strings_in
from vsehub.io.files import LOCK, lock_folder, require_links_inside
from vsehub.io.provenance import source_files
from vsehub.io.records import RUN, read_record
from vsehub.io.text import stays_inside
from vsehub.recipes import MOVABLE, affects_results, flatten

MAX_EPOCHS = "trainer.max_epochs"
# The files that a run may have written before its run.json.
EARLY_FILES = re.compile(r"\.lock|train\.log|csv|tensorboard|wandb|noise_index\.npy|\.(run\.json|noise_index\.npy)\..+")


@contextmanager
def lock_run(folder: Path, continues: bool, wait: bool) -> Iterator[None]:
    """Lock a run's folder within the block, after which a folder without a run is removed.

    continues: whether the folder may hold a run. wait: wait for another process that trains in the folder. Raises
    InputError if the folder is in use or holds anything else.
    """
    require_run_only(folder, continues)
    with lock_folder(folder, "training", wait):
        require_run_only(folder, continues)  # another process may have started a run
        try:
            yield
        finally:
            if not (folder / "run.json").exists():
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # absent, or not empty
                    Path("runs").rmdir()


def require_run_only(folder: Path, continues: bool) -> None:
    """Raise InputError if a folder holds a run that must not continue, or files that do not belong to a run."""
    names = {path.name for path in folder.glob("*")} - {".hydra"}  # Hydra writes .hydra if the user asks for it
    has_run = "run.json" in names
    require(
        continues or not has_run,
        f"hydra.run.dir: {folder} already holds a run; continue it with `vsehub train resume={folder}`, or give "
        "another folder",
    )
    # Without run.json, a folder with a lock may hold the early files of a run that was killed.
    other = sorted(name for name in names if LOCK not in names or not EARLY_FILES.fullmatch(name))
    require(
        has_run or not other,
        f"hydra.run.dir: {folder} holds {', '.join(other[:3])}, which does not belong to a run; give another folder",
    )
    require_links_inside(folder)


def read_run(folder: Path) -> dict[str, Any]:
    """The run.json of a run's folder. Raises InputError if there is none, or if the run is unfinished and was moved."""
    hint = "Give the folder of a run that `vsehub train` started; it holds a run.json"
    record = read_record(existing("resume", folder / "run.json", hint), RUN, "Start a new run in another folder")
    started = str(record["config"].get("run_folder"))
    # Lightning identifies the best checkpoint only by its path: in another folder any later epoch would count as best.
    require(
        record["status"] == "finished" or Path(started).resolve() == folder,
        f"resume: the run in {folder} was started in {started} and can only continue there; move it back",
    )
    return record


def code_of(config: Mapping[str, Any], parts: Components) -> dict[str, dict[str, str]]:
    """The code of the classes that decide a run: group -> module -> SHA-256 of its file."""
    code = {}
    for group in filter(affects_results, config):
        classes = [parts.find(group, {TARGET: target}) for target in named_classes(config[group])]
        code[group] = dict(ChainMap(*map(source_files, classes)))
    return code


def changed_files(record: dict[str, Any], code: Mapping[str, dict[str, str]], teachers: Sequence[str]) -> list[str]:
    """The modules whose code, and the teachers whose file, differ between a run's record and now.

    teachers: paths of the run's teachers; missing files count as unchanged. Empty if the run has no epoch yet.
    """
    if not record["epochs"]:
        return []
    recorded = dict(ChainMap(*record.get("code", {}).values()))
    current = dict(ChainMap(*code.values()))
    modules = sorted(name for name in recorded.keys() | current.keys() if recorded.get(name) != current.get(name))
    edited = [
        path
        for path, file in zip(map(Path, teachers), record.get("teacher") or [], strict=False)
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]
    ]
    return [*(f"the code of {name}" for name in modules), *(f"the teacher {path}" for path in edited)]


def clear(folder: Path) -> None:
    """Remove a run from its folder, which this process has locked; its log stays, its record goes last."""
    names = sorted(path.name for path in folder.iterdir() if path.name not in (LOCK, "train.log", "run.json"))
    for path in [folder / name for name in (*names, "run.json")]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def resumed_config(folder: Path) -> tuple[DictConfig, dict[str, Any]]:
    """The configuration of the run in `folder`, changed by the command's overrides, and its record.

    Overrides may only change the number of epochs, the paths of the data and settings of the machine, none of which
    makes the run's record false. The record of a finished run that gets more epochs has the status "stopped". Raises
    InputError for other changes; a finished run can only get more epochs.
    """
    record = read_run(folder)
    task = [text.lstrip("+") for text in HydraConfig.get().overrides.task]
    overrides = [text for text in task if not text.startswith(("resume=", "run_folder="))]
    changes = OmegaConf.from_dotlist(overrides)
    epochs = OmegaConf.select(changes, MAX_EPOCHS)
    if record["status"] == "finished" and isinstance(epochs, int) and epochs > record["epochs"]:
        existing("resume", folder / "checkpoints" / "last.ckpt", "Without it the run cannot have more epochs")
        record["status"] = "stopped"
    require(
        record["status"] != "finished" or not overrides,
        f"resume: the run in {folder} is finished after {record['epochs']} epochs; it can only have more, by "
        f"{MAX_EPOCHS}; start a new run for {' '.join(overrides)}",
    )
    cfg = literal(record["config"])
    # A record must not decide where files are written, nor which classes are trusted.
    cfg.logger = _loggers(record, folder)
    cfg.trust = None
    before, after = flatten(plain(cfg, resolve=False)), flatten(plain(changes, resolve=False))
    for name, value in after.items():
        keeps_record_true = name == MAX_EPOCHS or MOVABLE.search(name) is not None or before.get(name) == value
        require(
            name == "trust" or (name in before and keeps_record_true),
            f"resume: {name}={value} makes the run's record false{'' if name in before else suggest(name, before)}. "
            f"A resumed run can only change settings that it has: {MAX_EPOCHS}, the paths of its data and settings "
            "of the machine; else start a new run",
        )
    require_no_address({name: value for name, value in before.items() if name not in after})
    return cast(DictConfig, OmegaConf.merge(cfg, changes)), record


def _loggers(record: dict[str, Any], folder: Path) -> Any:
    """The settings of a recorded run's loggers, which write into its folder and continue its run of wandb."""
    loggers = record["config"].get("logger")
    for node in component_nodes(loggers):
        require(
            all(map(stays_inside, strings_in({name: value for name, value in node.items() if name != "save_dir"}))),
            f"resume: a logger in {folder / 'run.json'} names a path out of the run's folder; start a new run",
        )
        if node.get("save_dir") is not None:
            node["save_dir"] = str(folder)
        if record.get("wandb") and str(node[TARGET]).endswith("WandbLogger"):
            node |= {"id": record["wandb"]["id"], "resume": "must"}
    return loggers

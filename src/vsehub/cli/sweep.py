"""Sweeps (`-m`): finished runs are skipped, killed ones go on, failed ones are named in a summary at the end."""

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, flag_override

from vsehub.checks import InputError, require
from vsehub.cli import app
from vsehub.cli.digest import digest, digest_of
from vsehub.cli.nodes import hide_secrets, leaves, literal, plain
from vsehub.cli.overrides import quoted
from vsehub.cli.resume import recorded
from vsehub.cli.run_folder import require_means, require_read
from vsehub.io.address import Address, masked
from vsehub.io.files import LOCK, is_full_disk, write_text
from vsehub.io.records import RUN, read_record
from vsehub.recipes import decides

log = logging.getLogger(__name__)

TRACEBACK = "traceback.txt"  # marks a run that failed; one that was killed or interrupted has none


def swept(task: Callable[[DictConfig], float]) -> Callable[[DictConfig], float | None]:
    """`task`, which trains one run; in a sweep it is skipped if the run is finished, and its failure ends nothing."""

    @wraps(task)
    def job(cfg: DictConfig) -> float | None:
        if not in_sweep():
            return task(cfg)
        folder = Path(HydraConfig.get().runtime.output_dir)
        with locked(folder):
            return run(task, cfg, folder)

    return job


def in_sweep() -> bool:
    """Whether the current job belongs to a sweep; only those are numbered by Hydra."""
    return not OmegaConf.is_missing(HydraConfig.get().job, "num")


def run(task: Callable[[DictConfig], float], cfg: DictConfig, folder: Path) -> float | None:
    """Do what is left of the run in `folder`; returns its best validation rsum, None where it failed.

    Only a full disk ends the sweep, since every run would fail, and a folder that holds another run.
    """
    crash, done = folder / TRACEBACK, finished_rsum(cfg, folder)
    if done is not None:
        print(f"skipped, it is finished: {folder}")
        return done
    if crash.is_file() and not cfg.retry_failed:
        print(f"not retried, it failed before: {folder}; retry_failed=true tries it again")
        return None
    crash.unlink(missing_ok=True)
    try:
        return task(cfg)
    except Exception as error:
        if is_full_disk(error):
            raise
        write_text(crash, masked(traceback.format_exc()))
        log.error("%s failed: %s", folder, error, exc_info=not isinstance(error, InputError))
        return None


def finished_rsum(cfg: DictConfig, folder: Path) -> float | None:
    """The best validation rsum of a run that is finished, None where there is something to do.

    Raises InputError where another run lies there, or an unfinished one was started elsewhere and moved.
    """
    file = folder / "run.json"
    if not file.is_file():
        return None
    record = read_record(file, RUN, "Take its folder away, or give another hydra.sweep.dir")
    require(
        digest(literal(record["config"])) == digest(cfg),
        f"{folder} holds a run of other settings; leave hydra.sweep.subdir as it is, or give another hydra.sweep.dir",
    )
    if record["status"] == "finished":
        return record["best"]["val/rsum"]
    recorded(folder)
    return None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; a second process with the same run waits and then finds it finished. A kill releases it."""
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"another process is at this run, waiting for it: {folder}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


PARENT = "runs/sweeps"  # hydra.sweep.dir as conf/train.yaml has it


class Sweep(Callback):
    """Prepares a sweep in the process that starts it.

    command: whose sweep it is, None if that is plain. space: setting -> Optuna's notation. optuna: settings of that
    sweeper.
    """

    running: ClassVar["list[str]"] = []  # folder of the sweep that this process started

    def __init__(self, command: str | None, space: DictConfig, optuna: DictConfig):
        self.command, self.space, self.optuna = command, space, optuna

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Fill in what the command line left open."""
        with app.boundary():  # Hydra turns errors in here into warnings
            self._prepare(config)

    def _prepare(self, config: DictConfig) -> None:
        hydra = config.hydra
        require(
            self.command in (None, hydra.job.name),
            f"sweep={hydra.runtime.choices.get('sweep')} is for vsehub {self.command} -m",
        )
        if hydra.job.name == "train":
            require_means(config)
            require_read(config, list(hydra.overrides.task))
        hide_secrets(config)
        with flag_override(config, ["struct", "readonly"], False):
            if hydra.sweep.dir == PARENT:
                sweeper = hydra.runtime.choices["hydra/sweeper"]
                hydra.sweep.dir = f"{PARENT}/{name(config)}{'' if sweeper == 'basic' else f'-{sweeper}'}"
                hydra.overrides.hydra.append(f"hydra.sweep.dir={hydra.sweep.dir}")  # jobs compose anew from these
            if hydra.runtime.choices["hydra/sweeper"] == "optuna":
                given = {one.split("=")[0].lstrip("+") for one in hydra.overrides.hydra}
                for key, value in leaves(plain(self.optuna)):
                    if f"hydra.sweeper.{key}" not in given:
                        OmegaConf.update(hydra.sweeper, key, value)
                if Address(str(hydra.sweeper.storage)).is_masked:  # Hydra writes the interpolation, not its value
                    hydra.sweeper.storage = f"${{opened_storage:{quoted(str(hydra.sweeper.storage))}}}"
                hydra.sweeper.params = dict(hydra.sweeper.params or {}) | dict(self.space)
        self.running.append(hydra.sweep.dir)


OmegaConf.register_new_resolver(
    "opened_storage", lambda address: Address(address).opened("hydra.sweeper.storage"), replace=True
)


def name(config: DictConfig) -> str:
    """The sweep's name: its study's, its file's, or the swept settings with a digest of those that are not."""
    if config.get("study") is not None:
        return folder_name(str(config.study))
    chosen = config.hydra.runtime.choices.get("sweep")
    if chosen is not None:
        return folder_name(chosen)
    overrides = OverridesParser.create().parse_overrides(list(config.hydra.overrides.task))
    own = [one for one in overrides if decides(one.key_or_group)]
    names = sorted(one.key_or_group for one in own if one.is_sweep_override())
    fixed = sorted(str(one.input_line) for one in own if not one.is_sweep_override())
    return folder_name("-".join([*names, *([digest_of(fixed)] if fixed else [])]) or "one")


def folder_name(text: str) -> str:
    """Text as a folder's name."""
    return re.sub(r"[^\w.-]+", "_", text).strip("._") or "one"


@contextmanager
def summary() -> Iterator[None]:
    """Print the state of a sweep's runs when it ends, however it ends; exit with 1 if any run failed."""
    failed = False
    try:
        yield
    finally:
        while Sweep.running:
            failed |= print_states(Sweep.running.pop())
    if failed:
        raise SystemExit(1)


def print_states(sweep: str) -> bool:
    """Print the state of the runs in a sweep's folder; whether any failed."""
    failed = {path.parent: path for path in sorted(Path(sweep).rglob(TRACEBACK))}
    others = [path for path in Path(sweep).rglob("run.json") if path.parent not in failed]
    finished = sum(json.loads(path.read_text(encoding="utf-8"))["status"] == "finished" for path in others)
    left = len(others) - finished
    unfinished = f", {left} unfinished: the same command continues" if left else ""
    print(f"\nsweep {sweep}: {finished} finished, {len(failed)} failed{unfinished}\nvsehub report {sweep}")
    for folder, path in failed.items():
        print(f"  failed: {folder}: {path.read_text(encoding='utf-8').rstrip().splitlines()[-1]}", file=sys.stderr)
    if failed:
        print("retry_failed=true with the same command tries the failed ones again", file=sys.stderr)
    return bool(failed)

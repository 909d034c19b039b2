"""Sweeps (`-m`): finished runs are skipped, killed ones go on, failed ones are named in a summary at the end."""

import json
import logging
import re
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

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
from vsehub.io.files import LOCK, claimed, is_full_disk, write_json, write_text
from vsehub.io.records import RUN, read_record
from vsehub.recipes import decides

log = logging.getLogger(__name__)

FINISHED, SKIPPED, FAILED, NOT_RETRIED, STOPPED = "finished", "skipped", "failed", "not retried", "stopped"
TRACEBACK = "traceback.txt"  # marks a run that failed; one that was killed or interrupted has none


class Outcome(NamedTuple):
    """The outcome of a run. state: one of the five above. value: its best validation rsum, None where it failed."""

    state: str
    folder: str
    value: float | None = None
    error: str = ""


def swept(task: Callable[[DictConfig], float]) -> Callable[[DictConfig], float | None]:
    """`task`, which trains one run; in a sweep it is skipped if the run is finished, and its failure ends nothing."""

    @wraps(task)
    def job(cfg: DictConfig) -> float | None:
        if not in_sweep():
            return task(cfg)
        hydra_config = HydraConfig.get()
        folder = Path(hydra_config.runtime.output_dir)
        noted = outcomes(hydra_config.sweep.dir, hydra_config.callbacks["sweep"].began) / f"{hydra_config.job.num}.json"
        try:
            with locked(folder):
                outcome = run(task, cfg, folder)
        except (KeyboardInterrupt, SystemExit):  # stopped from outside, and the sweep with it
            write_json(noted, Outcome(STOPPED, str(folder))._asdict())
            raise
        write_json(noted, outcome._asdict())
        return outcome.value

    return job


def in_sweep() -> bool:
    """Whether the current job belongs to a sweep; only those are numbered by Hydra."""
    return not OmegaConf.is_missing(HydraConfig.get().job, "num")


def outcomes(sweep: str, began: str) -> Path:
    """The folder for the outcomes of the jobs of one start of a sweep, removed at its end."""
    return Path(sweep) / f".outcomes-{began}"


def run(task: Callable[[DictConfig], float], cfg: DictConfig, folder: Path) -> Outcome:
    """Do what is left of the run in `folder`. Only a full disk ends the sweep, since every run would fail."""
    crash = folder / TRACEBACK
    try:
        done = finished_rsum(cfg, folder)
    except InputError as error:  # another run lies there, which is not to be marked
        log.error("%s", error)
        return Outcome(FAILED, str(folder), error=masked(str(error)))
    if done is not None:
        print(f"skipped, it is finished: {folder}")
        return Outcome(SKIPPED, str(folder), done)
    if crash.is_file() and not cfg.retry_failed:
        reason = crash.read_text(encoding="utf-8").rstrip().splitlines()[-1].removeprefix("vsehub.checks.InputError: ")
        print(f"not retried, it failed before: {folder} ({reason}); retry_failed=true tries it again")
        return Outcome(NOT_RETRIED, str(folder), error=reason)
    crash.unlink(missing_ok=True)
    try:
        return Outcome(FINISHED, str(folder), task(cfg))
    except Exception as error:
        if is_full_disk(error):
            raise
        write_text(crash, masked(traceback.format_exc()))
        if isinstance(error, InputError):
            log.error("%s failed: %s", folder, error)
            return Outcome(FAILED, str(folder), error=masked(str(error)))
        log.exception("%s failed", folder)
        return Outcome(FAILED, str(folder), error=masked(traceback.format_exception_only(error)[-1].strip()))


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
RANK = (FINISHED, STOPPED, FAILED, NOT_RETRIED, SKIPPED)  # of a run that a sweep names twice the first counts


class Sweep(Callback):
    """Prepares a sweep in the process that starts it.

    began: a name for this start of the sweep. command: whose sweep it is, None if that is plain. space: setting ->
    Optuna's notation. optuna: settings of that sweeper.
    """

    running: ClassVar["list[tuple[str, str]]"] = []  # folder and `began` of the sweep that this process started
    held: ClassVar["list[FileLock]"] = []  # of the folders of outcomes, by which a killed start is known

    def __init__(self, began: str, command: str | None, space: DictConfig, optuna: DictConfig):
        self.began, self.command, self.space, self.optuna = began, command, space, optuna

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
        self.running.append((hydra.sweep.dir, self.began))
        forget_killed(hydra.sweep.dir)
        self.held.append(claimed(outcomes(hydra.sweep.dir, self.began), "sweeping"))


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


def forget_killed(sweep: str) -> None:
    """Remove the outcomes of starts of this sweep that were killed before they printed them."""
    for folder in Path(sweep).glob(".outcomes-*"):
        if folder.is_symlink():
            continue  # not a sweep's
        with suppress(InputError):  # that start lives
            lock = claimed(folder, "sweeping")
            shutil.rmtree(folder, ignore_errors=True)
            lock.release()


@contextmanager
def summary() -> Iterator[None]:
    """Print the outcomes of a sweep's runs when it ends, however it ends; exit with 1 if any run failed."""
    failed = False
    try:
        yield
    finally:
        while Sweep.running:
            failed |= print_outcomes(*Sweep.running.pop())
        while Sweep.held:
            Sweep.held.pop().release()
    if failed:
        raise SystemExit(1)


def print_outcomes(sweep: str, began: str) -> bool:
    """Print the outcomes of the runs; whether any failed."""
    folder = outcomes(sweep, began)
    found = [Outcome(**json.loads(file.read_text(encoding="utf-8"))) for file in folder.glob("*.json")]
    shutil.rmtree(folder, ignore_errors=True)
    runs: dict[str, Outcome] = {}
    for one in sorted(found, key=lambda one: (one.folder, RANK.index(one.state))):
        runs.setdefault(one.folder, one)
    number = Counter(one.state for one in runs.values())
    wrong = [one for one in runs.values() if one.state in (FAILED, NOT_RETRIED)]
    print(
        f"\nsweep {sweep}: {number[FINISHED]} run{'' if number[FINISHED] == 1 else 's'} finished, {number[SKIPPED]} "
        f"skipped (finished before), {len(wrong)} failed"
        + (f" ({number[NOT_RETRIED]} of them before, not retried)" if number[NOT_RETRIED] else "")
        + (f", {number[STOPPED]} stopped: the same command continues it" if number[STOPPED] else "")
    )
    for one in wrong:
        print(f"  failed: {one.folder}: {one.error}", file=sys.stderr)
    if wrong:
        print("retry_failed=true with the same command tries the failed ones again", file=sys.stderr)
    print(f"vsehub report {Path(sweep)}")
    return bool(wrong)

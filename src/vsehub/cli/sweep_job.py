"""One run of a sweep: found again by its settings, skipped, gone on with or begun; its failure ends no sweep."""

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, require
from vsehub.cli.resume import recorded
from vsehub.cli.sweep_digest import digest
from vsehub.cli.values import literal
from vsehub.files import LOCK, is_full_disk, write_json, write_text
from vsehub.records import RUN, read_record

log = logging.getLogger(__name__)

FINISHED, SKIPPED, FAILED, NOT_RETRIED, STOPPED = "finished", "skipped", "failed", "not retried", "stopped"
TRACEBACK = "traceback.txt"  # marks a run that failed; one that was killed or interrupted has none


class Outcome(NamedTuple):
    """What became of a run. state: one of the five above. value: its best validation rsum, None where it failed."""

    state: str
    folder: str
    value: float | None = None
    error: str = ""


def swept(task: Callable[[DictConfig], float]) -> Callable[[DictConfig], float | None]:
    """`task`, which trains one run; in a sweep it is skipped where it has been done, and may fail."""

    @wraps(task)
    def job(cfg: DictConfig) -> float | None:
        if not in_sweep():
            return task(cfg)
        hydra_config = HydraConfig.get()
        folder = Path(hydra_config.runtime.output_dir)
        told = outcomes(hydra_config.sweep.dir, hydra_config.callbacks.sweep.began) / f"{hydra_config.job.num}.json"
        try:
            with locked(folder):
                outcome = run(task, cfg, folder)
        except (KeyboardInterrupt, SystemExit):  # stopped from outside, and the sweep with it
            write_json(told, Outcome(STOPPED, str(folder))._asdict())
            raise
        write_json(told, outcome._asdict())
        return outcome.value

    return job


def in_sweep() -> bool:
    """Whether the job that runs is one of a sweep's; Hydra numbers those alone."""
    return not OmegaConf.is_missing(HydraConfig.get().job, "num")


def outcomes(sweep: str, began: str) -> Path:
    """The folder where the jobs of the sweep in `sweep` that `began` then say what became of them, until it ends."""
    return Path(sweep) / f".outcomes-{began}"


def run(task: Callable[[DictConfig], float], cfg: DictConfig, folder: Path) -> Outcome:
    """Do what is left of the run in `folder`. Ends the sweep on a full disk alone, since every run would fail."""
    crash = folder / TRACEBACK
    try:
        done = figure(cfg, folder)
    except InputError as error:  # another run lies there, which is not to be marked
        log.error("%s", error)
        return Outcome(FAILED, str(folder), error=str(error))
    if done is not None:
        print(f"skipped, it is finished: {folder}")
        return Outcome(SKIPPED, str(folder), done)
    if crash.is_file() and not cfg.retry_failed:
        error = crash.read_text().rstrip().splitlines()[-1].removeprefix("vsehub.checks.InputError: ")
        print(f"not retried, it failed before: {folder} ({error}); retry_failed=true tries it again")
        return Outcome(NOT_RETRIED, str(folder), error=error)
    crash.unlink(missing_ok=True)
    try:
        return Outcome(FINISHED, str(folder), task(cfg))
    except Exception as error:
        if is_full_disk(error):
            raise
        write_text(crash, traceback.format_exc())
        if isinstance(error, InputError):
            log.error("%s failed: %s", folder, error)
            return Outcome(FAILED, str(folder), error=str(error))
        log.exception("%s failed", folder)
        return Outcome(FAILED, str(folder), error=traceback.format_exception_only(error)[-1].strip())


def figure(cfg: DictConfig, folder: Path) -> float | None:
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
    """Hold the folder: another process that has the same run to do waits, and finds it done. A kill lets go."""
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

"""Sweeps (`-m`): finished runs are skipped and unfinished ones continue; Hydra's sweepers and launchers do the rest."""

import logging
import re
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, require
from vsehub.cli.app import is_multirun
from vsehub.cli.digest import digest, digest_of
from vsehub.cli.nodes import literal
from vsehub.io.files import LOCK
from vsehub.io.records import RUN, read_record
from vsehub.recipes import decides

log = logging.getLogger(__name__)


def swept(task: Callable[[DictConfig], float]) -> Callable[[DictConfig], float]:
    """`task`, which trains one run; in a sweep a finished run is skipped, and a run is trained by one process only."""

    @wraps(task)
    def job(cfg: DictConfig) -> float:
        if not is_multirun():
            return task(cfg)
        direction = str(HydraConfig.get().sweeper.get("direction"))  # a text or the plugin's enumeration
        require("minimize" not in direction, "validation rsum is to rise; give hydra.sweeper.direction=maximize")
        folder = Path(HydraConfig.get().runtime.output_dir)
        with FileLock(folder / LOCK):  # a second process with the same run waits, and then finds it finished
            done = finished_rsum(cfg, folder)
            if done is not None:
                print(f"skipped, it is finished: {folder}")
                return done
            try:
                return task(cfg)
            except Exception as error:  # Hydra goes on with the other jobs and raises the first error at the end
                log.error("%s failed: %s", folder, error, exc_info=not isinstance(error, InputError))
                raise

    return job


def finished_rsum(cfg: DictConfig, folder: Path) -> float | None:
    """The best validation rsum of a finished run; None if it is unfinished. InputError for a run of other settings."""
    if not (folder / "run.json").is_file():
        return None
    record = read_record(folder / "run.json", RUN, "Move its folder away, or give another hydra.sweep.dir")
    require(
        digest(literal(record["config"])) == digest(cfg),
        f"{folder} holds a run of other settings; leave hydra.sweep.subdir as it is, or give another hydra.sweep.dir",
    )
    return record["best"]["val/rsum"] if record["status"] == "finished" else None


def name(study: str | None, sweep: str | None, arguments: Sequence[str]) -> str:
    """A sweep's folder: its study, its file's name, or the swept settings with a digest of the fixed ones."""
    overrides = [one for one in OverridesParser.create().parse_overrides(list(arguments)) if decides(one.key_or_group)]
    names = sorted(one.key_or_group for one in overrides if one.is_sweep_override())
    fixed = sorted(str(one.input_line) for one in overrides if not one.is_sweep_override())
    text = study or sweep or "-".join([*names, *([digest_of(fixed)] if fixed else [])])
    return re.sub(r"[^\w.-]+", "_", str(text)).strip("._") or "one"


# Cached, since a job must not compute it anew from its own settings.
OmegaConf.register_new_resolver("sweep_name", name, use_cache=True, replace=True)

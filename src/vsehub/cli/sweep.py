"""Sweeps (`-m`): finished runs are skipped and unfinished ones continue; Hydra's sweepers and launchers do the rest."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from filelock import FileLock
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError, MissingMandatoryValue

from vsehub.checks import InputError, require
from vsehub.cli.app import is_multirun
from vsehub.cli.nodes import literal, plain
from vsehub.io.address import masked
from vsehub.io.files import LOCK
from vsehub.io.records import RUN, read_record
from vsehub.recipes import class_name, decides, named_classes

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


def digest(cfg: DictConfig) -> str:
    """Eight letters for a run's settings. 30 equals 30.0, and null equals an absent setting."""
    return digest_of(dict(_settings(cfg)))


def digest_of(settings: Any) -> str:
    """Eight letters for plain values."""
    text = masked(json.dumps(settings, sort_keys=True, default=str))  # as a record holds them
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _settings(node: DictConfig, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key in map(str, node):
        name = f"{prefix}{key}"
        value = _value(node, key) if decides(name) else None
        if isinstance(value, DictConfig):
            yield from _settings(value, f"{name}.")
        elif value is not None:
            yield name, class_name(value) if key == "_target_" else _alike(named_classes(plain(value)))


def _value(node: DictConfig, key: str) -> Any:
    """The value, unresolved if it cannot be resolved: training reports what is missing."""
    try:
        return node[key]
    except (MissingMandatoryValue, InterpolationResolutionError):
        return plain(node, resolve=False)[key]


def _alike(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_alike(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


OmegaConf.register_new_resolver("settings_digest", lambda *, _root_: digest(_root_), replace=True)
# Cached, since a job must not compute it anew from its own settings.
OmegaConf.register_new_resolver("sweep_name", name, use_cache=True, replace=True)

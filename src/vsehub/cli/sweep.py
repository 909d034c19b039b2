"""Sweeps (`-m`) find their runs again by their settings; Hydra's sweepers and launchers do the rest."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.errors import ConfigCompositionException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from vsehub.cli.app import settings_of
from vsehub.cli.nodes import plain
from vsehub.io.address import masked
from vsehub.recipes import affects_results, flatten

log = logging.getLogger(__name__)


def digest(config: Mapping[str, Any]) -> str:
    """Eight hexadecimal digits that identify a run's settings, as a record has them; null equals an absent setting."""
    deciding = {name: value for name, value in flatten(config).items() if affects_results(name) and value is not None}
    settings = {name: value for name, value in deciding.items() if not name.startswith("hydra.")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]


def sweep_name(study: str | None, sweep: str | None, overrides: Sequence[str]) -> str:
    """The name of a sweep's folder: its study, its choice of the group `sweep`, or the settings that decide its runs.

    The first of these that is set; the seed does not count among the settings.
    """
    names = {text: text.lstrip("+~").partition("=")[0] for text in overrides}
    deciding = sorted(text for text, name in names.items() if affects_results(name) and name != "seed")
    text = masked(str(study or sweep or "-".join(deciding)))
    return re.sub(r"[^\w.-]+", "_", text).strip("._")[:100] or "one"


def load_accepted(load: Callable[[list[str]], DictConfig], overrides: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """The configuration of the overrides that it accepts, and the overrides that were left out.

    Overrides of settings that the chosen component lacks, but another choice of its group has, are left out. load:
    function overrides -> configuration.
    """
    left_out: list[str] = []
    while True:
        try:
            return load([text for text in overrides if text not in left_out]), left_out
        except ConfigCompositionException as error:
            wrong = re.match(r"Could not override '((\w+)[\w.]*)", str(error))
            if wrong is None or wrong[1] not in settings_of(wrong[2]):
                raise
            left_out += [text for text in overrides if text.partition("=")[0] == wrong[1]]


def load_sweep(self: Any, config_name: str | None, overrides: list[str], run_mode: RunMode, **more: Any) -> DictConfig:
    """Replaces Hydra's `load_configuration`: a sweep's configuration leaves out overrides that only some jobs take."""

    def load(accepted: list[str]) -> DictConfig:
        return _load_configuration(self, config_name, accepted, run_mode, **more)

    if run_mode != RunMode.MULTIRUN:
        return load(overrides)
    cfg, left_out = load_accepted(load, overrides)
    cfg.hydra.overrides.task += left_out  # each job tries them again with its own components
    return cfg


def load_job(self: Any, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
    """Replaces Hydra's `load_sweep_config`: logs a warning of settings that the job's components lack."""
    cfg, left_out = load_accepted(lambda accepted: _load_job(self, master_config, accepted), sweep_overrides)
    if left_out:
        log.warning("%s left out: the chosen component has no such setting", ", ".join(left_out))
    return cfg


_load_configuration, _load_job = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl.load_sweep_config
ConfigLoaderImpl.load_configuration = load_sweep  # type: ignore[assignment,method-assign]
ConfigLoaderImpl.load_sweep_config = load_job  # type: ignore[method-assign]
# Interpolations are not resolved, since some of them refer to the folder whose name contains this digest.
OmegaConf.register_new_resolver("settings_digest", lambda *, _root_: digest(plain(_root_, resolve=False)), replace=True)
# The value is cached: the jobs take the sweep's name and do not compute another from their own settings.
OmegaConf.register_new_resolver("sweep_name", sweep_name, use_cache=True, replace=True)

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
from vsehub.recipes import decides, flatten

log = logging.getLogger(__name__)


def digest(config: Mapping[str, Any]) -> str:
    """Eight letters for a run's settings, as a record has them; null equals an absent setting."""
    decided = {name: value for name, value in flatten(config).items() if decides(name) and value is not None}
    settings = {name: value for name, value in decided.items() if not name.startswith("hydra.")}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:8]


def sweep_name(study: str | None, sweep: str | None, overrides: Sequence[str]) -> str:
    """A sweep's folder: its study, its file's name, or the settings except the seed that decide its runs."""
    names = {text: text.lstrip("+~").partition("=")[0] for text in overrides}
    deciding = sorted(text for text, name in names.items() if decides(name) and name != "seed")
    text = masked(str(study or sweep or "-".join(deciding)))
    return re.sub(r"[^\w.-]+", "_", text).strip("._")[:100] or "one"


def fitting(load: Callable[[list[str]], DictConfig], overrides: Sequence[str]) -> tuple[DictConfig, list[str]]:
    """The configuration without settings that a job's component lacks and another choice of its group has.

    load: from overrides to a configuration. Returns the overrides that were left out too.
    """
    left: list[str] = []
    while True:
        try:
            return load([text for text in overrides if text not in left]), left
        except ConfigCompositionException as error:
            wrong = re.match(r"Could not override '((\w+)[\w.]*)", str(error))
            if wrong is None or wrong[1] not in settings_of(wrong[2]):
                raise
            left += [text for text in overrides if text.partition("=")[0] == wrong[1]]


def load_sweep(self: Any, config_name: str | None, overrides: list[str], run_mode: RunMode, **more: Any) -> DictConfig:
    """The configuration of a sweep, from which those of its jobs are made; any other as Hydra composes it."""

    def load(chosen: list[str]) -> DictConfig:
        return _configuration(self, config_name, chosen, run_mode, **more)

    if run_mode != RunMode.MULTIRUN:
        return load(overrides)
    cfg, left = fitting(load, overrides)
    cfg.hydra.overrides.task += left
    return cfg


def load_job(self: Any, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
    """The configuration of a job of a sweep, with a note on the settings that do not belong to it."""
    cfg, left = fitting(lambda chosen: _job(self, master_config, chosen), sweep_overrides)
    if left:
        log.warning("%s left out: the chosen component has no such setting", ", ".join(left))
    return cfg


_configuration, _job = ConfigLoaderImpl.load_configuration, ConfigLoaderImpl.load_sweep_config
ConfigLoaderImpl.load_configuration = load_sweep  # type: ignore[assignment,method-assign]
ConfigLoaderImpl.load_sweep_config = load_job  # type: ignore[method-assign]
# Unresolved, since the settings of paths refer to the folder that is named by this digest.
OmegaConf.register_new_resolver("settings_digest", lambda *, _root_: digest(plain(_root_, resolve=False)), replace=True)
# Cached, since a job must not compute it anew from its own settings.
OmegaConf.register_new_resolver("sweep_name", sweep_name, use_cache=True, replace=True)

"""Sweeps (`-m`) find their runs again by their settings; Hydra's sweepers and launchers do the rest."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import OmegaConf

from vsehub.cli.nodes import plain
from vsehub.io.address import masked
from vsehub.recipes import decides, flatten


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


# Unresolved, since the settings of paths refer to the folder that is named by this digest.
OmegaConf.register_new_resolver("settings_digest", lambda *, _root_: digest(plain(_root_, resolve=False)), replace=True)
# Cached, since a job must not compute it anew from its own settings.
OmegaConf.register_new_resolver("sweep_name", sweep_name, use_cache=True, replace=True)

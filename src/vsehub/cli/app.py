"""What every command shares: where the configuration lies, and errors in one line."""

import errno
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import NoReturn

import hydra
from omegaconf import DictConfig

import vsehub
from vsehub.checks import InputError, require

# Choices that mean different things to different people: said before Hydra calls them unknown.
HINTS = {
    ("protocol", "5k"): 'the papers\' "5k" is protocol=c2, the mean over five folds of 1,000 images; '
    "one ranking over 5,000 images, which later papers call 5K, is protocol=full5k",
    ("protocol", "1k"): 'on COCO the papers\' "1k" is protocol=c1, the first 1,000 images; the mean over five folds of '
    "1,000, which later papers call 1K, is protocol=c2; Flickr30k's 1,000 test images are the whole split: single",
}


def conf_folder() -> Path:
    """The folder of the configuration: inside an installed wheel, or at the top of the checkout."""
    package = Path(vsehub.__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent.parent / "conf"


def run(task: Callable[[DictConfig], float | None], config: str) -> None:
    """Run `task` with the composed configuration named `config`; bad input ends with its message and status 2.

    VSEHUB_TRACEBACK=1 shows where the message came from.
    """
    try:
        refuse_ambiguous(sys.argv[1:])
    except InputError as error:
        end(str(error))

    @wraps(task)
    def guarded(cfg: DictConfig) -> float | None:
        try:
            return task(cfg)
        except InputError as error:
            end(str(error))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            end(f"the disk is full ({error.filename or 'while writing'}). Free room, then resume the run")

    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config)(guarded)()


def refuse_ambiguous(overrides: list[str]) -> None:
    """Raise InputError where an override makes a choice that `HINTS` tells apart."""
    for override in overrides:
        group, _, choices = override.lstrip("+").partition("=")
        for choice in choices.split(","):
            hint = HINTS.get((group, choice))
            require(hint is None, f"{group}={choice} is ambiguous: {hint}")


def end(message: str) -> NoReturn:
    """Leave with a message and status 2; from an `except` block alone."""
    if os.environ.get("VSEHUB_TRACEBACK") == "1":
        raise
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    raise SystemExit(2)

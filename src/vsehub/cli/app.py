"""What every command shares: where the configuration lies, and errors in one line."""

import errno
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import hydra
from omegaconf import DictConfig

import vsehub
from vsehub.checks import InputError


def conf_folder() -> Path:
    """The folder of the configuration: inside an installed wheel, or at the top of the checkout."""
    package = Path(vsehub.__file__).parent
    inside = package / "conf"
    return inside if inside.is_dir() else package.parent.parent / "conf"


def run(task: Callable[[DictConfig], None], config: str) -> None:
    """Run `task` with the composed configuration named `config`; bad input ends with its message and status 2.

    VSEHUB_TRACEBACK=1 shows where the message came from.
    """

    @wraps(task)
    def guarded(cfg: DictConfig) -> None:
        try:
            task(cfg)
        except InputError as error:
            _end(str(error))
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _end(f"the disk is full ({error.filename or 'while writing'}). Free room, then resume the run")

    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config)(guarded)()


def _end(message: str) -> None:
    if os.environ.get("VSEHUB_TRACEBACK") == "1":
        raise
    print(f"{sys.argv[0]}: {message}", file=sys.stderr)
    raise SystemExit(2)

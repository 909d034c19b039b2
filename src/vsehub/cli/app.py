"""Code that all commands share: running a task with its configuration, and turning errors into one line."""

import logging
import os
import re
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from vsehub.checks import InputError, boolean, is_out_of_memory, require
from vsehub.cli import launch
from vsehub.cli.nodes import components, config_dirs, hide_secrets, leaves, plain
from vsehub.cli.overrides import explained, ordered
from vsehub.cli.signals import INTERRUPTED, TERMINATED, Terminated, answered, forget_interrupt
from vsehub.components import conf_folder
from vsehub.io.address import masked
from vsehub.io.files import causes, is_full_disk, write_text
from vsehub.io.progress import shown

BAD_INPUT, FAILED = 2, 1


def run(task: Callable[[DictConfig], float | None], config: str) -> None:
    """Run `task` with the composed configuration named `config`."""
    sys.argv[1:] = ordered(sys.argv[1:])
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra lets errors through, to `boundary`

    @wraps(task)
    def guarded(cfg: DictConfig) -> float | None:
        first = launch.number() == 0  # whose terminal shows bars
        # Inside Hydra, which would print its own message first; in a sweep Hydra goes on with the other jobs.
        with nullcontext() if is_multirun() else boundary(), shown(first):
            hide_secrets(cfg)
            hide_notes()
            require_read(cfg, config)
            return task(cfg)

    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config)(guarded)()


def require_read(cfg: DictConfig, config: str) -> None:
    """Raise InputError for a word where true or false is expected, and for a yaml that Hydra does not read."""
    for key, default in leaves(plain(OmegaConf.load(conf_folder() / f"{config}.yaml"), resolve=False)):
        if isinstance(default, bool) and not key.startswith("hydra."):
            boolean(key, OmegaConf.select(cfg, key))
    for path in [path for folder in config_dirs() for path in folder.glob("*/**/*.yaml")]:
        ours = conf_folder() / path.parent.name / path.name
        require(
            not ours.is_file() or path.read_bytes() == ours.read_bytes(),
            f"--config-dir: {path} is not read, since vsehub has {path.parent.name}/{path.name} itself; rename it",
        )


def hide_notes() -> None:
    """Mask the addresses in the files that Hydra has written of the job: the user's own may have held some."""
    hydra_config = HydraConfig.get()
    notes = [*Path(hydra_config.sweep.dir).glob("multirun.yaml")] if is_multirun() else []
    if hydra_config.output_subdir is not None:
        notes += (Path(hydra_config.runtime.output_dir) / hydra_config.output_subdir).glob("*.yaml")
    for file in notes:
        text = file.read_text(encoding="utf-8")
        if masked(text) != text:
            write_text(file, masked(text))


def is_multirun() -> bool:
    """Return True if the current job belongs to a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


@contextmanager
def boundary() -> Iterator[None]:
    """Turn every error inside the block into one line on stderr and an exit status.

    2: bad input. 1: the machine refused something, or the command itself failed; the line then names the file with the
    traceback. 130: interrupted. 143: SIGTERM. VSEHUB_TRACEBACK=1 shows the traceback directly.
    """
    logging.raiseExceptions = False  # a log that cannot be written fails again as output
    try:
        with answered():
            yield
            sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit) and not isinstance(error, Terminated):
            raise  # its message has been printed
        if os.environ.get("VSEHUB_TRACEBACK") == "1":
            raise
        forget_interrupt()
        end(*reported(error))


def reported(error: BaseException) -> tuple[str, int]:
    """The line that reports an error, and the exit status."""
    behind = causes(error)
    # A library may have replaced a signal by an error of its own.
    stop = next((one for one in behind if isinstance(one, Terminated | KeyboardInterrupt)), None)
    if stop is not None:
        what, status = ("terminated", TERMINATED) if isinstance(stop, Terminated) else ("interrupted", INTERRUPTED)
        again = launch.continued_by()
        goes_on = "a command that can continue does so when it is run again" if again is None else f"`{again}` goes on"
        return f"{what}; complete files were kept, and {goes_on}", status
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError):
        return explained(error), BAD_INPUT
    line = " ".join(str(error).split())[:500].rstrip(".")
    if is_full_disk(error):
        return f"the disk is full. Free space, then run the command again ({line})", FAILED
    if any(map(is_out_of_memory, behind)):
        return f"out of memory. Close other programs, or use smaller batches or fewer items ({line})", FAILED
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename and error.strerror else line, FAILED
    with tempfile.NamedTemporaryFile("w", prefix="vsehub-", suffix=".log", delete=False, encoding="utf-8") as log:
        log.write(masked(f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}"))
    return f"{type(error).__name__}: {line}. The traceback: {log.name}", FAILED


def end(message: str, status: int = BAD_INPUT) -> NoReturn:
    """Exit with a message, its addresses masked, and a status."""
    message = masked(message)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk or a reader that has ended: the rest of the output would fail again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    number = launch.number()
    if number == 0 or status < INTERRUPTED:
        print(f"{sys.argv[0]}{f' (process {number})' if number else ''}: {message}", file=sys.stderr)
    raise SystemExit(status)


def command_help(config: str) -> str:
    """The settings of a command with their comments, and the choices of its groups, for Hydra's template of help."""
    text = (conf_folder() / f"{config}.yaml").read_text(encoding="utf-8").partition("\nhydra:\n")[0]
    groups = re.findall(r"^  - (?:optional )?(\w+): ", text, re.MULTILINE)
    choices = "\n".join(f"  {group}={choices_of(group)}" for group in groups)
    more = f"settings of the chosen parts, such as loss.KEY: vsehub {config.replace('_', '-')} --cfg job"
    chosen = f"\n\nchoices (group=choice):\n{choices}\n\n{more}" if groups else ""
    return f"settings (key=value) and the choices made by default:\n\n{text}{chosen}".replace("$", "$$")


def choices_of(group: str) -> str:
    """The choices of a group, without those in folders."""
    return "\n      ".join(textwrap.wrap(", ".join(components().choices(group)), 100, break_on_hyphens=False))


OmegaConf.register_new_resolver("command_help", command_help, replace=True)
OmegaConf.register_new_resolver("choices_of", choices_of, replace=True)

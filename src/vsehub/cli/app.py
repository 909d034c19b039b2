"""What all commands share: running a task with its configuration, and the boundary where errors become one line."""

import logging
import os
import re
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from vsehub.checks import InputError, is_out_of_memory
from vsehub.cli import launch
from vsehub.cli.nodes import hide_secrets
from vsehub.cli.overrides import check, config_dir, explained, one_of_each, ordered, readable, refuse_unknown
from vsehub.cli.signals import INTERRUPTED, TERMINATED, Terminated, answered, forget_interrupt
from vsehub.components import conf_folder
from vsehub.io.address import masked
from vsehub.io.files import is_full_disk, write_text
from vsehub.io.progress import shown

BAD_INPUT, FAILED = 2, 1
# Libraries that raise Python's own error classes when they refuse a setting.
_LIBRARIES = ("torch", "pytorch_lightning", "lightning_fabric", "torchvision", "faiss", "wandb")
# What torch and numpy say of the memory that they did not get.
_ASKED = re.compile(r"allocate (?P<count>[\d.]+) ?(?P<unit>bytes|[KMGTPE]iB)", re.IGNORECASE)
# Command -> which of its settings lowers the memory that it takes.
_LOWER = {
    "train": "set loader.chunk, loader.batch_size, loader.eval_batch_size or bank.fraction lower",
    "evaluate": "set eval_batch_size lower",
    "extract": "set batch_size lower",
    "encode": "set eval_batch_size lower",
    "search": "set eval_batch_size lower",
    "rerank": "set k lower, give fewer reference queries, or divide the items with engine=ray",
    "diagnose": "set k lower, name fewer criteria, or give fewer reference queries",
    "export": "set k lower, or give fewer queries or reference queries",
    "serve": "set sample or eval_batch_size lower",
    "calibrate": "give fewer queries or reference queries",
    "add": "add the items in several parts",
}
_WITHOUT_CHECK = {"--hydra-help", "--version"}


def run(task: Callable[[DictConfig], float | None], config: str) -> None:
    """Run `task` with the composed configuration named `config`, after checking the command line."""
    arguments = ordered(sys.argv[1:])
    if not launch.launched():  # `launch` gives arguments that have been made readable
        arguments = readable(arguments)
    sys.argv = [sys.argv[0], *arguments]
    folders = [conf_folder(), *config_dir(arguments)]
    if not _WITHOUT_CHECK & set(arguments):
        check(config, folders, arguments)
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra lets errors through, to `boundary`

    @wraps(task)
    def guarded(cfg: DictConfig) -> float | None:
        with boundary(), shown(_is_first()):  # inside Hydra, which would print its own message first
            hide_secrets(cfg)
            hide_notes()
            return task(cfg)

    try:
        if {"--help", "-h"} & set(arguments):
            from vsehub.cli.help import help_text

            print(help_text(config, folders, one_of_each(config, arguments)))
            return
        hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config)(guarded)()
    except HydraException:
        refuse_unknown(config, folders, arguments)
        raise


def _is_first() -> bool:
    """Whether this process is the first of those that work together, on whose terminal bars are shown."""
    return launch.number() == 0 and os.environ.get("LOCAL_RANK", "0") == "0"


def hide_notes() -> None:
    """Mask the addresses in the files that Hydra has written of the job: the user's own may have held some."""
    hydra_config = HydraConfig.get()
    if hydra_config.output_subdir is None:
        return
    for file in (Path(hydra_config.runtime.output_dir) / hydra_config.output_subdir).glob("*.yaml"):
        text = file.read_text(encoding="utf-8")
        if masked(text) != text:
            write_text(file, masked(text))


@contextmanager
def boundary() -> Iterator[None]:
    """Turn every error inside the block into one line on stderr and an exit status.

    2: bad input. 1: the machine refused something, or the command itself failed; the line then names the file with the
    traceback. 130: interrupted. 143: SIGTERM. VSEHUB_TRACEBACK=1 shows the traceback directly.
    """
    logging.raiseExceptions = False  # a log that cannot be written fails again as output
    try:
        with answered(_stop_late):
            yield
            sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit) and not isinstance(error, Terminated):
            raise  # its message has been printed
        if os.environ.get("VSEHUB_TRACEBACK") == "1":
            raise
        forget_interrupt()
        end(*reported(_stop_behind(error) or error))


def _stop_late(number: int) -> None:
    """End the process in whatever it does; a SIGKILL would leave the same files."""
    message, status = reported(Terminated() if number == signal.SIGTERM else KeyboardInterrupt())
    with suppress(OSError, ValueError):
        if not launch.noted(message) and select.select([], [sys.stderr], [], 0)[1]:
            os.write(sys.stderr.fileno(), f"{sys.argv[0]}: {message}\n".encode())
    os._exit(status)


def _behind(error: BaseException | None) -> Iterator[BaseException]:
    """The error with its causes and contexts, each once: an error that was unwrapped and raised again forms a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _stop_behind(error: BaseException) -> BaseException | None:
    """The signal that caused an error, or None: a library may have replaced it by its own error."""
    return next((one for one in _behind(error) if isinstance(one, Terminated | KeyboardInterrupt)), None)


def reported(error: BaseException) -> tuple[str, int]:
    """The line that reports an error, and the exit status."""
    if isinstance(error, InputError):
        return str(error), BAD_INPUT
    if isinstance(error, launch.Failed):
        return str(error), FAILED
    if launch.is_lost(error):
        from vsehub.training.processes import LOST  # it is imported already

        return "another process of this training has ended, and so this one cannot go on", LOST
    if isinstance(error, KeyboardInterrupt | Terminated):
        what, status = ("terminated", TERMINATED) if isinstance(error, Terminated) else ("interrupted", INTERRUPTED)
        again = launch.Folder.continued_by()
        goes_on = "a command that can continue does so when it is run again" if again is None else f"`{again}` goes on"
        return f"{what}; complete files were kept, and {goes_on}", status
    if isinstance(error, HydraException | OmegaConfBaseException | YAMLError):
        return explained(error), BAD_INPUT
    if is_full_disk(error):
        return f"the disk is full ({_file(error) or 'while writing'}). Free space, then run the command again", FAILED
    if refused := next((one for one in _behind(error) if is_out_of_memory(one)), None):
        return _out_of_memory(refused), FAILED
    if isinstance(error, BrokenPipeError):
        return "the program that read the output has ended", FAILED
    if isinstance(error, OSError):
        named = _file(error)
        return f"{named + ': ' if named else ''}{error.strerror or error}", FAILED
    if isinstance(error, UnicodeError):
        return f"a text is not in the expected encoding: {error}", BAD_INPUT
    if isinstance(error, ImportError) and not str(error.name or "").startswith("vsehub"):
        return f"a required package is not installed or cannot be loaded: {_line(error)}", FAILED
    log = _log_of(error)
    own_class = type(error).__module__.split(".")[0] in _LIBRARIES
    refusal = own_class or isinstance(error, ValueError | TypeError | RuntimeError | AssertionError)
    if _library(error) in _LIBRARIES and refusal:
        return f"{_library(error)} refuses: {_line(error)}. The traceback: {log}", BAD_INPUT
    return (
        f"{type(error).__name__}: {_line(error)}. This is a bug in vsehub, not your mistake; its traceback: {log}",
        FAILED,
    )


def _out_of_memory(error: BaseException) -> str:
    """How much was asked for, as far as the error says it, where, and which settings of the command take less."""
    asked = _ASKED.search(str(error))
    given = ""
    if asked:
        in_bytes = asked["unit"] == "bytes"
        count, unit = (float(asked["count"]) / 2**30, "GiB") if in_bytes else (float(asked["count"]), asked["unit"])
        given = f", {count:,.1f} {unit} more were asked for"
    device = "the GPU" if "CUDA" in str(error) or "HIP" in str(error) else "this machine"
    command = sys.argv[0].split()[-1]
    lower = _LOWER.get(command, "use smaller batches or fewer items")
    return f"out of memory on {device}{given}. Close other programs, or {lower}"


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500].rstrip(".")


def _file(error: BaseException) -> str | None:
    named = (one.filename for one in _behind(error) if isinstance(one, OSError) and one.filename is not None)
    return next(map(str, named), None)


def _library(error: BaseException) -> str:
    """The package of the code that raised the error."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return frames[-1][0].f_globals.get("__name__", "").split(".")[0] if frames else ""


def _log_of(error: BaseException) -> str:
    """The path of a file with the traceback; "above" if it cannot be written and goes to stderr instead."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="vsehub-", suffix=".log", delete=False, encoding="utf-8") as file:
            file.write(masked(f"{' '.join(sys.argv)}\n\n{text}"))
            return file.name
    except OSError:
        sys.stderr.write(masked(text))
        return "above"


def end(message: str, status: int = BAD_INPUT) -> NoReturn:
    """Exit with a message, its addresses masked, and a status."""
    message = masked(message)
    try:
        sys.stdout.flush()
    except OSError:  # a full disk or a reader that has ended: the rest of the output would fail again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not launch.noted(message):
        own = f" (process {launch.number()})" if launch.number() else ""
        print(f"{sys.argv[0]}{own}: {message}", file=sys.stderr)
    raise SystemExit(status)

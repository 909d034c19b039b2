"""Code that all commands share: running a task with its configuration, and turning errors into one line."""

import logging
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import NoReturn

import hydra
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from vsehub.checks import InputError, boolean, one_line, require, suggest
from vsehub.cli.nodes import components, config_dirs, plain
from vsehub.components import FURTHER_FOLDERS, conf_folder
from vsehub.io.address import masked_output, remember, strings_in
from vsehub.io.files import write_text
from vsehub.io.progress import show
from vsehub.recipes import flatten

BAD_INPUT, FAILED, INTERRUPTED, TERMINATED = 2, 1, 130, 143
_signals: list[int] = []  # received signals; libraries may replace the exception that a signal raises

logging.getLogger("faiss.loader").setLevel(logging.WARNING)  # it tells of each build of FAISS that it looks for
_format = logging.Formatter.format
# Every log message is masked, whichever library's handler formats it.
logging.Formatter.format = lambda self, record: masked_output(_format(self, record))  # type: ignore[method-assign]
# Hydra composes the configuration once more to read hydra.mode. Here only -m sets the mode, so nothing need be read.
Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign]
# Hydra copies its schemas for each composition and, for --help, for each group; nothing changes them.
ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]


def run(task: Callable[[DictConfig], float | None], config_name: str) -> None:
    """Run `task` with the configuration that Hydra composes from conf/`config_name`.yaml."""
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra lets errors through, to `report_errors`

    @wraps(task)
    def guarded(cfg: DictConfig) -> float | None:
        # Errors are handled here, before Hydra prints its own message. In a sweep Hydra continues with the next job.
        with report_job_error() if is_multirun() else report_errors():
            if process_number() == 0:
                show()
            for text in strings_in(plain(cfg)):
                remember(text)
            mask_hydra_files()
            require_booleans(cfg, config_name)
            require_new_choices()
            FURTHER_FOLDERS[:] = config_dirs()
            return task(cfg)

    hydra.main(version_base="1.3", config_path=str(conf_folder()), config_name=config_name)(guarded)()


def require_booleans(cfg: DictConfig, config_name: str) -> None:
    """Raise InputError if a setting whose default is true or false has another value, such as the word "no"."""
    for key, default in plain(OmegaConf.load(conf_folder() / f"{config_name}.yaml"), resolve=False).items():
        if isinstance(default, bool):
            boolean(key, cfg[key])


def require_new_choices() -> None:
    """Raise InputError if --config-dir holds a file that Hydra ignores, since vsehub has a file of that name."""
    for folder in config_dirs():
        hidden = [path for path in folder.glob("*/**/*.yaml") if (conf_folder() / path.relative_to(folder)).is_file()]
        require(not hidden, f"--config-dir: {hidden} are not read, since vsehub has files of these names; rename them")


def require_multirun(cfg: DictConfig) -> None:
    """Raise InputError if a prepared sweep is chosen without -m, which would ignore its values.

    The recorded command of a job of the sweep sets each of them and needs no -m.
    """
    hydra_config = HydraConfig.get()
    sweep = hydra_config.runtime.choices.get("sweep")
    names = {text.lstrip("+").partition("=")[0] for text in hydra_config.overrides.task}
    ignored = [
        name
        for name in hydra_config.sweeper.get("params") or {}
        if name not in names and OmegaConf.select(cfg, name) is not None  # a job leaves out what its components lack
    ]
    require(
        is_multirun() or sweep is None or not ignored,
        f"sweep={sweep} needs -m; without it {', '.join(ignored)} would have only one value",
    )


def mask_hydra_files() -> None:
    """Mask secrets in the files where Hydra writes the job's configuration."""
    hydra_config = HydraConfig.get()
    folder = Path(hydra_config.runtime.output_dir, str(hydra_config.output_subdir))
    for path in (*Path(hydra_config.sweep.dir).glob("multirun.yaml"), *folder.glob("*.yaml")):
        write_text(path, masked_output(path.read_text(encoding="utf-8")))


def process_number() -> int:
    """The number of this process among those that train together, from 0, before torch.distributed is set up."""
    return next((int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID") if name in os.environ), 0)


def is_multirun() -> bool:
    """Return True if the current job belongs to a sweep."""
    return HydraConfig.get().mode == RunMode.MULTIRUN


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    _signals.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(TERMINATED)


@contextmanager
def report_job_error() -> Iterator[None]:
    """Print a line when a job of a sweep fails. Hydra raises the first job's error again after all jobs."""
    try:
        yield
    except Exception as error:
        hydra_config = HydraConfig.get()
        settings = masked_output(" ".join(hydra_config.overrides.task))
        print(f"{sys.argv[0]}: job {hydra_config.job.num} failed ({settings}): {report_of(error)[0]}", file=sys.stderr)
        raise


@contextmanager
def report_errors() -> Iterator[None]:
    """Turn every error inside the block into one line on stderr and an exit status.

    2: bad input. 1: the machine refused something, or the command itself failed; the line then names the file with the
    traceback. 130: interrupted. 143: SIGTERM. An ignored signal stays ignored.
    """
    logging.raiseExceptions = False  # if the log cannot be written, the output fails too and is reported
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if handler is signal.SIG_IGN else _stop)
        yield
        sys.stdout.flush()
    except BaseException as error:
        if isinstance(error, SystemExit) and not _signals:
            raise  # its message has been printed
        exit_with(*report_of(error))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report_of(error: BaseException) -> tuple[str, int]:
    """The line that reports an error, and the exit status."""
    if _signals or isinstance(error, KeyboardInterrupt):
        terminated = signal.SIGTERM in _signals
        _signals.clear()
        advice = "; `vsehub train resume=RUN_FOLDER` continues" if sys.argv[0].endswith(" train") else ""
        event = "terminated" if terminated else "interrupted"
        return f"{event}; complete files were kept{advice}", TERMINATED if terminated else INTERRUPTED
    line = with_suggestion(one_line(error))
    # Hydra refuses -m beside --cfg by a plain ValueError.
    refused_by_hydra = isinstance(error, HydraException | OmegaConfBaseException) or "Only one of --run" in line
    if refused_by_hydra or isinstance(error, InputError | YAMLError):
        override = getattr(error, "override", None)  # the argument that Hydra could not parse
        return f"{override}: {line}" if override else line, BAD_INPUT
    if isinstance(error, OSError | ImportError):
        return line, FAILED
    text = masked_output(f"{' '.join(sys.argv)}\n\n{''.join(traceback.format_exception(error))}")
    with tempfile.NamedTemporaryFile(prefix="vsehub-", suffix=".log", delete=False) as log:
        log.write(text.encode(errors="backslashreplace"))
    return f"{type(error).__name__}: {line[:500]}. The traceback: {log.name}", FAILED


def with_suggestion(line: str) -> str:
    """The message of an error; for Hydra's messages about unknown settings and choices, a shorter one with a hint."""
    if wrong := re.match(r"Could not override '((\w+)[\w.]*)", line):
        file = conf_folder() / f"{sys.argv[0].rpartition(' ')[2].replace('-', '_')}.yaml"
        known = re.findall(r"^(?:  - (?:optional )?)?(\w+):", file.read_text(encoding="utf-8"), re.MULTILINE)
        name, group = wrong.groups()
        nested = {*settings_of(group), *flatten(plain(OmegaConf.load(file), resolve=False))}
        if group not in known:
            return f"no setting {group!r}{suggest(group, known)}; --help lists all"
        if name in nested:
            return f"{name}: the chosen {group} has no such setting, another choice has it"
        if near := suggest(name, nested):
            return f"no setting {name}{near}"
    if wrong := re.match(r"In .*: Could not find '(.*)/(.*?)' Available options in .*?: (.*) Config search", line):
        group, choice, names = wrong.groups()
        return f"{group}={choice} is unknown{suggest(choice, names.split())}; choose one of {names.replace(' ', ', ')}"
    return line


def exit_with(message: str, status: int) -> NoReturn:
    """Exit with a message and a status; of several processes that were interrupted, only the first prints it."""
    try:
        sys.stdout.flush()
    except OSError:  # a full disk or a reader that has ended: the rest of the output would fail again at the exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    number = process_number()
    if number == 0 or status < INTERRUPTED:
        process = f" (process {number})" if number > 0 else ""
        print(f"{sys.argv[0]}{process}: {message}", file=sys.stderr)
    raise SystemExit(status)


def command_help(config_name: str) -> str:
    """The settings of a command with their comments, and the choices of its groups, for Hydra's template of help."""
    text = (conf_folder() / f"{config_name}.yaml").read_text(encoding="utf-8").partition("\nhydra:\n")[0]
    groups = re.findall(r"^  - (?:optional )?(\w+): ", text, re.MULTILINE)
    choices = "\n".join(f"  {group}={choices_of(group)}" for group in groups)
    return f"settings (key=value), and the choices of each group:\n\n{text}\n\n{choices}".replace("$", "$$")


def settings_of(group: str) -> set[str]:
    """The settings of all choices of a group and of the groups within it, such as "loss.gamma"."""
    names = set[str]()
    for folder in components().folders:
        for path in (folder / group).rglob("*.yaml"):
            package = ".".join(path.parent.relative_to(folder).parts)
            names.update(flatten(plain(OmegaConf.load(path), resolve=False), package))
    return names


def choices_of(group: str) -> str:
    """The choices of a group, without those in folders."""
    return ", ".join(components().choices(group))


OmegaConf.register_new_resolver("command_help", command_help, replace=True)
OmegaConf.register_new_resolver("choices_of", choices_of, replace=True)

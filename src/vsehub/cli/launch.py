"""Training as several processes, started by this command, by torchrun or by srun.

Process 0 claims the run's folder, writes its files and prints. The others take the folder from it and are silent.
"""

import json
import logging
import os
import shlex
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from vsehub.checks import InputError, require
from vsehub.cli.overrides import MULTIRUN, override, quoted
from vsehub.cli.signals import STARTED_BY

_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_SIGNALS = [one for one in signal.Signals if one.name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")]


class Failed(RuntimeError):
    """A process that this command started has failed; the message is written for the user."""


def started_together() -> bool:
    """Whether torchrun or srun has started this process as one of several."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return int(os.environ.get("WORLD_SIZE", "1")) > 1
    # A step is what srun starts; the batch script itself knows the number of tasks too, and runs once.
    return "SLURM_STEP_ID" in os.environ and int(os.environ.get("SLURM_NTASKS", "1")) > 1


def number() -> int:
    """The number of this process among those started together, from 0."""
    if not started_together():
        return 0
    return int(os.environ["RANK"] if "TORCHELASTIC_RUN_ID" in os.environ else os.environ["SLURM_PROCID"])


def launched() -> bool:
    """Whether `launch` has started this process; its folder is held by the process that waits."""
    return STARTED_BY in os.environ


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another of the processes has ended.

    Nothing is imported: a signal may have broken off an import of torch, which cannot be repeated.
    """
    processes = sys.modules.get("vsehub.training.processes")
    return started_together() and processes is not None and processes.is_of_the_group(error)


class Folder:
    """The run's folder, told by process 0 to the others."""

    told: ClassVar[bool] = False
    of_run: ClassVar[Path | None] = None  # of a single training, by which it can be continued

    @classmethod
    def continued_by(cls) -> str | None:
        """The command that continues the run which has begun in this process, None if there is none."""
        if cls.of_run is None or not (cls.of_run / "run.json").exists():
            return None
        return shlex.join(["vsehub", "train", override("resume", str(cls.of_run))])

    @classmethod
    def tell(cls, folder: str | None) -> None:
        """Tell it; None: there will be none, since process 0 ends."""
        if started_together() and not cls.told:
            from vsehub.training.processes import from_first

            cls.told = True
            from_first(folder)


def one_of_several(command: Callable[[], None]) -> None:
    """Run the command as one of the processes that were started together."""
    from vsehub.training.processes import from_first, joined

    arguments = sys.argv[1:]
    with joined():
        if number() == 0:
            try:
                require(
                    not MULTIRUN & set(arguments),
                    "a sweep starts the processes of each of its runs itself; leave torchrun or srun out and give "
                    "trainer.devices=N",
                )
                command()
            finally:
                Folder.tell(None)
            return
        folder = from_first(None)
        if folder is None:
            return
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
        warnings.simplefilter("ignore")
        sys.argv[1:] = [*of_folder(arguments, folder), "hydra/job_logging=disabled"]
        command()


def of_folder(arguments: list[str], folder: str) -> list[str]:
    """The arguments with which a process goes on in a run's folder that another holds."""
    if any(one.startswith("resume=") for one in arguments):
        return arguments
    left = [one for one in arguments if not one.startswith(("hydra.run.dir=", "hydra.output_subdir="))]
    return [*left, f"hydra.run.dir={quoted(folder)}", "hydra.output_subdir=null"]


def launch(processes: int, arguments: list[str], folder: Path) -> None:
    """Run `vsehub train` with these arguments as several processes on this machine, in a folder that this one holds.

    arguments: as Hydra reads them.
    One that ends ends the others. Raises InputError or Failed with the words of the one that ended first.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the message below says it
    before = {one: signal.getsignal(one) for one in _SIGNALS}
    threads = max(1, (os.cpu_count() or 1) // processes)
    own = {STARTED_BY: str(os.getpid())}
    if "OMP_NUM_THREADS" not in os.environ:
        own["OMP_NUM_THREADS"] = str(threads)
    os.environ.update(own)
    heard = [one.name for one, handler in before.items() if handler is not signal.SIG_IGN]  # as nohup ignores SIGHUP
    stopped = None
    with tempfile.TemporaryDirectory(prefix="vsehub-") as errors:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            run_id=folder.name,
            max_restarts=0,
            monitor_interval=0.2,
            logs_specs=DefaultLogsSpecs(log_dir=errors),
            signals_to_handle=",".join(heard),
        )
        try:
            elastic_launch(config, sys.executable)("-m", "vsehub", "train", *of_folder(arguments, str(folder)))
        except ChildFailedError as error:
            raise of_failures(error.failures, processes, folder) from None
        except SignalException as error:
            stopped = error.sigval
        finally:
            for name in own:
                os.environ.pop(name)
            for one, handler in before.items():
                signal.signal(one, handler)
    if stopped is not None:
        signal.raise_signal(stopped)  # as this process would have taken it


def of_failures(failures: dict[int, Any], processes: int, folder: Path) -> Exception:
    """The error to raise for processes that ended: by process, torch's `ProcessFailure` of each.

    A process that was killed is the cause of the others' end, and one that was lost, or told to end, is never.
    """
    from vsehub.training.processes import LOST

    followed = (LOST, -signal.SIGTERM, 128 + signal.SIGTERM)
    order = sorted(failures, key=lambda one: (failures[one].exitcode in followed, failures[one].exitcode >= 0, one))
    number, first = order[0], failures[order[0]]
    if first.exitcode < 0:
        return Failed(
            f"process {number} of {processes} was killed ({signal.Signals(-first.exitcode).name}), which ended the "
            f"training; complete files were kept, and `vsehub train resume={folder}` goes on"
        )
    if "timestamp" not in first.error_file_data:  # it ended without a word to the one that waits
        return Failed(f"process {number} of {processes} ended with exit status {first.exitcode}; see its output above")
    return InputError(first.message) if first.exitcode == 2 else Failed(first.message)


def noted(message: str) -> bool:
    """Write an error's message down for the process that started this one; False where there is none."""
    file = os.environ.get(_ERROR_FILE) if launched() else None
    if file is None:
        return False
    Path(file).write_text(json.dumps({"message": message, "timestamp": int(time.time())}), encoding="utf-8")
    return True

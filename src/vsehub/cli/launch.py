"""Training as several processes: Lightning starts them (`trainer.devices=N`), or torchrun, or SLURM's srun.

Process 0 claims the run's folder, writes its files and prints; the others print only their errors.
"""

import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import vsehub
from vsehub.cli.overrides import override

_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE")
of_run: Path | None = None  # the folder of a single training, which can be continued


def number() -> int:
    """The number of this process among those that train together, from 0."""
    return next((int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID") if name in os.environ), 0)


def started_together() -> bool:
    """Return True if torchrun or srun has started this process as one of several."""
    tasks = os.environ.get("SLURM_NTASKS", "1") if "SLURM_STEP_ID" in os.environ else "1"
    return int(os.environ.get("WORLD_SIZE", tasks)) > 1


def continued_by() -> str | None:
    """The command that continues the run of this process; None if none has begun."""
    if of_run is None or not (of_run / "run.json").exists():
        return None
    return shlex.join(["vsehub", "train", override("resume", str(of_run))])


def silence() -> None:
    """Let a process other than the first print nothing but errors, and Hydra write no files."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    warnings.simplefilter("ignore")
    resumes = any(one.startswith("resume=") for one in sys.argv)
    sys.argv[1:] = [
        *(one for one in sys.argv[1:] if not one.startswith(("hydra.run.dir=", "hydra.output_subdir="))),
        *([] if resumes else ["hydra.run.dir=.", "hydra.output_subdir=null"]),
        "hydra/job_logging=disabled",
    ]


@contextmanager
def launched_with(arguments: Sequence[str]) -> Iterator[None]:
    """Have Lightning start the other processes with these arguments of `vsehub train`.

    Lightning's variables end with the block, since the next job of a sweep would take them for its own.
    """
    command, own = sys.argv, [name for name in _VARIABLES if name not in os.environ]
    sys.argv = [str(Path(vsehub.__file__).with_name("__main__.py")), "train", *arguments]
    try:
        yield
    finally:
        sys.argv = command
        for name in own:
            os.environ.pop(name, None)

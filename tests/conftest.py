import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from vsehub.cli.main import main

sys.path.insert(0, str(Path(__file__).parent))

# Eight steps an epoch: the warm-up ends within the second, so that the first schedule step falls into it.
SMALL = (
    "data.size=tiny",
    "embedding_dim=16",
    "text_encoder.word_dim=8",
    "image_encoder.width=4",
    "loader.batch_size=64",
    "callbacks.warmup.steps=12",
)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """A folder that all of pytest-xdist's workers see."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def vsehub(shared_folder):
    """A function that runs the console script and returns its exit status and output; `small` adds a tiny set-up.

    start=True returns the running process instead, its output going to output.txt.
    """
    script = Path(sys.executable).parent / "vsehub"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "VSEHUB"))}
    environment = kept | {"XDG_CACHE_HOME": str(shared_folder / "cache"), "OMP_NUM_THREADS": "1"}

    def run(*arguments, cwd, small=False, start=False, status=0, **variables):
        command = [script, *map(str, arguments), *(SMALL if small else ())]
        settings = {"cwd": cwd, "env": environment | variables, "text": True}
        if start:
            with (Path(cwd) / "output.txt").open("w") as output:
                return subprocess.Popen(command, stdout=output, stderr=output, **settings)
        done = subprocess.run(command, capture_output=True, timeout=240, **settings)
        assert done.returncode == status, f"{command}\n{done.stdout}\n{done.stderr}"
        return SimpleNamespace(out=done.stdout, err=done.stderr)

    return run


@pytest.fixture(autouse=True)
def logging_as_before():
    """Commands and benchmarks set logging up for their process; the next test's log is caught as if none had run."""
    root, own = logging.getLogger(), logging.getLogger("vsehub")
    handlers, levels = root.handlers[:], (root.level, own.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])


@pytest.fixture
def run_here(monkeypatch, capsys, tmp_path, shared_folder):
    """A function that runs a command in this process, in the test's folder: what it prints, or says where it fails."""

    def run(*arguments, status=0):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(shared_folder / "cache"))
        monkeypatch.setenv("COLUMNS", "300")
        monkeypatch.setattr(sys, "argv", ["vsehub", *map(str, arguments)])
        if not status:
            main()
            return capsys.readouterr().out
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr().err
        assert caught.value.code == status, said
        assert "Traceback" not in said
        return said

    return run


@pytest.fixture(scope="session")
def trained(shared_folder, vsehub):
    """The folder of an unbroken run of four epochs: HAL, its bank, the rate halved each epoch. Not to be changed."""
    folder = shared_folder / "unbroken"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            vsehub("train", *BROKEN_OFF, f"hydra.run.dir={folder}", cwd=shared_folder, small=True)
    return folder


BROKEN_OFF = (
    "bank=memory",
    "bank.fraction=0.5",
    "trainer.max_epochs=4",
    "scheduler.step_size=1",
    "scheduler.gamma=0.5",
    "seed=3",
)


@pytest.fixture(scope="session")
def run_settings():
    """The settings of the run `trained`."""
    return BROKEN_OFF

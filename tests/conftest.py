import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import warm
from filelock import FileLock
from input_setups import SMALL  # in tools/torture
from setting_files import Files

from vsehub.cli.main import main

LIMIT = 480  # seconds that a command may take


def pytest_collection_finish():
    """The garbage collector passes by what the imports left."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """A folder that all of pytest-xdist's workers see."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def environment(shared_folder):
    """The environment of commands: this process's without what wandb and vsehub read, and folders of the tests' own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "VSEHUB"))}
    own = {"XDG_CACHE_HOME": str(shared_folder / "cache")}
    return kept | own | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def vsehub(environment, shared_folder, worker_id):
    """A function that runs the command line and returns its status, out and err; `small` adds a tiny set-up.

    start=True returns the running process instead, its output going to output.txt. console=True takes the console
    script, in a process of its own, instead of a fork of one that has imported all. Such a fork draws no figures where
    UNDRAWN is given.
    """
    link = warm.started(shared_folder, environment, os.getpid() if worker_id == "master" else os.getppid())
    script = Path(sys.executable).with_name("vsehub")

    def begun(arguments, cwd, own, out, err, console):
        if not console:
            return warm.Command(link, arguments, cwd, own, (out, err))
        with out.open("a") as outs, err.open("a") as errs:
            return subprocess.Popen([script, *arguments], stdout=outs, stderr=errs, cwd=cwd, env=own)

    def run(*arguments, cwd, small=False, start=False, status=0, console=False, **variables):
        arguments, own = [*map(str, arguments), *(SMALL if small else ())], environment | variables
        if start:
            return begun(arguments, cwd, own, *[Path(cwd) / "output.txt"] * 2, console)
        with tempfile.TemporaryDirectory(dir=shared_folder) as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            process = begun(arguments, cwd, own, out, err, console)
            try:
                found = SimpleNamespace(status=process.wait(LIMIT), out=out.read_text(), err=err.read_text())
            finally:
                process.kill()
        assert found.status == status, f"vsehub {shlex.join(arguments)}\n{found.out}\n{found.err}"
        return found

    return run


@pytest.fixture(scope="session")
def small():
    """The settings of a tiny training."""
    return SMALL


@pytest.fixture
def features(tmp_path):
    """The settings of a training of two steps an epoch, on features of a dozen images below the test's folder."""
    (tmp_path / "pre").mkdir()
    Files(tmp_path).captions(tmp_path / "pre")
    data = ("data=precomp", f"data.root={tmp_path / 'pre'}", "text_encoder=text_bag", "loader.min_count=1")
    return (*data, "embedding_dim=8", "loader.batch_size=12", "bank=memory", "bank.fraction=0.5")


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made, but their files are empty pictures: drawing takes most of a report's time."""
    warm.leave_figures_undrawn(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def process_as_before():
    """Commands and benchmarks set up logging, signals and the environment of their process; here others follow."""
    root, own, interrupt = logging.getLogger(), logging.getLogger("vsehub"), signal.getsignal(signal.SIGINT)
    handlers, levels = root.handlers[:], (root.level, own.level)
    with mock.patch.dict(os.environ):
        yield
    signal.signal(signal.SIGINT, interrupt)
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

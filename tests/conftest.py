import copy
import gc
import io
import logging
import os
import shlex
import signal
import sys
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import warm
from filelock import FileLock
from input_setups import SMALL  # in tools/torture
from omegaconf import OmegaConf
from setting_files import Files
from undrawn import save_undrawn

from vsehub.cli.main import main
from vsehub.components import conf_folder

gc.disable()  # the imports of the tests leave little garbage


def pytest_collection_finish():
    """The garbage collector passes by what the imports left, and runs less often, as in commands."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000)


@pytest.fixture(scope="session", autouse=True)
def conf_is_read_once():
    """Commands copy what an earlier command of this process has read of a file of conf/, which does not change."""
    read, nodes = OmegaConf.load, {}

    def load(file):
        path = file.name if hasattr(file, "read") else str(file)
        if not path.startswith(f"{conf_folder()}/"):
            return read(file)
        if path not in nodes:
            nodes[path] = read(file)
        return copy.deepcopy(nodes[path])

    with mock.patch.object(OmegaConf, "load", load):
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory, worker_id):
    """A folder that all of pytest-xdist's workers see."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "shared"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def environment(shared_folder):
    """The environment of commands: this process's without what wandb and vsehub read, and a cache of the tests' own."""
    import matplotlib

    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "VSEHUB"))}
    cache = {"XDG_CACHE_HOME": str(shared_folder / "cache"), "MPLCONFIGDIR": matplotlib.get_cachedir()}
    return inherited | cache | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="session")
def vsehub(environment, shared_folder, worker_id):
    """A function that runs the command line and returns its status, out and err; `small` adds a tiny set-up.

    It runs in this process, figures undrawn. start=True runs it in a fork of a process that has imported what trainings
    need, and returns the running process, whose output goes to output.txt.
    """
    pytest_process = os.getpid() if worker_id == "master" else os.getppid()

    def run(*arguments, cwd, small=False, start=False, status=0, **variables):
        arguments = [*map(str, arguments), *(SMALL if small else ())]
        if start:
            link = warm.started(shared_folder, environment, pytest_process)
            return warm.Command(link, arguments, cwd, environment | variables, Path(cwd) / "output.txt")
        out, err, ended = io.StringIO(), io.StringIO(), SystemExit(0)
        with (
            chdir(cwd),
            unchanged(environment | variables),
            mock.patch.object(sys, "argv", ["vsehub", *arguments]),
            mock.patch("matplotlib.figure.Figure.savefig", save_undrawn),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as caught:
                ended = caught
        assert ended.code == status, f"vsehub {shlex.join(arguments)}\n{out.getvalue()}\n{err.getvalue()}"
        return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue())

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
    """Figures are made, but their files are pictures of one pixel."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save_undrawn)


@contextmanager
def unchanged(variables):
    """Environment variables for a block, after which logging, signals and the environment are as before it."""
    root, ours, interrupt = logging.getLogger(), logging.getLogger("vsehub"), signal.getsignal(signal.SIGINT)
    handlers, levels = root.handlers[:], (root.level, ours.level)
    with mock.patch.dict(os.environ, variables):
        yield
    signal.signal(signal.SIGINT, interrupt)
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


@pytest.fixture(autouse=True)
def process_as_before():
    """Commands and benchmarks set up logging, signals and the environment of their process; here others follow."""
    with unchanged({}):
        yield


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

import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock
from hydra._internal.hydra import Hydra
from input_setups import SMALL  # in tools/torture
from warm import Warm, leave_figures_undrawn, one_mode, parse_once

from vsehub.cli.main import main

ROOT = Path(__file__).parents[1]

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
def warm(shared_folder, environment):
    """The process that forks for each command, see warm.py."""
    client = Warm(shared_folder, environment)
    yield client
    client.close()


@pytest.fixture(scope="session")
def vsehub(environment, request):
    """A function that runs the command line and returns its output; `small` adds a tiny set-up.

    start=True returns the running process instead, its output going to output.txt. console=True takes the console
    script, in a process of its own, instead of a fork of one that has imported all. Such a fork draws no figures where
    UNDRAWN is given.
    """

    def run(*arguments, cwd, small=False, start=False, status=0, console=False, **variables):
        arguments, own = [*map(str, arguments), *(SMALL if small else ())], environment | variables
        output = Path(cwd) / "output.txt"
        command = [Path(sys.executable).parent / "vsehub", *arguments]
        if console and start:
            with output.open("w") as opened:
                return subprocess.Popen(command, stdout=opened, stderr=opened, cwd=cwd, env=own)
        if console:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, cwd=cwd, env=own)
            done = SimpleNamespace(status=done.returncode, out=done.stdout, err=done.stderr)
        elif start:
            return request.getfixturevalue("warm").start(arguments, cwd, own, output, output)
        else:
            done = request.getfixturevalue("warm").run(arguments, cwd, own, LIMIT)
        assert done.status == status, f"vsehub {shlex.join(arguments)}\n{done.out}\n{done.err}"
        return done

    return run


@pytest.fixture(scope="session")
def script(environment, warm):
    """A function that runs a Python file of tests/, or a module, as `vsehub` runs commands, and returns its output.

    start=True returns the running process instead, its output going to output.txt.
    """

    def run(script, *arguments, cwd=ROOT, start=False, status=0, **variables):
        own, script = environment | variables, ROOT / "tests" / script if str(script).endswith(".py") else script
        if start:
            return warm.start(arguments, cwd, own, *[Path(cwd) / "output.txt"] * 2, script=script)
        done = warm.run(arguments, cwd, own, LIMIT, script=script)
        assert done.status == status, f"{script} {shlex.join(map(str, arguments))}\n{done.out}\n{done.err}"
        return done

    return run


@pytest.fixture(scope="session")
def study(script):
    """A function that runs `python -m experiments`, see `script`."""
    return partial(script, "experiments")


@pytest.fixture(scope="session", autouse=True)
def composed_once():
    """In this process Hydra composes a command's configuration once, not also for hydra.mode, of files parsed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hydra, "get_mode", one_mode)
        parse_once(patch.setattr)
        yield


@pytest.fixture(scope="session")
def small():
    """The settings of a tiny training."""
    return SMALL


@pytest.fixture
def undrawn(monkeypatch):
    """Figures are made, but their files are empty pictures: drawing takes most of a report's time."""
    leave_figures_undrawn(monkeypatch.setattr)


@pytest.fixture(autouse=True)
def process_as_before():
    """Commands and benchmarks set up logging, signals and the environment of their process; here others follow."""
    root, own = logging.getLogger(), logging.getLogger("vsehub")
    handlers, levels = root.handlers[:], (root.level, own.level)
    interrupt, environment = signal.getsignal(signal.SIGINT), dict(os.environ)
    yield
    signal.signal(signal.SIGINT, interrupt)
    for name in ("PYTHONSAFEPATH", "OMP_WAIT_POLICY"):
        os.environ.pop(name, None)
        os.environ.update({name: environment[name]} if name in environment else {})
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

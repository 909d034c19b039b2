"""Programs of the package's own environment, and an empty environment to install into."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from building import ROOT

BIN = Path(sys.executable).parent
# What would lead an installed package back to this checkout, or change what a command does.
_OURS = ("PYTHON", "VSEHUB", "WANDB", "VIRTUAL_ENV", "COV_CORE", "COVERAGE")


def clean(folder, **variables):
    """The environment of programs that know nothing of this checkout; caches and states lie in a folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    places = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CACHE", "STATE", "CONFIG")}
    return environment | places | {"OMP_NUM_THREADS": "1"} | variables


def run(*command, status=0, **settings):
    """Run a program and check its status; its output, as `out` and `err`."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, stdin=subprocess.DEVNULL, **settings)
    assert done.returncode == status, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return SimpleNamespace(out=done.stdout, err=done.stderr)


def install(folder, requirement):
    """Install a requirement at the pinned versions into a new environment: the folder of its programs.

    uv takes the packages from its cache; without uv pip downloads them.
    """
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    uv, pins = BIN / "uv", ("-c", ROOT / "constraints.txt", requirement)
    if uv.is_file():
        run(uv, "pip", "install", "--quiet", "--python", folder, *pins)
    else:
        run(sys.executable, "-m", "pip", "--quiet", "--python", folder, "install", *pins)
    return folder / "bin"

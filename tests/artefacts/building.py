"""Building the artefacts."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def build(source, folder, *options, **variables):
    """Build a folder's sdist and the wheel of that sdist, or what the options ask for; the files, the sdist first."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *options, source]
    environment = os.environ | {"SOURCE_DATE_EPOCH": "1700000000"} | variables
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=source)
    assert done.returncode == 0, done.stdout + done.stderr
    return built(folder)


def built(folder):
    """The artefacts in a folder, the sdist first."""
    return sorted(Path(folder).glob("vsehub-*"), key=lambda path: path.suffix)


def unpack(sdist, folder):
    """The folder that an sdist holds, unpacked into another."""
    with tarfile.open(sdist) as opened:
        opened.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")

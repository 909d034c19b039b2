"""The artefacts that the tests look at: those of VSEHUB_TEST_DIST, which release/build.sh has built, or built here."""

import os
from pathlib import Path

import pytest
from building import ROOT, build, built
from filelock import FileLock


@pytest.fixture(scope="session")
def artefacts(shared_folder):
    """The sdist and the wheel."""
    distribution = os.environ.get("VSEHUB_TEST_DIST")
    folder = Path(distribution) if distribution else shared_folder / "dist"
    with FileLock(f"{shared_folder / 'dist'}.lock"):
        if not folder.exists():
            build(ROOT, folder)
    sdist, wheel = built(folder)
    assert (sdist.suffix, wheel.suffix) == (".gz", ".whl")
    return sdist, wheel

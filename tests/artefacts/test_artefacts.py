"""What the wheel and the sdist hold, and where the README's links lead."""

import re
import subprocess
import zipfile

import pytest
from building import ROOT, unpack

from hatch_build import linked

REPOSITORY = "https://example.org/someone/vsehub"


@pytest.fixture(scope="module")
def inside(artefacts):
    """The names of the wheel's files."""
    return set(zipfile.ZipFile(artefacts[1]).namelist())


def own_files():
    """The files that git names, with those that are not added yet, and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip
    return [name for name in listed if (ROOT / name).is_file()]


def test_the_wheel_holds_the_package_and_nothing_else(inside):
    files = own_files()
    package = {name.removeprefix("src/") for name in files if name.startswith("src/")}
    settings = {f"vsehub/{name}" for name in files if name.startswith("conf/")}
    assert {"vsehub/py.typed", "vsehub/conf/train.yaml", "vsehub/__init__.pyi"} <= package | settings
    about = {name for name in inside if re.match(r"vsehub-[\w.]+\.dist-info/", name)}
    assert inside - about == package | settings
    assert {name.partition("/")[2] for name in about} == {
        *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"),
    }


def test_with_a_repository_every_link_leads_there():
    text = (ROOT / "README.md").read_text()
    lead = linked(text, REPOSITORY, "1.2.3")
    paths = re.findall(rf"\]\({REPOSITORY}/(?:blob|raw)/v1.2.3/([^)#]*)", lead)
    assert len(paths) > 15
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert re.sub(rf"{REPOSITORY}/(blob|raw)/v1\.2\.3/", "", lead) == text
    assert linked("a [b](c.md#d) ![e](f.png) [g](#h) [i](https://j) `k[l](m, n)`", "", "1") == (
        "a b  [g](#h) [i](https://j) `k[l](m, n)`"
    )


def test_the_sdist_holds_what_the_wheel_is_built_from(artefacts, tmp_path):
    folder = unpack(artefacts[0], tmp_path)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {
        "PKG-INFO",
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
    } <= files
    assert {name for name in own_files() if name.startswith(("src/", "conf/"))} <= files
    left_out = ("tests", "tools", "experiments", "docs", "runs")  # tests need files of the whole repository
    assert not [name for name in files if name.startswith(left_out) or "__pycache__" in name]

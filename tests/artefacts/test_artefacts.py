"""What the wheel and the sdist hold, what their metadata says, and that the same files give the same bytes."""

import email
import hashlib
import re
import shutil
import subprocess
import tarfile
import zipfile

import pytest
from building import ROOT, build, unpack

from hatch_build import linked

REPOSITORY = "https://example.org/someone/vsehub"


@pytest.fixture(scope="module")
def inside(artefacts):
    """The names of the wheel's files."""
    return set(zipfile.ZipFile(artefacts[1]).namelist())


@pytest.fixture(scope="module")
def metadata(artefacts, inside):
    """The wheel's METADATA."""
    (name,) = [name for name in inside if name.endswith(".dist-info/METADATA")]
    return email.message_from_string(zipfile.ZipFile(artefacts[1]).read(name).decode())


def own_files():
    """The files that git names, with those that are not added yet, and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    ).stdout.splitlines()  # fmt: skip
    return [name for name in listed if (ROOT / name).is_file()]


def digests(files):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


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


def test_the_metadata_is_complete(artefacts, metadata):
    assert artefacts[1].name.endswith("-py3-none-any.whl")
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Author"] == metadata["Maintainer"] == "vsehub developers"
    assert metadata["Summary"]
    assert "hubness" in metadata["Keywords"]
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier")
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)} <= set(classifiers)
    # The index refuses a file whose classifiers are none, and a licence beside the SPDX expression.
    assert not [name for name in classifiers if name.startswith("License ::")]
    assert "Paper on HAL, https://arxiv.org/abs/1911.10097" in metadata.get_all("Project-URL")
    assert {"cpu", "gpu"} <= set(metadata.get_all("Provides-Extra"))


def test_the_classifiers_are_known(metadata):
    known = pytest.importorskip("trove_classifiers").classifiers
    assert set(metadata.get_all("Classifier")) <= known


def test_the_description_leads_nowhere_that_the_index_lacks(metadata):
    targets = re.findall(r"\]\(([^)]*)\)", metadata.get_payload())
    assert [target for target in targets if not target.startswith(("https://", "#"))] == []


def test_with_a_repository_every_link_leads_there(tmp_path):
    text = (ROOT / "README.md").read_text()
    lead = linked(text, REPOSITORY, "1.2.3")
    assert (
        f"![Plain and corrected search of the embedded scenes side by side]({REPOSITORY}/raw/v1.2.3/docs/images/"
        in lead
    )
    assert f"[guide]({REPOSITORY}/blob/v1.2.3/docs/guide.md)" in lead
    paths = re.findall(rf"\]\({REPOSITORY}/(?:blob|raw)/v1.2.3/([^)#]*)", lead)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert re.sub(rf"{REPOSITORY}/(blob|raw)/v1\.2\.3/", "", lead) == text
    assert linked("a [b](c.md#d) ![e](f.png) [g](#h) [i](https://j) `k[l](m, n)`", "", "1") == (
        "a b  [g](#h) [i](https://j) `k[l](m, n)`"
    )
    # A wheel that is built from an sdist without the address keeps it.
    (sdist,) = build(ROOT, tmp_path / "with", "--sdist", VSEHUB_REPOSITORY=REPOSITORY)
    (wheel,) = build(unpack(sdist, tmp_path), tmp_path / "later", "--wheel", VSEHUB_REPOSITORY="")
    (name,) = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith("METADATA")]
    metadata = email.message_from_string(zipfile.ZipFile(wheel).read(name).decode())
    assert f"Repository, {REPOSITORY}" in metadata.get_all("Project-URL")
    assert metadata.get_payload().strip() == linked(text, REPOSITORY, metadata["Version"]).strip()


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
    assert {name for name in own_files() if name.startswith(("src/", "conf/", "tests/"))} <= files
    assert not [name for name in files if name.startswith(("experiments", "docs", "runs")) or "__pycache__" in name]


def test_builds_are_equal_to_the_byte(artefacts, tmp_path):
    """Built here, and from a copy in another folder with other times and rights; through an sdist, and directly."""
    with tarfile.open(artefacts[0]) as opened:
        epoch = str(opened.getmembers()[0].mtime)
    copy = tmp_path / "another folder"
    for name in own_files():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
        (copy / name).chmod(0o600)
    assert digests(build(copy, tmp_path / "second", SOURCE_DATE_EPOCH=epoch)) == digests(artefacts)
    direct = build(ROOT, tmp_path / "direct", "--wheel", SOURCE_DATE_EPOCH=epoch)
    assert digests(direct).items() <= digests(artefacts).items()


def test_an_address_that_is_none_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="VSEHUB_REPOSITORY is 'someone/vsehub'; expected an address such as"):
        build(ROOT, tmp_path, "--wheel", VSEHUB_REPOSITORY="someone/vsehub")

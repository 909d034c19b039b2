"""pyproject.toml, the package, CITATION.cff and CHANGELOG.md agree; release/check.py refuses a tag that does not."""

import re
import runpy
import shutil
import sys
import tomllib

import pytest
import yaml
from building import ROOT

import vsehub
from release.check import faults, notes, versions

FILES = ("pyproject.toml", "src/vsehub/__init__.py", "CITATION.cff", "CHANGELOG.md")


def test_all_files_state_one_version():
    assert set(versions(ROOT).values()) == {vsehub.__version__}


def test_the_citation_has_what_its_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"] == project["name"]
    assert citation["abstract"] == f"{project['description']}."
    assert citation["authors"] == project["authors"]
    assert citation["license"] == project["license"]
    assert citation["version"] == project["version"]
    papers = citation["references"]
    assert all(paper["type"] and paper["title"] and paper["authors"] for paper in papers)
    # The papers of README, by title and authors.
    readme = " ".join((ROOT / "README.md").read_text().partition("The papers:")[2].split())
    for paper in papers:
        assert paper["title"].casefold() in readme.casefold()
    assert [len(paper["authors"]) for paper in papers] == [4, 2]
    urls = (ROOT / "pyproject.toml").read_text()
    for paper in papers:
        (number,) = [one["value"].removeprefix("arXiv:") for one in paper["identifiers"]]
        assert f"https://arxiv.org/abs/{number}" in urls


def test_another_python_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    monkeypatch.setattr(sys, "version", "3.10.13 (main)")
    with pytest.raises(ImportError, match=r"vsehub needs Python 3\.11 or newer; this is 3\.10\.13, /"):
        runpy.run_path(vsehub.__file__)


@pytest.fixture
def released(tmp_path):
    """A folder whose files are those of version 3.4.5, released on 2027-01-02."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    rewrite(tmp_path / "pyproject.toml", r'^version = ".*"', 'version = "3.4.5"')
    rewrite(tmp_path / "src/vsehub/__init__.py", r"^__version__ = .*", '__version__ = "3.4.5"')
    rewrite(
        tmp_path / "CITATION.cff",
        r"^version: .*\n(date-released: .*\n)?",
        "version: 3.4.5\ndate-released: 2027-01-02\n",
    )
    rewrite(tmp_path / "CHANGELOG.md", r"^## ", "## [3.4.5] - 2027-01-02\n\n### Fixed\n\n- All.\n\n## ")
    return tmp_path


def rewrite(path, pattern, text):
    old = path.read_text()
    new = re.sub(pattern, text.replace("\\", r"\\"), old, count=1, flags=re.MULTILINE)
    assert new != old
    path.write_text(new)


def test_a_tag_that_all_files_agree_with_is_released(released):
    assert faults(released, "v3.4.5") == []
    assert notes(released) == "### Fixed\n\n- All."


def test_what_disagrees_with_the_tag_is_named(released):
    for file in FILES:
        text = (released / file).read_text()
        (released / file).write_text(text.replace("3.4.5", "3.4.4", 1))
        assert faults(released, "v3.4.5") == [f"{file}: version '3.4.4', but the tag is v3.4.5"]
        (released / file).write_text(text)
    assert len(faults(released, "v3.4.6")) == 4
    assert faults(released, "3.4.5")[-1] == "3.4.5: a tag is v and a version of three numbers, such as v1.2.3"
    rewrite(released / "CITATION.cff", "2027-01-02", "2027-01-03")
    assert faults(released, "v3.4.5") == [
        "CITATION.cff: date-released is '2027-01-03', but the changelog says '2027-01-02'"
    ]
    rewrite(released / "CITATION.cff", "2027-01-03", "Unreleased")
    rewrite(released / "CHANGELOG.md", r"- 2027-01-02", "- Unreleased")
    assert faults(released, "v3.4.5") == [
        "CHANGELOG.md: the newest section has the date 'Unreleased'; expected one such as 2026-11-30"
    ]

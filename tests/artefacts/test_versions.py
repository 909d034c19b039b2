"""pyproject.toml, the package, CITATION.cff and CHANGELOG.md agree; release/check.py refuses a tag that does not."""

import re

from building import ROOT

import vsehub
from release.check import faults, versions

FILES = ("pyproject.toml", "src/vsehub/__init__.py", "CITATION.cff", "CHANGELOG.md")


def test_all_files_state_one_version():
    assert set(versions(ROOT).values()) == {vsehub.__version__}


def test_what_disagrees_with_the_tag_is_named(tmp_path):
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / name).read_text().replace(vsehub.__version__, "3.4.5")
        text = re.sub(
            r"^(version: .*\n)(date-released: .*\n)?", r"\1date-released: 2027-01-02\n", text, flags=re.MULTILINE
        )
        (tmp_path / name).write_text(re.sub(r"^## \[.*", "## [3.4.5] - 2027-01-02", text, count=1, flags=re.MULTILINE))
    assert faults(tmp_path, "v3.4.5") == []
    assert len(faults(tmp_path, "v3.4.6")) == len(FILES)
    assert faults(tmp_path, "3.4.5")[-1].startswith("3.4.5: a tag is v")
    (tmp_path / "CITATION.cff").write_text("version: 3.4.5\ndate-released: 2027-01-03\n")
    assert faults(tmp_path, "v3.4.5")[0].startswith("CITATION.cff: date-released")

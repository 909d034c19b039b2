"""The documentation names files and tests that are there, and figures that were measured."""

import re
from pathlib import Path
from statistics import mean, stdev

import pandas as pd

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = ("soft_margin", "quantile")  # what docs/extend.md has a reader write


def test_files_that_the_pages_name_exist():
    """A bare name is a file that a run or a user's folder holds; words in capitals stand for others."""
    roots = [ROOT / folder for folder in (".", "src/vsehub", "src", "conf")]
    for page in PAGES:
        for name in set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|yaml|csv|toml|ipynb))`", page.read_text())):
            other = any(one in name for one in EXAMPLES) or re.search(r"\b[A-Z]{2,}\b", name)
            assert other or any((root / name).exists() for root in roots), (page.name, name)


def test_the_tests_that_the_page_on_security_names_exist():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text()))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"def (test_\w+)", text))


def test_the_figures_of_findings_are_those_that_were_measured():
    page = " ".join((ROOT / "docs" / "findings.md").read_text().split())
    for file, case, columns in (
        ("losses/results", "loss", ["rsum"]),
        ("losses/wide", "loss", ["rsum"]),
        ("regularisation/runs", "case", ["test_nns", "test_is"]),
        ("flickr8k/results", "label", ["rsum"]),
    ):
        cases = pd.read_csv(ROOT / "experiments" / "results" / f"{file}.csv").groupby(case)
        for name, values in [(name, own[column].dropna()) for column in columns for name, own in cases]:
            assert len(values) < 3 or f"{mean(values):.1f} ± {stdev(values):.1f}" in page, (file, name)

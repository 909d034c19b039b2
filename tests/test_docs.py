"""The documentation names files, tests and extras that are there, and figures that were measured."""

import ast
import json
import re
import runpy
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from statistics import mean, stdev

import pandas as pd
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_size import CONF, leaves, read

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
EXAMPLES = ("soft_margin", "conf/local/")  # files that a reader may write


def test_files_that_the_pages_name_exist():
    """A bare name is a file that a run or a user's folder holds; words in capitals stand for others."""
    roots = [ROOT / folder for folder in (".", "src/vsehub", "src", "conf")]
    for page in PAGES:
        for name in set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|yaml|csv|toml|ipynb))`", page.read_text())):
            other = any(example in name for example in EXAMPLES) or re.search(r"\b[A-Z]{2,}\b", name)
            assert other or any((root / name).exists() for root in roots), (page.name, name)


def test_the_tests_that_the_page_on_security_names_exist():
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "security.md").read_text()))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"def (test_\w+)", text))


def test_extras_that_pages_and_messages_name_exist():
    """Spelled as in the metadata: an older pip installs nothing for `open_clip` if the metadata has `open-clip`."""
    assert [name for name in EXTRAS if name != canonicalize_name(name)] == []
    sources = list((ROOT / "src").rglob("*.py"))
    texts = [path.read_text() for path in [*PAGES, *sources, *(ROOT / "conf").rglob("*.yaml")]]
    lists = re.findall(r"(?:vsehub|'\.)\[([a-z_,-]+)\]", "".join(texts))
    named = {name for names in lists for name in names.split(",")}
    calls = [node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    for call in calls:
        if getattr(call.func, "id", "") in ("package", "require_packages") and isinstance(call.args[1], ast.Constant):
            named.add(call.args[1].value)
    makefile = (ROOT / "Makefile").read_text()
    named |= set(re.search(r"^EXTRAS := \$\(FAISS\),(.*)", makefile, re.MULTILINE)[1].split(","))
    assert named <= set(EXTRAS)


def test_notebooks_import_what_their_extra_installs():
    installed = {Requirement(text).name for text in [*PROJECT["dependencies"], *EXTRAS["notebooks"]]}
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        source = "\n".join("".join(cell["source"]) for cell in cells)
        imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
        assert imported - {"vsehub"} <= installed | sys.stdlib_module_names, path.name
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("vsehub"):
                assert all(hasattr(import_module(node.module), alias.name) for alias in node.names), path.name


def test_the_page_of_settings_has_every_setting_of_a_training():
    named = re.findall(r"^\| `([\w.]+)`", runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"](), re.MULTILINE)
    assert {"epsilon", *leaves(read(CONF / "train.yaml"))} <= set(named)


REGULARISED = {
    "none": "| no regularisation, 512 dimensions | ",
    "words": "| dropout of word vectors | ",
    "all, both directions": "| all, both directions | ",
    "defaults": "| defaults, 512 dimensions | ",
    "defaults, 1024 dimensions": "| defaults, 1,024 dimensions (5 seeds) | ",
}
FINDINGS = {  # the words before the figure of a case
    "losses/results loss rsum": {
        "hal": "| HAL | ",
        "hal+mb": "| HAL + bank | ",
        "infonce": "| InfoNCE | ",
        "siglip": "| SigLIP | ",
        "siglip-as-hal": "| SigLIP | * | ",
        "knn_margin": "| kNN-margin | ",
        "knn_margin-as-hal": "| kNN-margin | * | ",
        "sum": "| SUM | ",
        "sum-as-hal": "| SUM | * | ",
        "max": "| MAX | ",
    },
    "losses/wide loss rsum": {"hal": "HAL has ", "infonce": "InfoNCE "},
    "flickr8k/results label rsum": {"hal": "HAL ", "hal+mb": "HAL + bank ", "sum": "SUM "},
    "regularisation/runs case test_nns": REGULARISED,
    "regularisation/runs case test_is": {case: f"{words}* | " for case, words in REGULARISED.items()},
}


@pytest.mark.parametrize("table", FINDINGS)
def test_findings_says_of_each_case_what_was_measured(table):
    file, by, column = table.split()
    pages = ROOT / "docs" / "findings.md", ROOT / "experiments" / "results" / "losses" / "README.md"
    page = " ".join(" ".join(path.read_text() for path in pages).split())
    cases = pd.read_csv(ROOT / "experiments" / "results" / f"{file}.csv").groupby(by)[column]
    measured = {case: values.dropna() for case, values in cases if len(values.dropna()) > 2}
    assert measured.keys() == FINDINGS[table].keys()
    for case, values in measured.items():
        words = re.escape(FINDINGS[table][case]).replace(r"\*", "[0-9.± ]*")  # * is the figure of another column
        assert re.search(f"{words}{mean(values):.1f} ± {stdev(values):.1f}", page), case

"""The documentation names what is there: files, folders, packages and commands."""

import ast
import json
import re
from pathlib import Path
from statistics import mean, stdev

import pandas as pd

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vsehub"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
INDEXES = {  # a benchmark's name of an index -> that of the page
    "LanceDB, approximate": "LanceDB, IVF_FLAT",
    "Postgres, approximate": "Postgres, HNSW",
    "Milvus, exact": "Milvus Lite, exact",
    "Milvus, approximate": "Milvus Lite, HNSW",
}
EXAMPLES = ("soft_margin", "quantile")  # what docs/extend.md has a reader write


def test_files_that_the_pages_name_exist():
    missing = []
    for page in PAGES:
        for name in set(re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|yaml|csv|toml|ipynb))`", page.read_text())):
            places = (ROOT / name, SOURCE / name, SOURCE.parent / name, ROOT / "conf" / name)
            # A bare name is a file that a run or a user's folder holds; words in capitals stand for others.
            concrete = (
                "/" in name and not any(one in name for one in EXAMPLES) and not re.search(r"\b[A-Z]{2,}\b", name)
            )
            if concrete and not any(place.exists() for place in places):
                missing.append(f"{page.name}: {name}")
    assert not missing


def test_the_tests_that_the_page_on_security_names_exist():
    page = (ROOT / "docs" / "security.md").read_text()
    named = set(re.findall(r"`(test_\w+)`", page))
    text = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named <= set(re.findall(r"^def (test_\w+)", text, re.MULTILINE))


def test_the_architecture_page_lists_every_room():
    text = (ROOT / "docs" / "extend.md").read_text()
    tree = text.partition("src/vsehub/\n")[2].partition("```")[0]
    listed = {re.match(r"  (\w+)(?:/|\.py) +\S", line)[1] for line in tree.splitlines()}
    on_disk = {path.stem for path in SOURCE.iterdir() if path.suffix in ("", ".py")} - {"__init__", "__pycache__"}
    assert listed == on_disk


def test_every_file_says_what_it_holds():
    silent = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py" and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_no_word_of_a_docstring_is_read_as_a_link():
    """Sphinx takes a word that ends in an underscore for a link, unless it is in backticks."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                lines = (ast.get_docstring(node) or "").splitlines()
                words = "\n".join(line for line in lines if not line.strip().startswith((">>>", "...")))
                found += [
                    f"{path.name}: {word}"
                    for word in re.findall(r"(?<![\w*])[A-Za-z]\w*_(?![\w*])", re.sub(r"`[^`]*`", "", words))
                ]
    assert not found


def test_the_figures_of_indexes_are_those_that_were_measured():
    page = (ROOT / "docs" / "serve.md").read_text().partition("### What the bias costs")[2].partition("\n### ")[0]
    shown = [line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| ") and "MB" in line]
    few, million = (_benchmark(f"engines{size}")["rows"] for size in ("", "_1000000"))
    for (title, size, *figures), row in zip(shown, few + million, strict=True):
        assert title.partition(" (")[0] == INDEXES.get(row["name"], row["name"])
        recalls = [f"{row['recall'][ranking]:.3f}" for ranking in ("corrected", "plain")]
        took = row["milliseconds"]["corrected"]
        if len(figures) == 3:
            assert [size, *figures] == [f"{row['bytes'] / 1e6:,.1f} MB", *recalls, f"{took:.1f} ms"]
        else:
            filled = f"{row['seconds']:.0f} s"
            assert [size, *figures] == [f"{row['bytes'] / 1e6:,.0f} MB", filled, *recalls, f"{took:.0f} ms"]


def test_the_figures_of_findings_are_those_that_were_measured():
    page = " ".join((ROOT / "docs" / "findings.md").read_text().split())
    for file, case, columns in (
        ("results/losses/results", "loss", ["rsum"]),
        ("results/losses/wide", "loss", ["rsum"]),
        ("results/regularisation/runs", "case", ["test_nns", "test_is"]),
        ("results/flickr8k/results", "label", ["rsum"]),
    ):
        frame = pd.read_csv(ROOT / "experiments" / f"{file}.csv")
        for column in columns:
            for name, own in frame.groupby(case)[column]:
                assert own.count() < 3 or _told(own.dropna().tolist()) in page, (file, name, column)
    models = pd.read_csv(ROOT / "experiments" / "strong" / "models.csv").set_index("case")
    widest = models.loc["student, tuned, infonce, 2048 dimensions"]
    assert f"reaches {_told(list(widest['test_nns']))}, corrected {_told(list(widest['test_is']))}" in page
    bank = pd.read_csv(ROOT / "experiments" / "bank" / "results.csv").pivot(index="seed", columns="case", values="rsum")
    for how, kind in (("plain", "without regularisation by"), ("regularised", "averaging by")):
        gains = (bank[f"gamma 30, bank, {how}"] - bank[f"gamma 30, none, {how}"]).dropna()
        assert f"{kind} {_told(list(gains))}" in page


def _benchmark(name: str, device: str = "cpu") -> dict:
    return json.loads((ROOT / "experiments" / "benchmarks" / "results" / f"{name}-{device}.json").read_text())


def _told(values: list[float]) -> str:
    """As the pages write a mean and its sample deviation."""
    return f"{mean(values):.1f} ± {stdev(values):.1f}"

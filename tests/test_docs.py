"""The documentation names what is there: files, folders, packages and commands."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "vsehub"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = ("soft_margin", "quantile")  # what docs/extending.md has a reader write


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


def named_by_a_yaml(package):
    """The modules of a package that hold the class of a choice of the configuration."""
    targets = "\n".join(path.read_text() for path in (ROOT / "conf").rglob("*.yaml"))
    return set(re.findall(rf"_target_: vsehub\.{package}\.(\w+)\.\w+$", targets, re.MULTILINE))


def test_the_tree_in_the_architecture_page_is_the_tree_on_disk():
    text = (ROOT / "docs" / "architecture.md").read_text()
    tree = text.partition("## Rooms")[2].partition("```\n")[2].partition("```")[0]
    listed, package = {}, None
    for line in tree.splitlines():
        entry = re.match(r"^  ([\w/]+)(?:/|\.py)? ", line) if line.startswith("  ") else None
        if entry and line[2] != " ":
            package = entry[1].rstrip("/")
            listed[package] = ""
        if package is not None:
            listed[package] += line
    on_disk = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix in ("", ".py")} - {
        "__init__",
        "__pycache__",
    }
    assert set(listed) == on_disk
    for package in listed:
        folder = SOURCE / package
        if folder.is_dir():
            parts = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
            # A loss, a criterion, ... is known by its yaml, so that a new one needs no line.
            parts -= {"__init__"} | named_by_a_yaml(package)
            lacking = {part for part in parts if not re.search(rf"\b{part}\b", listed[package])}
            assert not lacking, f"{package}/ in docs/architecture.md lacks {', '.join(sorted(lacking))}"


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

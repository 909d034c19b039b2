"""docs/extend.md followed to the letter in a copy: new files and rows of a test, and the copy's own tests pass."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text()
ROWS = "tests/commands/settings.yaml"
CHECKED = ["tests/test_docs.py", "tests/test_layers.py", "tests/test_contract.py", "tests/losses/test_soft_margin.py"]
CHECKED += ["tests/commands/test_settings.py"]
OWN = "test_docs or test_layers or soft_margin or quantile"


@pytest.mark.long
def test_the_trainer_of_the_page_prints_what_it_shows(tmp_path):
    page = PAGE.partition("\n## A data source\n")[2]
    *parts, training = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "mine.py").write_text("".join(parts))
    (tmp_path / "train_mine.py").write_text(training)
    shown = re.search(r"It prints\n\n```\n(.*?)```", page, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "train_mine.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    number = r"\d+\.\d+"
    assert re.sub(number, "", done.stdout) == re.sub(number, "", shown)
    found, wanted = ([float(one) for one in re.findall(number, text)] for text in (done.stdout, shown))
    assert found == pytest.approx(wanted, rel=0.05)  # processors add up in another order


@pytest.mark.long
def test_no_file_needs_an_edit(tmp_path):
    for name in ("src", "conf", "tests", "tools", "docs", "experiments"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "golden", "*.png", "*.svg")
        )
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    files = re.findall(r"`((?:src|conf|tests)/[\w/.]+)`[^`]*?:\n\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert len(files) == 7
    for name, text in files:
        assert name == ROWS or not (tmp_path / name).exists()
        with (tmp_path / name).open("a") as handle:
            handle.write(text)
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "-k", OWN, *CHECKED]
    found = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-3000:]
    assert re.search(r"\b\d\d passed", found.stdout)

"""docs/own, the package of docs/extend.md: its commands and its Trainer run, its parts obey every part's contract."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extend.md").read_text()
CHECKED = [
    "tests/test_layers.py",
    "tests/test_contract.py",
    "tests/commands/test_settings.py",
    "docs/own/test_mine.py",
    "-k",
    "test_layers or soft_margin or quantile or loops",
]


def test_the_commands_of_the_page_train_and_measure_with_all_parts(run_here, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "docs" / "own", tmp_path, dirs_exist_ok=True)
    monkeypatch.syspath_prepend(tmp_path)
    lines = PAGE.partition("```\n")[2].partition("```")[0].replace("\\\n", "").splitlines()
    train, evaluate = (line.split()[2:] for line in lines if " vsehub " in line)
    run_here(*train, "trainer.max_epochs=1", "data.images=100")
    assert "train/gap" in (tmp_path / "run" / "metrics.csv").read_text()
    assert "criterion quantile" in run_here(*evaluate)


@pytest.mark.long
def test_the_trainer_of_the_page_prints_what_it_shows(tmp_path):
    shutil.copytree(ROOT / "docs" / "own", tmp_path, dirs_exist_ok=True)
    shown = re.search(r"It prints\n\n```\n(.*?)```", PAGE, re.DOTALL)[1]
    done = subprocess.run([sys.executable, "train_mine.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    number = r"\d+\.\d+"
    assert re.sub(number, "", done.stdout) == re.sub(number, "", shown)
    printed, wanted = ([float(figure) for figure in re.findall(number, text)] for text in (done.stdout, shown))
    assert printed == pytest.approx(wanted, rel=0.05)  # processors add up in another order


@pytest.mark.long
def test_parts_that_are_added_to_the_source_need_no_edit_but_rows(tmp_path):
    for name in ("src", "conf", "tests", "tools", "docs", "experiments"):
        shutil.copytree(
            ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "golden", "*.png", "*.svg")
        )
    for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for group in ("loss", "criterion"):
        shutil.copytree(tmp_path / "docs" / "own" / "conf" / group, tmp_path / "conf" / group, dirs_exist_ok=True)
    with (tmp_path / "tests" / "commands" / "settings.yaml").open("a") as handle:
        handle.write(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *CHECKED],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path / 'docs' / 'own'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\b\d\d passed", done.stdout)

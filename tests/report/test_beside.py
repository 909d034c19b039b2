"""Runs beside the published tables of the papers."""

import re
import statistics

import pandas as pd
import pytest

from experiments.beside import beside
from experiments.published import published_table
from vsehub.checks import InputError


def squeezed(file):
    return re.sub(" +", " ", file.read_text())


def test_published_rows_are_joined_by_loss_and_criterion(tmp_path, write_run):
    for seed in (0, 1):
        write_run("hal", seed, rsums=(300.0 + seed,))
        write_run("infonce", seed)
    files = beside([tmp_path / "runs"], "aaai2020", "2", tmp_path / "beside")
    joined = pd.read_csv(files["published.csv"], dtype={"line": str})
    assert joined.loc[joined["value"] == "published", "line"].tolist() == ["2.3", "2.7", "2.11", "2.23", "2.26"]
    first = joined[joined["line"] == "2.3"].set_index("value")["rsum"]
    assert first[["published", "measured"]].tolist() == pytest.approx([436.1, 300.5])
    assert first["std"] == pytest.approx(statistics.stdev([300.0, 301.0]))
    text = squeezed(files["published.md"])
    assert "published on coco" in text
    assert "points are of different data and cannot be compared" in text
    assert "no row of this table has the measured architecture (gru+image_cnn)" in text
    assert "| difference |" not in text
    assert "2.3 & measured &" in squeezed(files["published.tex"])


def test_unknown_papers_and_tables_are_refused_with_the_choices():
    for paper, table, named in (("aaai2021", "2", "aaai2020"), ("aaai2020", "9", "'1', '2'")):
        with pytest.raises(InputError, match=named):
            published_table(paper, table)

"""Runs beside the published tables of the papers."""

import re
import statistics

import pandas as pd
import pytest

from experiments.beside import beside
from experiments.published import published_table
from vsehub.checks import InputError


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
    assert "difference" not in first, "points of other data cannot be compared"
    for kind in ("md", "tex"):
        assert re.search("2.3 +[|&] measured +[|&]", files[f"published.{kind}"].read_text())


@pytest.mark.parametrize(("paper", "table", "named"), [("aaai2021", "2", "aaai2020"), ("aaai2020", "9", "'1', '2'")])
def test_unknown_papers_and_tables_are_refused_with_the_choices(paper, table, named):
    with pytest.raises(InputError, match=named):
        published_table(paper, table)

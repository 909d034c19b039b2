"""Texts in files."""

import csv
import io

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from vsehub.data.truth import read_truth
from vsehub.io.text import csv_text, escaped, unescaped
from vsehub.report.tables import frame_csv

ODD = st.text(st.sampled_from("'=+-@\t\r\n\"＝\0x1,; "), max_size=6)
TEXTS = st.one_of(ODD, st.text(st.characters(exclude_categories=["Cs"])))


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1))
def test_a_table_comes_back(rows):
    for text in (csv_text(["=id", "n"], rows), frame_csv(pd.DataFrame(rows, columns=["=id", "n"]))):
        lines = csv.reader(io.StringIO(text, newline=""))
        assert [tuple(map(unescaped, row)) for row in lines] == [("=id", "n"), *rows]


def test_no_entry_begins_a_formula_and_numbers_stay_numbers():
    for first in ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", " =", "%", "|"):
        assert escaped(f"{first}cmd|' /C calc'!A0").startswith("'")
    for same in ("a", "7", "-7", "+1e-5", "-0.25 ± 0.5", "'tis", "é", "猫", "p/1.jpg", "/a", '{"k": 1}', "[x]", ""):
        assert escaped(same) == same
    assert csv_text(["n", "x"], [(-1, -0.5), {"x": "-2"}]) == "n,x\n-1,-0.5\n,-2\n"


def test_pairs_of_ids_that_look_like_formulas_are_read_back(tmp_path):
    queries, items = ["=1+1", "'=1+1", "'tis", "-5"], ["@a", "''@a", "+", "\tb"]
    (tmp_path / "truth.csv").write_text(csv_text(("query", "item"), zip(queries, items, strict=True)), newline="")
    query, item = read_truth(tmp_path / "truth.csv", 4, 4, queries, items)
    assert query.tolist() == item.tolist() == [0, 1, 2, 3]

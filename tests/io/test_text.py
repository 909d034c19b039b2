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


@given(TEXTS)
def test_every_text_comes_back(text):
    assert unescaped(escaped(text)) == text


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1))
def test_a_table_comes_back(rows):
    frame = pd.DataFrame(rows, columns=["=id", "n"])
    for text in (csv_text(["=id", "n"], rows), frame_csv(frame)):
        header, *found = csv.reader(io.StringIO(text, newline=""))
        assert [unescaped(name) for name in header] == ["=id", "n"]
        assert [tuple(map(unescaped, row)) for row in found] == rows


def test_no_entry_begins_a_formula_and_numbers_stay_numbers():
    for first in ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", " =", "%", "|"):
        assert escaped(f"{first}cmd|' /C calc'!A0").startswith("'")
    same = ["a", "7", "-7", "+1e-5", "-0.25 ± 0.5", "'tis", "é", "猫", "p/1.jpg", "/a", '{"k": 1}', "[x]", ""]
    assert [escaped(one) for one in same] == same
    assert csv_text(["n", "x"], [(-1, -0.5), {"x": "-2"}]) == "n,x\n-1,-0.5\n,-2\n"
    numbers = pd.DataFrame({"n": [-1, 2], "x": [-0.5, float("nan")], "flag": [True, False], "id": ["-a", None]})
    assert frame_csv(numbers) == "n,x,flag,id\n-1,-0.5,True,'-a\n2,,False,\n"


def test_pairs_of_ids_that_look_like_formulas_are_read_back(tmp_path):
    queries, items = ["=1+1", "'=1+1", "'tis", "-5"], ["@a", "''@a", "+", "\tb"]
    (tmp_path / "truth.csv").write_text(csv_text(("query", "item"), zip(queries, items, strict=True)), newline="")
    query, item = read_truth(tmp_path / "truth.csv", 4, 4, queries, items)
    assert query.tolist() == item.tolist() == [0, 1, 2, 3]

import csv
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data.truth import distinct_ids, read_ids, read_labels, read_truth


@pytest.fixture
def truth(tmp_path):
    """A function that reads the pairs of a csv with these bytes or this text, or of a parquet with these columns."""

    def read(given, queries, items, query_ids=None, item_ids=None):
        path = tmp_path / ("pairs.parquet" if isinstance(given, dict) else "pairs.csv")
        if isinstance(given, dict):
            pq.write_table(pa.table(given), path)
        else:
            path.write_bytes(given if isinstance(given, bytes) else given.encode())
        query, item = read_truth(path, queries, items, query_ids, item_ids)
        assert query.dtype == item.dtype == torch.int64
        return list(zip(query.tolist(), item.tolist(), strict=True))

    return read


def refused(action, *arguments):
    with pytest.raises(InputError) as caught:
        action(*arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "query,item\n2,0\n0,3\n2,1\n",
        "\ufeffquery,item\r\n2,0\r\n0,3\r\n2,1",
        '\nitem,note,query\n\n0,"a, ""b""",2\n3,,0\n\n"1",x,2\n\n',
        {"item": [0, 3, 1], "more": ["a", "b", "c"], "query": pa.array([2, 0, 2], pa.uint8())},
        {"query": ["2", "0", "2"], "item": pa.array(["0", "3", "1"], pa.large_string())},
    ],
)
def test_row_numbers(truth, text):
    assert truth(text, 3, 4) == [(2, 0), (0, 3), (2, 1)]


@pytest.mark.parametrize(
    "given",
    [
        "query,item\nc,7\na,5\nc,é f\n",
        {
            "query": pa.array(["c", "a", "c"]).dictionary_encode(),
            "item": pa.array(["7", "5", "é f"], pa.large_string()),
        },
    ],
)
def test_ids(truth, given):
    """Ids are strings, digits or not; a side without ids is numbered."""
    assert truth(given, 3, 4, ["a", "b", "c"], ["7", "é f", "6", "5"]) == [(2, 0), (0, 3), (2, 1)]


def test_ids_on_one_side(truth):
    assert truth("query,item\nc,0\na,3\n", 3, 4, query_ids=["a", "b", "c"]) == [(2, 0), (0, 3)]
    assert truth({"query": [2, 0], "item": [70, 50]}, 3, 2, item_ids=["50", "70"]) == [(2, 1), (0, 0)]


def test_against_a_dictionary(truth):
    rng = np.random.default_rng(0)
    queries, items = (
        [f"{side}{number}" for number in rng.permutation(count)] for side, count in (("q", 900), ("i", 50))
    )
    pairs = [divmod(int(cell), 50) for cell in rng.permutation(900 * 50)[:20000]]
    text = "item,query\n" + "".join(f"{items[item]},{queries[query]}\n" for query, item in pairs)
    assert truth(text, 900, 50, queries, items) == pairs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; expected a table of pairs with the columns query and item"),
        ("query,item\n", "has no pairs"),
        ("\n\n", "pairs.csv has no column 'query'"),
        ("0,1\n", "pairs.csv has no column 'query'; expected one. Columns there: 0, 1. The first line"),
        ("query|item\n0|1\n", r"Columns there: query\|item. "),
        ("query,item,query\n0,1,2\n", "pairs.csv has 2 columns 'query'; expected one"),
        ("query,item\n0,1\n0,1,2\n", "pairs.csv:3: 3 entries; expected 2"),
        ("query,item\n0,1\n\n0\n", "pairs.csv:4: 1 entries; expected 2"),
        (b"query,item\n0,1\n0,\xe9\n", "pairs.csv:3: byte 0xe9 is not UTF-8"),
        (b"query,it\xe9m\n0,1\n", "pairs.csv:1: byte 0xe9 is not UTF-8"),
        (
            "query,item\n0,1\n\n1,x\n1,2.0\n1,\n",
            "lines 4, 5, 6 give no row number .the first: 'x'.. The items have no ids",
        ),
        ("query,item\n99999999999999999999,1\n", "line 2 gives no row number"),
        (
            "query,item\n0,1\n2,3\n-1,0\n3,4\n",
            "line 4 gives no row number .the first: '-1'.. The queries have no ids",
        ),
        ("query,item\n0,1\n2,3\n3,4\n", "line 4 names rows that the queries do not have .the first: '3'.. .* 0 to 2"),
        ("query,item\n0,1\n2,4\n", "line 3 names rows that the items do not have .the first: '4'.. .* 0 to 3"),
        (
            "item,query\n\n" + "1,0\n" * 2 + "\n" + "2,0\n" + "1,0\n" * 6,
            "lines 4, 7, 8, 9, 10, ... .7 in all. repeat a pair that came before. Keep each pair once",
        ),
        (
            {"query": [0, 1], "items": [0, 1]},
            "no column 'item' .did you mean items.*; expected one. Columns there: query, items",
        ),
        ({"query": [0, 1], "item": [0.0, 1.0]}, "column item holds double. The items have no ids"),
        ({"query": [0, 1, None], "item": [0, 1, 2]}, "row 2, counted from 0, has no query"),
        ({"query": [0, 1, 9, 9], "item": [0, 1, 2, 3]}, "rows 2, 3, counted from 0, name rows that the queries do not"),
        ({"query": [], "item": []}, "has no pairs"),
    ],
)
def test_bad_tables(truth, text, message):
    assert re.search(message, refused(truth, text, 3, 4))


@pytest.mark.parametrize("entry", ["0x1", "0X1", " 1", "1 ", "\t1", "1e3", "1.0", "+1", "-0", "1_0", "\u0661", "0b1"])
def test_only_plain_digits_are_row_numbers(truth, entry):
    for given in (f"query,item\n0,1\n1,{entry}\n", {"query": [0, 1], "item": ["1", entry]}):
        assert re.search(r"(line 3|row 1, counted from 0,) gives no row number", refused(truth, given, 4, 4))
    assert truth("query,item\n0,01\n", 4, 4) == [(0, 1)]


def test_fields_of_any_length(truth):
    """Longer than the csv module's 131,072 characters and Arrow's block of a megabyte; the limit stays as it was."""
    for length in (200_000, 3_000_000):
        text = "query,item,note\n0,1,x\n2,3," + length * "y" + "\n1,{},z\n"
        assert truth(text.format(0), 3, 4) == [(0, 1), (2, 3), (1, 0)]
        assert "line 4 gives no row number" in refused(truth, text.format("x"), 3, 4)
        assert "pairs.csv:4: 4 entries; expected 3" in refused(truth, text.format("0,0"), 3, 4)
        assert "pairs.csv has no column 'item'" in refused(truth, "query," + length * "i" + "\n0,0\n", 3, 4)
    assert csv.field_size_limit() == 131_072


def test_notes_of_several_lines(truth):
    """More text than a block of Arrow's, with line breaks in quotes wherever the blocks meet."""
    text = "query,item,note\n" + "".join(f'{n},{n},"a note\nof {n}\n"\n' for n in range(90_000))
    assert truth(text, 90_000, 90_000)[-1] == (89_999, 89_999)


def test_unknown_ids(truth):
    message = refused(truth, "query,item\na,0\nz,0\n\nA,0\na ,1\n", 2, 2, ["a", "b"])
    assert "lines 3, 5, 6 name ids that the queries do not have (the first: 'z')" in message


def test_bad_ids(truth):
    assert "the ids of the items: 'x' comes twice, as number 0 and 2" in refused(
        truth, "query,item\n0,x\n", 1, 3, None, ["x", "y", "x"]
    )
    assert "queries: 1 ids for 2 rows" in refused(truth, "query,item\n0,0\n", 2, 3, ["x"])
    assert "(3 repeats in all)" in refused(distinct_ids, "ids", ["b", "a", "a", "a", "b"])


def test_files_that_are_no_tables(tmp_path):
    assert "truth: no such file or folder: " in refused(read_truth, tmp_path / "absent.csv", 1, 1)
    assert "is not a .csv or .parquet file" in refused(read_truth, tmp_path, 1, 1)
    for name in ("pairs.txt", "pairs.parquet"):
        (tmp_path / name).write_text("query,item\n0,0\n")
    assert "is not a .csv or .parquet file" in refused(read_truth, tmp_path / "pairs.txt", 1, 1)
    assert "cannot be read as .parquet" in refused(read_truth, tmp_path / "pairs.parquet", 1, 1)
    pq.write_table(pa.table({"query": [0], "item": [0], "remark": ["a"]}), tmp_path / "pairs.parquet")
    content = (tmp_path / "pairs.parquet").read_bytes()
    (tmp_path / "pairs.parquet").write_bytes(content.replace(b"remark", b"\xffemark"))
    assert "cannot be read as .parquet" in refused(read_truth, tmp_path / "pairs.parquet", 1, 1)


def test_lines_of_ids_and_labels(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffa b\r\né\n".encode())
    assert read_ids(path) == read_labels(path) == ["a b", "é"]
    path.write_text("one\ntwo\none\n")
    assert read_labels(path) == ["one", "two", "one"]
    assert "lines.txt: 'one' comes twice, as number 0 and 2, counted from 0 (1 repeats" in refused(read_ids, path)
    path.write_text("one\n\ntwo\n")
    assert "lines.txt:2: the line is empty" in refused(read_ids, path)
    assert "query_ids: no such file or folder" in refused(read_ids, tmp_path / "absent", "query_ids")

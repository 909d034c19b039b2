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
    "given",
    ["caption,image\nc,7\na,5\n", {"0": ["c", "a"], "1": [7, 5]}],
)
def test_two_columns_of_any_names(truth, given):
    assert truth(given, 3, 3, ["a", "b", "c"], ["7", "6", "5"]) == [(2, 0), (0, 2)]


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_other_kinds_of_tables(tmp_path, suffix):
    text = {".tsv": "item\tquery\n0\t2\n", ".jsonl": '{"query": 2, "item": 0}'}[suffix]
    (tmp_path / f"pairs{suffix}").write_text(text)
    assert [side.tolist() for side in read_truth(tmp_path / f"pairs{suffix}", 3, 4)] == [[2], [0]]


BAD = [
    "",
    "query,item\n",
    "\n\n",
    "0,1\n1,2\n",
    "0,1,2\n0,1,2\n",
    "query,item,query\n0,1,2\n",
    "query,other,item\n0,1\n",
    "query,item\n0,1\n0,1,2\n",
    b"query,item\n0,1\n0,\xe9\n",
    'query,item\n0,1\n1,"2\n2,3\n',
    "query,item\n0,1\n0,99999999999999999999\n",
    "query,item\n0,1\n3,0\n",
    "query,item\n0,1\n0,4\n",
    "query,item\n0,1\n0,1\n",
    *(f"query,item\n0,1\n1,{entry}\n" for entry in ("", "x", "-1", "0x1", " 1", "1e0", "1.0", "+1", "1_0", "\u0661")),
    {"query": [0, 1], "item": [0.0, 1.0]},
    {"query": [0, 1, None], "item": [0, 1, 2]},
    {"query": [0, 3], "item": [0, 1]},
    {"query": [], "item": []},
]


@pytest.mark.parametrize("given", BAD, ids=lambda given: str(given)[-14:])
def test_bad_tables(truth, given):
    assert "pairs." in refused(truth, given, 3, 4)


def test_a_pair_in_place_of_names_is_not_lost(truth):
    """A table without a header: its first pair is no header."""
    assert "pairs.csv" in refused(truth, "a,x\nb,y\n", 2, 2, ["a", "b"], ["x", "y"])


def test_unknown_ids(truth):
    assert "1, 2, 3" in refused(truth, "query,item\na,0\nz,0\nA,0\na ,1\n", 2, 2, ["a", "b"])


def test_bad_ids(truth):
    assert "items: " in refused(truth, "query,item\n0,x\n", 1, 3, None, ["x", "y", "x"])
    assert "'a'" in refused(distinct_ids, "ids", ["b", "a", "a", "a"])


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "pairs.txt").write_text("query,item\n0,0\n")
    (tmp_path / "pairs.parquet").write_text("query,item\n0,0\n")
    for name in ("absent.csv", "pairs.txt", "pairs.parquet", "."):
        assert str(tmp_path / name) in refused(read_truth, tmp_path / name, 1, 1)


def test_lines_of_ids_and_labels(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffa b\r\né\n".encode())
    assert read_ids(path) == read_labels(path) == ["a b", "é"]
    path.write_text("one\ntwo\none\n")
    assert read_labels(path) == ["one", "two", "one"]
    assert "lines.txt" in refused(read_ids, path)
    path.write_text("one\n\ntwo\n")
    assert "lines.txt:2" in refused(read_ids, path)
    assert "query_ids" in refused(read_ids, tmp_path / "absent", "query_ids")

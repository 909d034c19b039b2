"""Which items answer which queries: every layout of a table gives the same pairs, and no pair is lost silently."""

import logging
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vsehub.checks import InputError
from vsehub.data.truth import read_ids, read_labels, read_pairs, read_truth

QUERIES, ITEMS = ["a", "b", "c"], ["7", "é f", "6", "5"]
NUMBERED, NAMED = (None, None), (QUERIES, ITEMS)


@pytest.fixture
def truth(tmp_path):
    """A function that reads the pairs of a file with this name and content: bytes, text, or columns of a parquet."""

    def read(name, content, query_ids=None, item_ids=None, queries=3, items=4):
        path = tmp_path / name
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        else:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        query, item = (side.tolist() for side in read_truth(path, queries, items, query_ids, item_ids))
        return list(zip(query, item, strict=True))

    return read


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("t.csv", "query,item\n2,0\n0,3\n2,1\n", NUMBERED),
        ("t.csv", '\ufeffitem;note;query\r\n\r\n0;"a; ""b""";2\r\n3;;0\r\n"1";x;2', NUMBERED),
        ("t.tsv", "text\timage\n2\t0\n0\t3\n2\t1\n", NUMBERED),
        ("t.jsonl", '{"query": 2, "item": 0}\n\n{"item": 3, "query": 0}\n{"query": "2", "item": 1}', NUMBERED),
        ("t.parquet", {"item": [0, 3, 1], "more": ["", "", ""], "query": pa.array([2, 0, 2], pa.uint8())}, NUMBERED),
        ("t.csv", "query,item\nc,7\na,5\nc,é f\n", NAMED),
        ("t.csv", "query,item\nc,0\na,3\nc,1\n", (QUERIES, None)),
        ("t.csv", "caption,image\nc,7\na,5\nc,é f\n", NAMED),
        ("t.parquet", {"0": pa.array(["c", "a", "c"]).dictionary_encode(), "1": ["7", "5", "é f"]}, NAMED),
        ("t.parquet", {"query": [2, 0, 2], "item": [7, 5, 6]}, (None, ["7", "6", "4", "5"])),
        ("t.tsv", "query-id\tcorpus-id\tscore\nc\t7\t1\nb\t7\t0\na\t5\t2\nb\t5\t-1\nc\té f\t1\n", NAMED),
        ("t.parquet", {"query-id": [2, 0, 1, 2], "corpus-id": [0, 3, 3, 1], "score": [1, 1, 0, 1]}, NUMBERED),
    ],
)
def test_layouts(truth, caplog, name, content, ids):
    with caplog.at_level(logging.INFO):
        assert truth(name, content, *ids) == [(2, 0), (0, 3), (2, 1)]
    assert ("more" in caplog.text or "note" in caplog.text) == ("more" in content or "note" in content)


def test_against_a_dictionary(truth):
    rng = np.random.default_rng(0)
    queries, items = (
        [f"{side}{number}" for number in rng.permutation(count)] for side, count in (("q", 900), ("i", 50))
    )
    pairs = [divmod(int(cell), 50) for cell in rng.permutation(900 * 50)[:20000]]
    text = "item,query\n" + "".join(f"{items[item]},{queries[query]}\n" for query, item in pairs)
    assert truth("t.csv", text, queries, items, 900, 50) == pairs


def test_aligned():
    query, item = read_truth("aligned", 3, 3, QUERIES, ITEMS[:3])
    assert query.tolist() == item.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="truth"):
        read_truth("aligned", 3, 4)


def test_unknown_ids_are_skipped_and_counted(truth, caplog):
    assert truth("t.csv", "query,item\nz,7\na,5\nA,7\na ,7\nb,x\n", *NAMED) == [(0, 3)]
    assert "4 of 5" in caplog.text
    with pytest.raises(InputError, match=r"t\.csv"):
        truth("t.csv", "query,item\nz,7\n", *NAMED)


BAD = {
    "empty.csv": "",
    "empty.txt": "",
    "no pairs.csv": "query,item\n",
    "no pairs.parquet": {"query": [], "item": []},
    "no header.csv": "0,1\n1,2\n",
    "three columns.csv": "0,1,2\n0,1,2\n",
    "one name twice.csv": "query,item,query\n0,1,2\n",
    "one column.csv": "query,other,item\n0,1\n",
    "no header, equal.csv": "0,0\n1,1\n",
    "three names.csv": "caption,image,other\na,7,7\nb,6,5\n",
    "other order.csv": "image,caption\n7,a\n6,b\n",
    "longer.csv": "query,item\n0,1\n0,1,2\n",
    "no utf-8.csv": b"query,item\n0,1\n0,\xe9\n",
    "open quote.csv": 'query,item\n0,1\n1,"2\n2,3\n',
    "too large.csv": "query,item\n0,1\n0,99999999999999999999\n",
    "query.csv": "query,item\n0,1\n3,0\n",
    "item.csv": "query,item\n0,1\n0,4\n",
    "twice.csv": "query,item\n0,1\n0,1\n",
    **{f"{entry}.csv": f"query,item\n0,1\n1,{entry}\n" for entry in ("", "x", "-1", "1e0", "1.0", "+1", "\u0661")},
    "floats.parquet": {"query": [0, 1], "item": [0.0, 1.0]},
    "null.parquet": {"query": [0, 1, None], "item": [0, 1, 2]},
    "score.tsv": "query-id\tcorpus-id\tscore\n0\t1\tx\n",
    "names.csv": "a,7\nb,6\n",  # a table without a header: its first pair is no header
    "no table.txt": "query,item\n0,0\n",
    "no parquet.parquet": "query,item\n0,0\n",
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables(truth, name):
    with pytest.raises(InputError, match=re.escape(name)):
        truth(name, BAD[name], *(NAMED if name in ("names.csv", "three names.csv", "other order.csv") else ()))


def test_ids(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_bytes("\ufeffa b\r\né\n".encode())
    assert read_ids(path) == read_labels(path) == ["a b", "é"]
    path.write_text("one\ntwo\none\n")
    assert read_labels(path) == ["one", "two", "one"]
    for refused, named in (
        (lambda: read_ids(path), "lines.txt"),
        (lambda: read_ids(tmp_path / "absent", "query_ids"), "query_ids"),
        (lambda: read_truth(path, 3, 3, ["x", "y", "x"]), "queries"),
    ):
        with pytest.raises(InputError, match=named):
            refused()


def test_qrels_of_trec(tmp_path):
    for name in ("qrels.txt", "test.qrels"):
        (tmp_path / name).write_text("q1 0 b 1\nq0 0 a 2\nq0 0 b 0\n")
        assert [side.tolist() for side in read_pairs(tmp_path / name, 2, 2, ["q0", "q1"], ["a", "b"])] == [
            [1, 0],
            [1, 0],
        ]
    (tmp_path / "qrels.txt").write_text("q1 0 b\n")
    with pytest.raises(InputError, match=r"qrels\.txt"):
        read_pairs(tmp_path / "qrels.txt", 2, 2, ["q0", "q1"], ["a", "b"])

"""Vectors in csv and tsv."""

import io
import re
import time

import numpy as np
import pandas as pd
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.vectors import delimited

IDS = [f"név {row}" for row in range(500)]


def matrix():
    return np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 1000)


def written(frame, **settings):
    out = io.StringIO()
    frame.to_csv(out, index=False, **settings)
    return out.getvalue()


def test_tables(tmp_path):
    frame = pd.DataFrame(matrix())
    named = frame.rename(columns="d{}".format)
    with_ids = named.copy()
    with_ids.insert(2, "id", IDS)
    numbered = frame.copy()
    numbered["id"] = IDS
    for text, ids in (
        (written(frame, header=False), None),
        (written(frame), None),  # the header 0,1,2 that pandas writes
        (written(named), None),
        ("\ufeff" + written(named), None),
        (written(named).replace("\n", "\r\n"), None),
        (written(named).replace("\n", "\n\n"), None),
        ("\n" + written(frame, header=False).rstrip(), None),
        (written(with_ids), IDS),
        (written(numbered), IDS),
        (written(with_ids, quoting=1), IDS),
    ):
        for suffix, delimiter in ((".csv", ","), (".TSV", "\t")):
            (tmp_path / f"v{suffix}").write_bytes(text.replace(",", delimiter).encode())
            given = open_vectors(tmp_path / f"v{suffix}")
            assert given.dtype == torch.float32
            assert given.ids == ids
            assert torch.equal(given.rows(0, 500), torch.from_numpy(matrix())), text[:40]


def test_words_for_numbers_reach_the_check_of_rows(tmp_path):
    (tmp_path / "v.csv").write_text("a,b\nnan,1\n1e400,2\n -1 , +2e0 \n")
    given = open_vectors(tmp_path / "v.csv").rows(0, 3)
    assert given[0].isnan().tolist() == [True, False]
    assert given[1].tolist() == [float("inf"), 2]


def test_semicolons_and_tabs(tmp_path):
    for separator in ";\t":
        (tmp_path / "v.csv").write_text("id,a,b\nx,0.5,1\ny,2,3\n".replace(",", separator))
        found = open_vectors(tmp_path / "v.csv")
        assert (found.ids, found.rows(0, 2).tolist()) == (["x", "y"], [[0.5, 1.0], [2.0, 3.0]])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2\n3\n", ":2: 1 entries; expected 2, as the first line has"),
        ("1,2\n" * 900 + "3,4,5\n", ":901: 3 entries; expected 2"),
        ("a,b\n1,2\n\n3,dog\n", ":4: 'dog' in column 'b' is not a number"),
        ("1,2\n3,\n", ":2: '' in place 2 is not a number"),
        ("1,2\n3,NA\n", ":2: 'NA' in place 2"),
        ("1,2\n" * 900 + "3,0x1\n", ":901: '0x1' in place 2"),
        ("id,0\nq,1\nr\n", ":3: 1 entries"),
        ("a,b\n1;2\n", ":2: 1 entries; expected 2"),
        ("1;2\n3;x\n", ":2: 'x' in place 2"),
        ("caption,a\ndog,1\n", ":2: 'dog' in column 'caption' is not a number"),
        ("dog,1,2\ncat,2,3\n", ":1: 'dog' among numbers; expected a header without numbers"),
        (",0,1\n0,1,2\n", ":1: a column has no name. So pandas writes its index"),
        ("a,a\n1,2\n", ":1: the header names a twice"),
        ("id\nq\n", ":1: the header has no column but id"),
        ("id,a\nq,1\nq,2\n", "'q' comes twice, as number 0 and 1"),
        ("a,b\n", " has no rows; expected one vector per line"),
        ("\n\n", " has no rows; expected one vector per line"),
        ("", " is empty .0 bytes."),
        ("a,b\n" + "1,2\n" * 9000 + "1,\udcff\n", ":9002: byte 0xff is not UTF-8"),
        ("\udcff,b\n1,2\n", ":1: byte 0xff is not UTF-8"),
    ],
)
def test_bad_tables(tmp_path, text, said):
    (tmp_path / "v.csv").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError) as caught:
        open_vectors(tmp_path / "v.csv")
    assert re.search(rf"v.csv{said}|{said}", str(caught.value)), caught.value


def test_a_wide_header_takes_linear_time(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "_BLOCK_BYTES", 8 << 20)  # a line lies in one block
    names = [f"c{number}" for number in range(40_000)]
    (tmp_path / "v.csv").write_text("\n".join([",".join(names), ",".join("1" * len(names))]))
    began = time.process_time()
    assert open_vectors(tmp_path / "v.csv").shape == (1, len(names))
    assert time.process_time() - began < 10


def test_no_arrays_in_tables(tmp_path):
    (tmp_path / "v.csv").write_text("1,2\n")
    with pytest.raises(InputError, match=r"v.csv is one table without a name; remove '::a'"):
        open_vectors(f"{tmp_path}/v.csv::a")

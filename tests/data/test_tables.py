"""Tables of each kind give the same entries, and bad ones are named by their lines."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vsehub.checks import InputError
from vsehub.data.tables import TableFile

ROWS = [("a.png", 'a "big" dog, asleep'), ("b.png", "two\nlines"), ("c.png", ""), ("ü.png", "tab\tand 'quote")]


def written(folder, kind):
    path = folder / f"table{kind}"
    if kind == ".parquet":
        pq.write_table(
            pa.table({"other": [1] * 4, "image": [r[0] for r in ROWS], "caption": [r[1] for r in ROWS]}), path
        )
    elif kind == ".jsonl":
        path.write_text("\n\n".join(json.dumps({"caption": caption, "image": image}) for image, caption in ROWS))
    else:
        cell = '"{}"'.format
        separator = "," if kind == ".csv" else "\t"
        lines = [separator.join(cell(entry.replace('"', '""')) for entry in (*row, "x")) for row in ROWS]
        path.write_text("\ufeff" + separator.join(("image", "caption", "other")) + "\r\n" + "\n\n".join(lines) + "\n")
    return path


def test_every_kind_gives_the_same_entries(tmp_path):
    for kind in (".csv", ".tsv", ".jsonl", ".parquet"):
        table = TableFile(written(tmp_path, kind), "a table")
        found = table.entries(["caption", "image"])
        assert list(zip(found["image"], found["caption"], strict=True)) == ROWS, kind
        assert {"image", "caption"} <= set(table.names()), kind


def test_rows_are_named_by_their_lines(tmp_path):
    """An entry of two lines and empty lines between count as lines, not as rows."""
    bad = np.array([False, False, True, True])
    for kind, words in (
        (".csv", "lines 7, 9"),
        (".tsv", "lines 7, 9"),
        (".jsonl", "lines 5, 7"),
        (".parquet", "rows 2, 3, counted from 0,"),
    ):
        table = TableFile(written(tmp_path, kind), "a table")
        assert table.named(bad) == words, kind
        with pytest.raises(InputError, match=rf"table\{kind}: {words} are odd \(the first: 'c.png'\). Look"):
            table.refuse(bad, "are odd", "Look", table.entries(["image"])["image"])


def refused(path, *columns):
    with pytest.raises(InputError) as caught:
        read(path, columns)
    return str(caught.value)


def read(path, columns):
    table = TableFile(path, "a table of pictures")
    table.require_columns(columns, "Name them")
    return table.entries(columns)


def test_semicolons_and_tabs_in_a_csv(tmp_path):
    """As programs write them where the comma separates decimals; not where there is a comma in the header."""
    (tmp_path / "a.csv").write_text('image;caption\na.jpg;"one, or; two"\n')
    assert read(tmp_path / "a.csv", ["image", "caption"]) == {"image": ["a.jpg"], "caption": ["one, or; two"]}
    found = TableFile(tmp_path / "a.csv", "a table").columns(["caption"])
    assert found["caption"].to_pylist() == ["one, or; two"]
    (tmp_path / "a.csv").write_text("image\tcaption\na.jpg\tone, or two\n")
    assert read(tmp_path / "a.csv", ["image"]) == {"image": ["a.jpg"]}
    (tmp_path / "a.csv").write_text("image,the;caption\na.jpg,b\n")
    assert TableFile(tmp_path / "a.csv", "a table").names() == ["image", "the;caption"]


def test_a_column_that_is_not_there(tmp_path):
    for kind in (".csv", ".tsv", ".jsonl", ".parquet"):
        message = refused(written(tmp_path, kind), "image", "captoin")
        assert "has no column 'captoin' (did you mean caption?); expected one. Columns there: " in message, kind
        assert message.endswith("Name them")


def test_a_parquet_whose_texts_are_not_utf_8(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"image": ["a"], "caption": ["words"]}), path, use_dictionary=False, compression="none")
    path.write_bytes(path.read_bytes().replace(b"words", b"w\xffrds"))
    assert "a.parquet cannot be read as .parquet" in refused(path, "image", "caption")


def test_bad_files(tmp_path):
    for name, content, message in (
        ("a.csv", "", "is empty; expected a table of pictures"),
        ("a.xlsx", "x", "is not a .csv, .tsv, .jsonl or .parquet file"),
        ("a.csv", "image,caption\na,b\nc,d,e\n", "a.csv:3: 3 entries; expected 2, as the first line has. Put entries"),
        # an open quote, which a lenient reader takes for one entry with all that follows
        ("a.csv", 'image,caption\na,"b\nc,d\n', "a.csv:3: unexpected end of data"),
        ("b.tsv", 'image\tcaption\na\t"he\nc\td\ne\t"she said\n', "b.tsv:4: '\t' expected after '\"'"),
        ("a.csv", b"image,caption\na,\xe9\n", "a.csv:2: byte 0xe9 is not UTF-8"),
        ("a.csv", "image,caption,image\na,b,c\n", "has 2 columns 'image'"),
        ("a.jsonl", '{"image": "a", "caption": "b"}\n{"image"\n', "a.jsonl:2: no JSON"),
        ("a.jsonl", '{"image": "a", "caption": "b"}\n[1]\n', r"a.jsonl:2: '[1]' is no object"),
        ("a.parquet", "PAR1 no", "cannot be read as .parquet"),
    ):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        assert message in refused(tmp_path / name, "image", "caption"), (name, content)

"""Tables of each kind give the same entries; damaged ones are refused with their names."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vsehub.checks import InputError
from vsehub.data.tables import read_table

IMAGES, CAPTIONS = ["a.png", "ü.png", "c.png"], ['a "big", wet dog', "two\nlines\t'", ""]
TABLES = {
    "a.csv": '\ufeffimage,caption,other\r\n\na.png,"a ""big"", wet dog",x\nü.png,"two\nlines\t\'",x\nc.png,"",x',
    "a.tsv": 'other\tcaption\timage\nx\t"a ""big"", wet dog"\ta.png\nx\t"two\nlines\t\'"\tü.png\nx\t""\tc.png\n',
    "a.jsonl": "\n\n".join(json.dumps({"caption": c, "image": i}) for i, c in zip(IMAGES, CAPTIONS, strict=True)),
}


@pytest.mark.parametrize("name", [*TABLES, "a.parquet"])
def test_every_kind_gives_the_same_entries(tmp_path, name):
    path = tmp_path / name
    if name in TABLES:
        path.write_bytes(TABLES[name].encode())
    else:
        pq.write_table(pa.table({"other": [1] * 3, "image": IMAGES, "caption": CAPTIONS}), path)
    assert read_table(path, lambda names: ["caption", "image"]) == {"caption": CAPTIONS, "image": IMAGES}
    assert {"image", "caption"} <= set(read_table(path))
    with pytest.raises(InputError, match=rf"{name}.*captoin.*caption"):
        read_table(path, lambda names: ["image", "captoin"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('image;caption\na.jpg;"one, or; two"\n', {"image": ["a.jpg"], "caption": ["one, or; two"]}),
        ("image\tcaption\na.jpg\tone, or two\n", {"image": ["a.jpg"], "caption": ["one, or two"]}),
        ("image,the;caption\na.jpg,b\n", {"image": ["a.jpg"], "the;caption": ["b"]}),
    ],
)
def test_separators(tmp_path, text, expected):
    """Semicolons and tabs separate where there is no comma in the header, as programs with a decimal comma write."""
    (tmp_path / "a.csv").write_text(text)
    assert read_table(tmp_path / "a.csv") == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", ""),
        ("a.xlsx", "x"),
        ("a.csv", "image,caption\na,b\nc,d,e\n"),
        ("a.csv", "image,caption\na\n"),
        # an open quote, which a lenient reader takes for one entry with all that follows
        ("a.csv", 'image,caption\na,"b\nc,d\n'),
        ("a.tsv", 'image\tcaption\na\t"he\nc\td\ne\t"she said\n'),
        ("a.csv", b"image,caption\na,\xe9\n"),
        ("a.csv", "image,caption,image\na,b,c\n"),
        ("a.jsonl", '{"image": "a", "caption": "b"}\n{"image"\n'),
        ("a.jsonl", '{"image": "a", "caption": "b"}\n[1]\n'),
        ("a.jsonl", "[" * 100_000),
        ("a.parquet", "PAR1 no"),
    ],
)
def test_bad_files(tmp_path, name, content):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=name):
        read_table(tmp_path / name, lambda names: ["image", "caption"])


def test_what_is_wrong_with_a_caption(tmp_path):
    for content, said in (
        (b"image,caption\na,b\nc,d,e\n", "row 2 has 3"),
        ("image,caption\na,é\n".encode("latin-1"), "as UTF-8"),
    ):
        (tmp_path / "a.csv").write_bytes(content)
        with pytest.raises(InputError, match=rf"a\.csv.*{said}"):
            read_table(tmp_path / "a.csv")

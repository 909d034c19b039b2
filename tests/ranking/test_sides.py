"""Reference sets that hold the queries, and what rows are called."""

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.io.arrays import row_hashes
from vsehub.ranking.inputs import Names, Sides, read_images, rows_not_in


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("block", [1, 1 << 24], ids=["a row at a time", "whole"])
def test_rows_that_equal_no_query(dtype, block, monkeypatch):
    """Against a set of the queries' bytes: copies go too, a row with another last bit stays."""
    monkeypatch.setattr("vsehub.neighbors.vectors._HASHED_BYTES", block)
    generator = np.random.default_rng(0)
    queries = generator.normal(size=(60, 4)).round(1).astype(dtype)
    reference = generator.normal(size=(40, 4)).astype(dtype)
    reference[:20] = queries[5:25][::-1]
    reference[30:33] = queries[7]
    reference[7, 3] = np.nextafter(reference[7, 3], np.array(np.inf, dtype))
    known = {row.tobytes() for row in queries}
    expected = [row for row, vector in enumerate(reference) if vector.tobytes() not in known]
    assert 7 in expected
    assert len(expected) == 18
    assert rows_not_in(open_vectors(reference), open_vectors(queries)).tolist() == expected


def test_rows_of_signs_are_told_apart():
    """Rows that differ in sign bits only; weighted sums of their bits modulo 2^64 give two of these the same hash."""
    signs = np.random.default_rng(1).integers(0, 2, (200_000, 64)).astype(np.float32) * 2 - 1
    distinct = np.unique(np.packbits(signs > 0, axis=1).view(np.uint64))
    assert len(np.unique(row_hashes(signs))) == len(distinct) == 200_000


def test_no_query_is_in_its_reference():
    """Half of the reference are queries; blocks of rows and of columns are those of the other half."""
    queries, reference = np.random.default_rng(0).normal(size=(2, 30, 4)).astype(np.float32)
    reference[::2] = queries[:15]
    sides = Sides.from_arrays(queries, queries, reference)
    assert (len(sides.reference), sides.left_out) == (15, 15)
    for start, stop in ((0, 15), (3, 7), (15, 15)):
        assert np.array_equal(sides.reference.rows(start, stop), reference[1::2][start:stop])
    with pytest.raises(InputError, match="reference"):
        Sides.from_arrays(queries, queries, queries[:9])


def test_names_and_images(tmp_path):
    """No id and no line of a list leads to a file outside the folder; links in it are followed."""
    (tmp_path / "photos").mkdir()
    for name in ("a.PNG", "b", "b.jpg", "3.webp", "../secret.jpg"):
        (tmp_path / "photos" / name).touch()
    (tmp_path / "photos" / "link").symlink_to(tmp_path)
    photos = read_images(tmp_path / "photos")
    ids = ["a", "b", "c", "../secret", "x/../../secret.jpg", str(tmp_path / "secret.jpg"), "link/secret"]
    items = Names("items", 7, ids, [*"1234567"], photos)
    assert items.of(1) == {"id": "b", "label": "2"}
    files = [str(photos / "a.PNG"), str(photos / "b"), *[None] * 4, str(photos / "link" / "secret.jpg")]
    assert [items.image(row) for row in range(7)] == files
    numbered = Names("items", 4, images=photos)
    assert (numbered.of(3), numbered.image(3)) == ({"id": None, "label": None}, str(photos / "3.webp"))
    (tmp_path / "list.txt").write_text("photos/b\n/elsewhere/x.jpg\n")
    listed = Names("items", 2, images=read_images(tmp_path / "list.txt"))
    assert [listed.image(row) for row in range(2)] == [str(photos / "b"), "/elsewhere/x.jpg"]
    assert Names("items", 2).image(0) is None
    for line in ("../secret.jpg", "photos/../../secret.jpg"):
        (tmp_path / "list.txt").write_text(f"photos/a..b.jpg\n{line}\n")
        with pytest.raises(InputError, match=f"item_images: .*{line}"):
            read_images(tmp_path / "list.txt", "item_images")
    for names in ({"labels": ["one"]}, {"ids": ["a", "b", "c"]}, {"images": ["a.jpg"]}):
        with pytest.raises(InputError, match=f"2 rows.* {len(*names.values())} {next(iter(names))}"):
            Names("items", 2, **names)

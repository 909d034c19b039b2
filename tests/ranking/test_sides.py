"""Reference sets that hold the queries, what rows are called, and where results may be written."""

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.io.arrays import row_hashes
from vsehub.ranking.inputs import Names, read_images, refuse_shared, shared_rows


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("block", [1, 1 << 24], ids=["a row at a time", "whole"])
def test_shared_rows_are_counted(dtype, block, monkeypatch):
    """Against a set of the rows' bytes: queries that come twice count twice, a changed last bit counts as another."""
    monkeypatch.setattr("vsehub.neighbors.vectors._HASHED_BYTES", block)
    generator = np.random.default_rng(0)
    queries = generator.normal(size=(60, 4)).round(1).astype(dtype)
    queries[50:] = queries[:10]
    reference = generator.normal(size=(40, 4)).astype(dtype)
    reference[:20] = queries[5:25][::-1]
    reference[7, 3] = np.nextafter(reference[7, 3], np.array(np.inf, dtype))
    wanted = {row.tobytes() for row in reference}
    expected = sum(row.tobytes() in wanted for row in queries)
    assert 19 < expected < 30
    assert shared_rows(open_vectors(queries), open_vectors(reference)) == expected


def test_rows_of_signs_are_told_apart():
    """Rows that differ in sign bits only; weighted sums of their bits modulo 2^64 give two of these the same hash."""
    signs = np.random.default_rng(1).integers(0, 2, (200_000, 64)).astype(np.float32) * 2 - 1
    assert len(np.unique(row_hashes(signs))) == len(np.unique(signs, axis=0)) == 200_000


def test_a_reference_of_the_queries_is_refused(caplog):
    generator = np.random.default_rng(0)
    queries, reference = generator.normal(size=(2, 300, 4))
    asked = open_vectors(queries)
    assert refuse_shared(asked, open_vectors(reference)) == 0
    assert not caplog.records
    reference[:3] = queries[100:103]
    assert refuse_shared(asked, open_vectors(reference)) == 3
    assert "3 of 300 queries (1.0%) are in" in caplog.text
    reference[3] = queries[0]
    with pytest.raises(InputError, match=r"4 of 300 queries \(1.3%\) .* more than 1%: .* leave reference out"):
        refuse_shared(asked, open_vectors(reference))


def test_names(tmp_path):
    (tmp_path / "photos").mkdir()
    for name in ("a.PNG", "b", "b.jpg"):
        (tmp_path / "photos" / name).touch()
    photos = read_images(tmp_path / "photos")
    items = Names("items", 3, ["a", "b", "c"], ["one", "two", "three"], photos)
    assert items.of(1) == {"id": "b", "label": "two"}
    files = [items.image(row) for row in range(3)]
    assert files == [str(photos / "a.PNG"), str(photos / "b"), None]
    (tmp_path / "list.txt").write_text("photos/b\n/elsewhere/x.jpg\n")
    listed = Names("items", 2, images=read_images(tmp_path / "list.txt"))
    assert [listed.image(row) for row in range(2)] == [str(photos / "b"), "/elsewhere/x.jpg"]
    assert listed.of(0) == {"id": None, "label": None}
    assert Names("items", 2).image(0) is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": ["one"]}, "items has 2 rows, but there are 1 labels"),
        ({"ids": ["a", "b", "c"]}, "items has 2 rows, but there are 3 ids"),
        ({"images": ["a.jpg"]}, "but there are 1 images"),
    ],
)
def test_names_of_another_number(given, message):
    with pytest.raises(InputError, match=message):
        Names("items", 2, **given)


def test_images_of_a_folder_that_is_not_theirs(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "b.jpg").touch()
    (tmp_path / "secret.jpg").touch()
    photos = read_images(tmp_path / "photos")
    with pytest.raises(InputError, match=r"first 2 ids of items.*'c'"):
        Names("items", 2, ["c", "d"], images=photos)
    with pytest.raises(InputError, match=r"an image of none of the first 100 ids of items"):
        Names("items", 101, [*(f"a{n}" for n in range(100)), "b"], images=photos)
    assert Names("items", 100, [*(f"a{n}" for n in range(99)), "b"], images=photos).image(99) == str(photos / "b.jpg")
    for outside in ("../secret", "x/../../secret.jpg", str(tmp_path / "secret.jpg")):
        with pytest.raises(InputError, match=rf"1 ids lead outside it, the first '{outside}' \(row 1\)"):
            Names("items", 2, ["b", outside], images=photos)
    (photos / "link").symlink_to(tmp_path)
    assert Names("items", 1, ["link/secret"], images=photos).image(0) == str(photos / "link" / "secret.jpg")


def test_lists_stay_in_their_folder(tmp_path):
    for line in ("../secret.jpg", "photos/../../secret.jpg"):
        (tmp_path / "list.txt").write_text(f"photos/a..b.jpg\n{line}\n")
        with pytest.raises(InputError, match=rf"item_images: .*list.txt:2: '{line}' leads outside the folder"):
            read_images(tmp_path / "list.txt", "item_images")


def test_images_without_ids(tmp_path):
    with pytest.raises(InputError, match="are found by ids, which items does not have"):
        Names("items", 2, images=read_images(tmp_path))
    with pytest.raises(InputError, match="no such file or folder"):
        read_images(tmp_path / "absent")

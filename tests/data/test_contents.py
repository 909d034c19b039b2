"""What two splits have in common: against sets of rows, on files, and what is said of it."""

import os

import numpy as np
from looped import looped

from vsehub.data import CaptionedImages, pairs_by_caption, sources
from vsehub.data.contents import row_keys, shared_mask, warn_of_shared
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import content_digest


def split(images, captions):
    return CaptionedImages(images, captions, pairs_by_caption(np.arange(len(captions)) % len(images)))


def shared(a, b):
    """The numbers of images and captions of `b` that are also in `a`."""
    return tuple(
        int(shared_mask(*map(row_keys, rows)).sum()) for rows in ((a.images, b.images), (a.captions, b.captions))
    )


def texts(*numbers):
    return [f"caption {number}" for number in numbers]


@looped(("shape", "dtype"), [((6,), "float32"), ((3, 2), "float16"), ((3, 4, 4), "uint8")])
@looped("block", [1, 100, 1 << 24])
def test_rows_and_captions_that_are_the_same(monkeypatch, shape, dtype, block):
    """Against a loop; repeated, strided and differing in the last bit alone."""
    monkeypatch.setattr(sources, "_BLOCK_BYTES", block)
    rng = np.random.default_rng(0)
    first = rng.integers(0, 200, (40, *shape)).astype(dtype)
    second = rng.integers(0, 200, (30, *shape)).astype(dtype)
    second[3:9] = first[10:16]
    second[20] = second[21] = first[39]
    second[4].reshape(-1)[-1] += 1
    a, b = split(first.repeat(5, axis=0)[::5], texts(*range(50))), split(second, texts(0, 0, 49, 50, *range(99, 140)))
    known = {row.tobytes() for row in first}
    assert shared(a, b) == (sum(row.tobytes() in known for row in second), 3) == (7, 3)
    assert shared(a, split(second.astype("float64"), texts(0))) == (0, 1)


def test_picture_files():
    """They are compared by the hashes of their check: no file is read."""
    first, other = (Pictures(["a.png", "b.png"], contents=np.array(some, "S32")) for some in (["x", "y"], ["y", "z"]))
    assert shared(split(first, texts(0)), split(other, texts(1))) == (1, 0)
    assert shared(split(first, texts(0)), split(np.zeros((2, 3, 224, 224), np.uint8), texts(1))) == (0, 0)


def test_what_is_said(caplog):
    images = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    splits = {
        "test": split(np.concatenate([images[:2], images[200:250]]), texts(*range(4), *range(1000, 1096))),
        "train": split(images[:100], texts(*range(500))),
        "val": split(np.concatenate([images[100:150], images[200:201]]), texts(*range(36), *range(2000, 2064))),
    }
    warn_of_shared(splits)
    assert [(message.args[:2], message.args[-1]) for message in caplog.records] == [
        ((36, 100), "train"),
        ((2, 52), "test"),
        ((1, 52), "test"),
    ]


def test_a_digest_depends_on_every_number_and_shape(monkeypatch):
    monkeypatch.setattr(sources, "_BLOCK_BYTES", 16)  # two rows of a block
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    changed = [rows + (np.arange(12).reshape(6, 2) == place) for place in range(12)]
    every = [rows, rows.reshape(3, 4), rows.astype(np.float64), *(array.astype(np.float32) for array in changed)]
    assert len({content_digest(array) for array in every}) == len(every)
    assert content_digest(np.asfortranarray(rows)) == content_digest(rows)


def test_a_fingerprint_is_of_all_rows_and_a_mapped_file_is_read_once(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    file, reads = tmp_path / "rows.npy", []
    whole = sources.blocks_of
    monkeypatch.setattr(sources, "blocks_of", lambda rows: reads.append(len(rows)) or whole(rows))

    def digests(numbers):
        np.save(file, numbers)
        mapped = np.load(file, mmap_mode="r")
        reads.clear()
        every = {content_digest(numbers), *(content_digest(mapped) for _ in range(3))}
        assert (len(every), len(reads)) == (1, 2)
        assert content_digest(mapped[100:200]) == content_digest(numbers[100:200])
        assert content_digest(mapped[50:150]) == content_digest(numbers[50:150])
        return every.pop()

    digests(rows)
    before = file.stat()
    shuffled = rows.copy()
    shuffled[1:299] = shuffled[1:299][::-1]
    assert digests(shuffled) != content_digest(rows)
    np.save(file, rows)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert content_digest(np.load(file, mmap_mode="r")) == content_digest(rows)

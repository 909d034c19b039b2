"""Captions that pictures share, splits that are drawn: against loops."""

import numpy as np
import pytest
from photo_files import as_folder, name_of

from vsehub.checks import InputError
from vsehub.components import make
from vsehub.data import PhotoColumns, PictureSettings, SplitDraw
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.source import ListedPhotos, Listing, draw_splits, merge_captions
from vsehub.data.splits import split_named


def test_captions_that_are_shared_against_a_loop():
    rng = np.random.default_rng(0)
    for words in (3, 40, 10**6):  # all shared, some, none
        images = rng.permutation(np.r_[np.arange(30), rng.integers(0, 30, 60)])
        captions = [f"caption {word}" for word in rng.integers(0, words, len(images))]
        texts, index, pairs = merge_captions(images, captions)
        expected = {(caption, image) for caption, image in zip(captions, images.tolist(), strict=True)}
        assert len(set(texts)) == len(texts) == len(set(captions))
        if len(expected) == len(texts):
            assert pairs is None
            assert {(text, image) for text, image in zip(texts, index.tolist(), strict=True)} == expected
            assert (np.diff(index) >= 0).all()
        else:
            assert [(texts[caption], image) for image, caption in pairs.tolist()] == sorted(
                expected, key=lambda pair: (texts.index(pair[0]), pair[1])
            )
            assert index.tolist() == [min(image for one, image in expected if one == text) for text in texts]
    assert pairs is None  # with a million words


def test_splits_that_are_drawn():
    splits = draw_splits(103, SplitDraw(0.1, 0.25, 3), "mine")
    assert {split: int((splits == split).sum()) for split in ("train", "val", "test")} == {
        "train": 67,
        "val": 10,
        "test": 26,
    }
    assert (splits == draw_splits(103, SplitDraw(0.1, 0.25, 3), "mine")).all()
    assert (splits != draw_splits(103, SplitDraw(0.1, 0.25, 4), "mine")).any()
    assert set(draw_splits(5, SplitDraw(0.2, 0.0), "mine")) == {"train", "val"}
    with pytest.raises(InputError, match=r"mine: data.draw.val is 0.1, which is no picture of 4; give a larger share"):
        draw_splits(4, SplitDraw(0.1, 0.5), "mine")
    with pytest.raises(InputError, match="leave none of 2 pictures for train"):
        draw_splits(2, SplitDraw(0.45, 0.45), "mine")
    for given, message in (((0.5, 0.5), "val is 0.5 and test 0.5; expected shares"), ((0.1, 0.1, -1), "seed is -1")):
        with pytest.raises(InputError, match=message):
            SplitDraw(*given)


def test_words_for_splits():
    for word, split in ((" Train", "train"), ("validation", "val"), ("dev", "val"), ("test", "test"), ("rest", None)):
        assert split_named(word) == split
    assert split_named(None) is None


def test_names_of_columns():
    assert PhotoColumns().captions == ["caption"]
    assert PhotoColumns(caption=["a", "b"]).captions == ["a", "b"]
    for given, message in (
        ({"captions": "a"}, r"data.columns: PhotoColumns has no setting 'captions' \(did you mean caption\?\)"),
        ({"image": None}, "data.columns.image is None; expected a text"),
        ({"image": ""}, "data.columns.image is ''; expected the name of a column"),
        ({"caption": []}, r"data.columns.caption is \[\]; expected the name"),
        ({"caption": ["a", 3]}, r"data.columns.caption is \['a', 3\]"),
        ({"caption": ["a", "a"]}, "data.columns.caption names a column twice: a, a"),
    ):
        with pytest.raises(InputError, match=message):
            make("data.columns", PhotoColumns, given)


class Numbered(ListedPhotos):
    """Pictures 0 to n - 1 of a folder, every third one without a split, with two captions each."""

    def __init__(self, folder, count, **settings):
        self.folder, self.count = folder, count
        super().__init__("numbered", **settings)

    def read_listing(self):
        names = [name_of(number) for number in range(self.count)]
        captions = [f"a thing {number // 2}" for number in range(2 * self.count)]
        splits = np.array(["train", "train", "none"] * self.count)[: self.count]
        return Listing(FolderFiles(self.folder, names), np.arange(2 * self.count) // 2, captions, splits)


def test_a_listing_makes_a_source(tmp_path):
    as_folder(tmp_path / "photos", range(5))
    pictures = PictureSettings(size=8, resize=8, cache=str(tmp_path / "cache"))
    found = Numbered(tmp_path / "photos", 5, pictures=pictures).load("train")
    assert (found.names, found.images.shape) == ([name_of(n) for n in (0, 1, 3, 4)], (4, 3, 8, 8))
    assert found.images[:][:, 0, -1, -1].tolist() == [5 * n for n in (0, 1, 3, 4)]
    assert (found.captions, found.image_index.tolist()) == ([f"a thing {n}" for n in (0, 1, 3, 4)], [0, 1, 2, 3])
    (tmp_path / "photos" / name_of(4)).rename(tmp_path / "photos" / "x.png")
    with pytest.raises(InputError, match=r"1 of 4 pictures of the split 'train' are missing in .*photos: 004.png"):
        Numbered(tmp_path / "photos", 6, pictures=pictures).load("train")

"""Captions that pictures share, splits that are drawn: against loops."""

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data.photos.listing import chosen_columns, drawn, joined, split_named


def test_captions_that_are_shared_against_a_loop():
    rng = np.random.default_rng(0)
    for words in (3, 40, 10**6):  # all shared, some, none
        images = rng.permutation(np.r_[np.arange(30), rng.integers(0, 30, 60)])
        captions = [f"caption {word}" for word in rng.integers(0, words, len(images))]
        texts, index, pairs = joined(images, captions)
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
    splits = drawn(103, {"val": 0.1, "test": 0.25}, 3, "mine")
    assert {split: int((splits == split).sum()) for split in ("train", "val", "test")} == {
        "train": 67,
        "val": 10,
        "test": 26,
    }
    assert (splits == drawn(103, {"val": 0.1, "test": 0.25}, 3, "mine")).all()
    assert (splits != drawn(103, {"val": 0.1, "test": 0.25}, 4, "mine")).any()
    assert set(drawn(5, {"val": 0.2, "test": 0.0}, 0, "mine")) == {"train", "val"}
    with pytest.raises(InputError, match=r"mine: val_share is 0.1, which is no picture of 4; give a larger one"):
        drawn(4, {"val": 0.1, "test": 0.5}, 0, "mine")
    with pytest.raises(InputError, match="leave none of 2 pictures for train"):
        drawn(2, {"val": 0.45, "test": 0.45}, 0, "mine")


def test_words_for_splits():
    for word, split in ((" Train", "train"), ("validation", "val"), ("dev", "val"), ("test", "test"), ("rest", None)):
        assert split_named(word) == split
    assert split_named(None) is None


def test_names_of_columns():
    assert chosen_columns(None) == ("image", ["caption"], "split")
    assert chosen_columns({"caption": ["a", "b"], "split": None}) == ("image", ["a", "b"], None)
    for given, message in (
        ({"captions": "a"}, r"columns.captions is no setting \(did you mean caption\?\); choose among image, caption"),
        ({"image": None}, "columns.image is None; expected the name of a column"),
        ({"caption": []}, r"columns.caption is \[\]; expected the name"),
        ({"caption": ["a", 3]}, r"columns.caption is \['a', 3\]"),
        ({"caption": ["a", "a"]}, "columns.caption names a column twice: a, a"),
    ):
        with pytest.raises(InputError, match=message):
            chosen_columns(given)

"""Images and captions that two splits of a data set share, and that make a test too easy."""

import logging
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from vsehub.data.contents import row_blocks
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import SPLITS, ArrayLike, CaptionedImages
from vsehub.io.arrays import row_hashes

log = logging.getLogger(__name__)

# The share of a split's captions that may be in another split without a warning: every data set has generic captions
# ("a dog is running ."). In Flickr8k 0.6 % of the test captions are in train; in the embedded scenes, whose captions
# use few words, 26 %. A split that is part of another shares all of them.
ALLOWED_CAPTIONS = 1 / 3


def warn_of_shared(splits: Mapping[str, CaptionedImages]) -> None:
    """Log a warning for any two splits that share images, or more than a third of the second split's captions.

    splits: by name, in any order; train is compared with val and test, val with test. Every row is hashed once. Splits
    of vectors in which a text may belong to several images are skipped, since `data.pairs` compares their row numbers.
    """
    splits = {name: split for name, split in splits.items() if split.pairs is None or split.written}
    order = sorted(splits, key=lambda name: SPLITS.index(name) if name in SPLITS else len(SPLITS))
    keys = {name: [row_keys(splits[name].images), row_keys(splits[name].captions)] for name in order}
    for first, second in combinations(order, 2):
        images, captions = (in_common(*rows) for rows in zip(keys[first], keys[second], strict=True))
        if images.any():
            example = splits[second].name_of(int(images.argmax()))
            log.warning(
                "%d of the %d images of %s are also in %s, %s for example: results on %s are too good",
                *(images.sum(), len(images), second, first, example, second),
            )
        if captions.sum() > ALLOWED_CAPTIONS * len(captions):
            log.warning(
                "%d of the %d captions of %s (%.1f %%) are also in %s, word for word",
                *(captions.sum(), len(captions), second, 100 * captions.mean(), first),
            )


def row_keys(rows: list[str] | ArrayLike) -> tuple[Any, Any]:
    """The kind of images or captions, and a key (n,) of each row; only keys of one kind can be compared.

    Captions are their own keys, stored features and pixels have 64-bit hashes, taken in blocks, picture files the
    hashes that were taken when they were checked.
    """
    if isinstance(rows, list):
        return "texts", rows
    if isinstance(rows, Pictures):
        return "files", rows.contents
    hashes = np.concatenate([row_hashes(block) for block in row_blocks(rows)])
    return (tuple(rows.shape[1:]), np.dtype(rows.dtype)), hashes


def in_common(a: tuple[Any, Any], b: tuple[Any, Any]) -> np.ndarray:
    """Mask (n,) of the rows of `b` that are also in `a`, compared by the keys of `row_keys`."""
    (kind, theirs), (own_kind, own) = a, b
    if kind != own_kind:
        return np.zeros(len(own), bool)
    if kind == "texts":
        theirs = set(theirs)
        return np.array([text in theirs for text in own], bool)
    return np.isin(own, theirs)

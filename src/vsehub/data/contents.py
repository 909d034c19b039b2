"""A warning of the images and captions that two splits share."""

import logging
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import SPLITS, ArrayLike, CaptionedImages, blocks_of
from vsehub.io.arrays import row_hashes

log = logging.getLogger(__name__)

# The share of a split's captions that may be in another split without a warning: every data set has generic captions
# ("a dog is running ."). In Flickr8k 0.6 % of the test captions are in train; in the built-in scenes, whose captions
# use few words, 26 %. A split that is part of another shares all of them.
ALLOWED_CAPTIONS = 1 / 3


def warn_of_shared(splits: Mapping[str, CaptionedImages]) -> None:
    """Log a warning for any two splits that share images, or more than a third of the second split's captions.

    splits: splits by name, in any order; train is compared with val and test, val with test. Every row is hashed once.
    """
    names = [name for name in SPLITS if name in splits]
    image_keys = {name: row_keys(splits[name].images) for name in names}
    caption_keys = {name: row_keys(splits[name].captions) for name in names}
    for first, second in combinations(names, 2):
        shared_images = shared_mask(image_keys[first], image_keys[second])
        shared_captions = shared_mask(caption_keys[first], caption_keys[second])
        if shared_images.any():
            example = splits[second].name_of(int(shared_images.argmax()))
            log.warning(
                "%d of the %d images of %s are also in %s, %s for example: results on %s are too good",
                shared_images.sum(),
                len(shared_images),
                second,
                first,
                example,
                second,
            )
        if shared_captions.sum() > ALLOWED_CAPTIONS * len(shared_captions):
            log.warning(
                "%d of the %d captions of %s (%.1f %%) are also in %s",
                shared_captions.sum(),
                len(shared_captions),
                second,
                100 * shared_captions.mean(),
                first,
            )


def row_keys(rows: list[str] | ArrayLike) -> list[Any]:
    """A key of each image or caption; equal rows have equal keys.

    A caption is its own key. The key of stored features or pixels is their shape, their type and a 64-bit hash. The key
    of a picture file is the hash of its bytes from the check of the file.
    """
    if isinstance(rows, list):
        return rows
    if isinstance(rows, Pictures):
        return rows.contents.tolist()
    kind = tuple(rows.shape[1:]), np.dtype(rows.dtype)
    return [(kind, key) for block in blocks_of(rows) for key in row_hashes(block).tolist()]


def shared_mask(others: list[Any], rows: list[Any]) -> np.ndarray:
    """Mask (n,) of the `rows` that are also among the `others`, compared by the keys of `row_keys`."""
    known = set(others)
    return np.array([key in known for key in rows], bool)

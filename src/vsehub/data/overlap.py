"""Images and captions that two splits of a data set share, and that make a test too easy."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from vsehub.data.contents import row_blocks
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import SPLITS, ArrayLike, CaptionedImages
from vsehub.io.rows import row_hashes

log = logging.getLogger(__name__)

# The share of a split's captions that may be in another split without a warning: every data set has generic captions
# ("a dog is running ."). In Flickr8k 0.6 % of the test captions are in train; in the embedded scenes, whose captions
# use few words, 26 %. A split that is part of another shares all of them.
ALLOWED_CAPTIONS = 1 / 3
_Identities = tuple[Any, Any]  # the kind of rows, and a key of each: a list of texts, or an array


@dataclass(frozen=True)
class Shared:
    """The numbers of images and captions of one split that are also in another split; example: the first such image."""

    images: int
    captions: int
    example: int | None = field(default=None, compare=False)


def shared(a: CaptionedImages, b: CaptionedImages) -> Shared:
    """The numbers of images and captions of `b` whose content is also in `a`.

    Stored features and pixels are compared by 64-bit hashes of their rows, which are read once in blocks, picture
    files by the SHA-256 of their bytes. Captions are compared as strings, vectors
    like features. Images of different kinds or types have nothing in common.
    """
    return _compared(_Content(a), _Content(b))


def warn_of_shared(splits: Mapping[str, CaptionedImages]) -> None:
    """Log a warning for any two splits that share images, or more than a third of the second split's captions.

    splits: by name, in any order; train is compared with val and test, val with test. Every row is hashed once. Splits
    of vectors in which a text may belong to several images are skipped, since `data.pairs` compares their row numbers.
    """
    splits = {name: split for name, split in splits.items() if split.pairs is None or split.written}
    order = sorted(splits, key=lambda name: SPLITS.index(name) if name in SPLITS else len(SPLITS))
    contents = {name: _Content(splits[name]) for name in order}
    for first, second in combinations(order, 2):
        found = _compared(contents[first], contents[second])
        images, captions = len(splits[second].images), len(splits[second].captions)
        if found.images:
            log.warning(
                "%d of the %d images of %s are also in %s, %s for example: results on %s are too good",
                *(found.images, images, second, first, splits[second].name_of(found.example or 0), second),
            )
        if found.captions > ALLOWED_CAPTIONS * captions:
            log.warning(
                "%d of the %d captions of %s (%.1f %%) are also in %s, word for word",
                *(found.captions, captions, second, 100 * found.captions / captions, first),
            )


class _Content:
    """The identities of a split's images and captions, computed once."""

    def __init__(self, split: CaptionedImages):
        self.images, self.captions = _identities(split.images), _identities(split.captions)


def _identities(rows: list[str] | ArrayLike) -> _Identities:
    """The kind of images or captions, and a key (n,) of each; only keys of one kind can be compared.

    Picture files have the hashes that were taken when they were checked.
    """
    if isinstance(rows, list):
        return "texts", rows
    if isinstance(rows, Pictures):
        return "files", rows.contents
    hashes = np.concatenate([row_hashes(block) for block in row_blocks(rows)])
    return (tuple(rows.shape[1:]), np.dtype(rows.dtype)), hashes


def _in_common(a: _Identities, b: _Identities) -> np.ndarray:
    """Which rows of `b` are also in `a`: (n,)."""
    (kind, there), (own_kind, own) = a, b
    if kind != own_kind:
        return np.zeros(len(own), bool)
    if isinstance(own, list):
        there = set(there)
        return np.array([one in there for one in own], bool)
    return np.isin(own, there)


def _compared(a: _Content, b: _Content) -> Shared:
    images = _in_common(a.images, b.images)
    example = int(images.argmax()) if images.any() else None
    return Shared(int(images.sum()), int(_in_common(a.captions, b.captions).sum()), example)

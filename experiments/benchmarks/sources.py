"""The data that the benchmarks run on: a folder of features, or features and captions made up in its shape."""

from functools import cache
from pathlib import Path

import numpy as np

from vsehub.data import CaptionedImages, Precomp, Source, pairs_by_caption
from vsehub.data.scenes.captions import describe
from vsehub.data.scenes.source import compose

FLICKR8K = Path(__file__).resolve().parents[3] / "shared" / "data" / "flickr8k" / "global"
IMAGES, DIM = 6000, 1280  # Flickr8k's training images, features of a middling network
SPLITS = ("train", "val", "test")


class Synthetic:
    """Random features and the captions of random scenes, five an image.

    images: how many in train; val and test have a twelfth each. dim: features an image.
    """

    name = "synthetic"

    def __init__(self, images: int = IMAGES, dim: int = DIM):
        self.images, self.dim = images, dim
        self._made: dict[str, CaptionedImages] = {}

    def load(self, split: str) -> CaptionedImages:
        """One split, made once; features are noise and a random direction for each word of the first caption."""
        if split not in self._made:
            self._made[split] = self._make(split)
        return self._made[split]

    def _make(self, split: str) -> CaptionedImages:
        count = self.images if split == "train" else max(8, self.images // 12)
        rng = np.random.default_rng([SPLITS.index(split)])
        captions, features = [], np.empty((count, self.dim), np.float16)
        for row in features:
            said = describe(compose(rng), rng)
            captions += said
            row[:] = rng.standard_normal(self.dim) + sum(
                3 * _direction(word, self.dim) for word in set(said[0].split())
            )
        return CaptionedImages(features, captions, pairs_by_caption(np.arange(5 * count) // 5))


@cache
def _direction(word: str, dim: int) -> np.ndarray:
    return np.random.default_rng(list(word.encode())).standard_normal(dim)


def source_of(root: str | None, synthetic: int | None) -> Source:
    """The source that the command line asks for."""
    if synthetic is not None:
        return Synthetic(synthetic)
    if root is None and not FLICKR8K.is_dir():
        return Synthetic()
    return Precomp(root or FLICKR8K, name=None if root else "flickr8k")

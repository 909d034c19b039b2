"""What every data source yields: images stored once, captions that point at them."""

import hashlib
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from vsehub.checks import require

SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class CaptionedImages:
    """One split of a data set.

    images: (I, ...) one entry an image, an array or a memory map. captions: T strings. image_index: (T,) integers;
    captions[t] describes images[image_index[t]]. names: I file names for reports, or None where there are none.
    """

    images: np.ndarray
    captions: list[str]
    image_index: np.ndarray
    names: list[str] | None = None

    def __post_init__(self):
        require(len(self.images) > 0, "the split has no images")
        require(
            len(self.captions) == len(self.image_index),
            f"{len(self.captions)} captions but {len(self.image_index)} image indices; expected one for each caption",
        )

    def fingerprint(self) -> str:
        """A short hash of the captions, their images and a sample of image rows: two data sets that differ, differ."""
        digest = hashlib.sha256()
        digest.update("\n".join(self.captions).encode())
        digest.update(np.ascontiguousarray(self.image_index, dtype=np.int64).tobytes())
        digest.update(repr((self.images.shape, str(self.images.dtype))).encode())
        for row in np.linspace(0, len(self.images) - 1, num=min(len(self.images), 64), dtype=int):
            digest.update(np.ascontiguousarray(self.images[row]).tobytes())
        return digest.hexdigest()[:16]


class Source(Protocol):
    """A data set: a name for reports and its splits, each loaded when asked for."""

    name: str

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test"; InputError where it is missing or damaged."""

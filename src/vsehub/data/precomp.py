"""Precomputed features in the folder layout of VSE++ and SCAN, which became the field's convention."""

from pathlib import Path

import numpy as np

from vsehub.checks import existing, one_of, require
from vsehub.data.sources import SPLITS, CaptionedImages, pairs_by_caption
from vsehub.io.arrays import listed, readable, refuse_unusable
from vsehub.io.progress import bar
from vsehub.io.text import read_lines

REPEAT = 5  # VSE++ writes an image's row once for each of its five captions
_BLOCK_BYTES = 16 << 20


def open_features(path: Path) -> np.ndarray:
    """The memory-mapped array of `path`: (rows, dim) or (images, regions, dim), float16 or float32.

    Raises InputError if the file is cut short, is not a .npy file or holds something else.
    """
    with readable(path, Exception):  # numpy parses the header as Python: damage raises almost anything
        features: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        require(
            features.dtype in (np.float16, np.float32) and features.ndim in (2, 3) and features.size > 0,
            f"{path} holds {features.dtype} of shape {features.shape}; expected float16 or float32 in native "
            "byte order, (rows, dim) or (images, regions, dim). Images with fewer regions are filled up with zeros",
        )
    return features


def check_features(path: Path, features: np.ndarray, rows_are_captions: bool) -> bool:
    """Check every row once; returns whether each image's row is repeated five times, as VSE++ writes it.

    rows_are_captions: whether there are as many rows as captions, so that rows may be repeated. Raises InputError if
    rows hold NaN, infinite values or only zeros (a region may be zero, an image may not), or if most images but not all
    are repeated five times.
    """
    images = len(features) // REPEAT
    may_repeat = rows_are_captions and len(features) == images * REPEAT
    largest, differ = np.empty(len(features), features.dtype), np.zeros(images, bool)
    unsigned = np.dtype(f"u{features.dtype.itemsize}")
    step = max(1, _BLOCK_BYTES // (features[0].nbytes * REPEAT)) * REPEAT
    with bar(f"checking {path.name}", total=features.nbytes, unit="B", unit_scale=True) as progress:
        for first in range(0, len(features), step):
            block = np.ascontiguousarray(features[first : first + step])
            bits = block.reshape(len(block), -1).view(unsigned)
            # Without their sign bit floats are ordered like integers, NaN last: one fast pass instead of three.
            magnitudes = bits & (2 ** (8 * bits.itemsize - 1) - 1)
            largest[first : first + step] = magnitudes.max(axis=1).view(features.dtype)
            if may_repeat:
                groups = bits.reshape(-1, REPEAT, bits.shape[1])
                image = first // REPEAT
                differ[image : image + len(groups)] = (groups[:, 1:] != groups[:, :1]).any(axis=(1, 2))
            progress.update(block.nbytes)
    refuse_unusable(
        f"{path}: of {len(features)} feature rows, counted from 0:",
        largest,
        "Extract the features of these images again, or leave the images and their captions out",
    )
    repeated = may_repeat and 2 * differ.sum() < images
    require(
        not repeated or not differ.any(),
        f"{path}: rows 5i to 5i+4 are one image's for most of the {images} images, but differ for images i = "
        f"{listed(np.flatnonzero(differ))}. "
        "The file is damaged: copy or extract it again",
    )
    return repeated


_LAYOUT = "train_ims.npy (features), train_caps.txt (one caption per line), the same for dev and test"


class Precomp:
    """A folder of `{prefix}_ims.npy`, `{prefix}_caps.txt` and, optional, `{prefix}_ids.txt` (image file names).

    Features are float16 or float32, (rows, dim) or (images, regions, dim), and stay on disk (memory-mapped). Each image
    has one row and the same number of consecutive captions (usually five). Or, as VSE++ writes it, its row is repeated
    five times, once per caption, and every fifth row is used.

    root: the folder. name: name in reports, by default the folder's. train, val, test: the prefixes of the splits.
    """

    def __init__(
        self, root: str | Path, name: str | None = None, train: str = "train", val: str = "dev", test: str = "test"
    ):
        self.root = existing("root", root, f"Put the files of the VSE++ layout there: {_LAYOUT}")
        self.name = self.root.resolve().name if name is None else name
        self._prefixes = dict(zip(SPLITS, (train, val, test), strict=True))

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test"; its features are read once as a check, in bounded memory.

        Raises InputError if a file is missing or damaged, if features and captions do not match in number, or if a
        feature row holds NaN, infinite values or only zeros.
        """
        one_of("split", split, SPLITS)
        features_path, captions_path = self._path(split, "ims.npy"), self._path(split, "caps.txt")
        features, captions = open_features(features_path), read_lines(captions_path, "caption")
        require(
            len(captions) % len(features) == 0,
            f"{features_path} has {len(features)} rows but {captions_path} has {len(captions)} captions; expected the "
            "same whole number of captions for every row: take both files from the same extraction, whole",
        )
        repeated = check_features(features_path, features, rows_are_captions=len(captions) == len(features))
        images = features[::REPEAT] if repeated else features
        pairs = pairs_by_caption(np.arange(len(captions)) // (len(captions) // len(images)))
        return CaptionedImages(images, captions, pairs, self._names(split, len(images), len(captions)))

    def _path(self, split: str, ending: str) -> Path:
        """The path of one of the split's files. Raises InputError listing the existing splits if it is missing."""
        path = self.root / f"{self._prefixes[split]}_{ending}"
        prefixes = ", ".join(sorted(file.name.removesuffix("_ims.npy") for file in self.root.glob("*_ims.npy")))
        return existing(f"data.{split}", path, f"Put it there, or name another prefix; there are: {prefixes}")

    def _names(self, split: str, images: int, captions: int) -> list[str] | None:
        """One name per image; None without an ids file, or if its lines name captions, not images."""
        path = self.root / f"{self._prefixes[split]}_ids.txt"
        if not path.exists():
            return None
        names = read_lines(path, "file name")
        require(
            len(names) in (images, captions),
            f"{path} has {len(names)} lines; expected {images}, one per image, or {captions}, one per caption. "
            "Take the file from the same extraction as the features, or remove it: it is optional",
        )
        repeats = len(names) // images
        of_images = names[::repeats]
        return of_images if np.repeat(of_images, repeats).tolist() == names else None

"""Precomputed features in the folder layout of VSE++ and SCAN, which became the field's convention."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vsehub.checks import InputError, existing, fail, one_of, regular, require
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.io.arrays import shortened
from vsehub.io.progress import byte_bar
from vsehub.io.rows import RowErrors, UnusableRows
from vsehub.io.text import read_lines

REPEAT = 5  # VSE++ writes an image's row once for each of its five captions
_BLOCK_BYTES = 16 << 20


def open_features(path: Path) -> np.ndarray:
    """The memory-mapped array of `path`: (rows, dim) or (images, regions, dim), float16 or float32.

    Raises InputError if the file is cut short, is not a .npy file or holds something else.
    """
    try:
        features: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy parses the header as Python: damage raises almost anything
        raise InputError(
            f"{path} cannot be read as features (numpy says: {shortened(error)}). Expected one whole .npy file of "
            "float16 or float32 numbers without Python objects: copy or download it again, or save it with "
            "np.save(path, array). Where images have different numbers of regions, fill up with rows of zeros: "
            "image_regions leaves them out"
        ) from error
    require(
        isinstance(features, np.ndarray), f"{path} is an archive of arrays (.npz); expected one array saved by np.save"
    )
    require(
        features.dtype in (np.float16, np.float32),
        f"{path} holds {features.dtype.name} ({features.dtype.str}) numbers; expected float16 or float32 in this "
        "machine's byte order. Convert it: np.save(path, np.load(path).astype('float32'))",
    )
    require(
        features.ndim in (2, 3) and features.size > 0,
        f"{path} has shape {features.shape}; expected (rows, dim) or (images, regions, dim) with at least one row",
    )
    return features


def look_through(path: Path, features: np.ndarray, rows_are_captions: bool) -> bool:
    """Check every row once; returns whether each image's row is repeated five times, as VSE++ writes it.

    rows_are_captions: whether there are as many rows as captions, so that rows may be repeated. Raises InputError if
    rows hold NaN, infinite values or only zeros (a region may be zero, an image may not), or if most images but not all
    are repeated five times.
    """
    repeated = rows_are_captions and _sample_repeats(features)
    unusable, broken = UnusableRows(), RowErrors()
    for first, bits in _blocks(path, features):
        # Without their sign bit floats are ordered like integers, NaN last: one fast pass instead of three.
        largest = (bits & (2 ** (8 * bits.itemsize - 1) - 1)).max(axis=1)
        unusable.add(first, largest.view(features.dtype))
        if repeated:
            groups = bits.reshape(-1, REPEAT, bits.shape[1])
            broken.add(first // REPEAT, (groups[:, 1:] != groups[:, :1]).any(axis=(1, 2)))
    unusable.refuse(
        f"{path}: of {len(features)} feature rows, counted from 0:",
        "Extract the features of these images again, or leave the images and their captions out",
    )
    images = len(features) // REPEAT
    if repeated and 2 * broken.count < images:
        require(
            broken.count == 0,
            f"{path}: rows 5i to 5i+4 are one image's for most of the {images} images, but differ for images "
            f"i = {broken}. The file is damaged: copy or extract it again",
        )
        return True
    return False


def _unsigned(dtype: np.dtype) -> np.dtype:
    return np.dtype(f"u{dtype.itemsize}")


def _sample_repeats(features: np.ndarray) -> bool:
    """Whether most of up to 64 images spread over the file are repeated five times."""
    if len(features) % REPEAT:
        return False
    images = len(features) // REPEAT
    sample = np.linspace(0, images - 1, num=min(images, 64), dtype=int)
    equal = 0
    for image in sample:
        group = np.ascontiguousarray(features[REPEAT * image : REPEAT * (image + 1)]).view(_unsigned(features.dtype))
        equal += bool((group[1:] == group[:1]).all())
    return 2 * equal > len(sample)


def _blocks(path: Path, features: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, the block's bits as unsigned integers (rows, numbers)); block starts are multiples of five."""
    row_bytes = features[0].nbytes
    step = max(1, _BLOCK_BYTES // (row_bytes * REPEAT)) * REPEAT
    with byte_bar(f"checking {path.name}", features.nbytes) as progress:
        for first in range(0, len(features), step):
            block = np.ascontiguousarray(features[first : first + step])
            yield first, block.reshape(len(block), -1).view(_unsigned(features.dtype))
            progress.update(block.nbytes)


_LAYOUT = "train_ims.npy (features), train_caps.txt (one caption per line), the same for dev and test"


class Precomp:
    """A folder of `{prefix}_ims.npy`, `{prefix}_caps.txt` and, optional, `{prefix}_ids.txt` (image file names).

    Features are float16 or float32, (rows, dim) or (images, regions, dim), and stay on disk (memory-mapped). Each image
    has one row and the same number of consecutive captions (usually five). Or, as VSE++ writes it, its row is repeated
    five times, once per caption, and every fifth row is used.

    root: the folder. name: for reports, by default the folder's name. train, val, test: the prefixes of the splits.
    """

    def __init__(
        self, root: str | Path, name: str | None = None, train: str = "train", val: str = "dev", test: str = "test"
    ):
        self.root = existing("root", root, f"Put the files of the VSE++ layout there: {_LAYOUT}")
        require(self.root.is_dir(), f"root: {root} is a file; give a folder that holds {_LAYOUT}")
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
        rows = len(features)
        if len(captions) % rows:
            near = max(1, round(len(captions) / rows)) * rows
            raise InputError(
                f"{features_path} has {rows} rows but {captions_path} has {len(captions)} captions; expected the same "
                f"whole number of captions for every row ({near} captions would be {near // rows} per row). Take both "
                "files from the same extraction, whole, and give each image the same number of captions"
            )
        repeated = look_through(features_path, features, rows_are_captions=len(captions) == rows)
        images = features[::REPEAT] if repeated else features
        image_index = np.arange(len(captions)) // (len(captions) // len(images))
        return CaptionedImages(images, captions, image_index, self._names(split, len(images), len(captions)))

    def _path(self, split: str, ending: str) -> Path:
        """The path of one of the split's files. Raises InputError listing the existing splits if it is missing."""
        prefix = self._prefixes[split]
        path = self.root / f"{prefix}_{ending}"
        if not path.is_file():
            there = sorted(file.name.removesuffix("_ims.npy") for file in self.root.glob("*_ims.npy"))
            fail(
                f"the split {split!r} has no file {path}; features there: {', '.join(there) or 'of no split'}. "
                f"Put the file there, or name another prefix, as in data.{split}={(there or [prefix])[0]}"
            )
        return path

    def _names(self, split: str, images: int, captions: int) -> list[str] | None:
        """One name per image; None without an ids file, or if its lines name captions, not images."""
        path = self.root / f"{self._prefixes[split]}_ids.txt"
        if not path.exists():
            return None
        names = read_lines(regular(path), "file name")
        if len(names) == images:
            return names
        require(
            len(names) == captions,
            f"{path} has {len(names)} lines; expected {images}, one per image, or {captions}, one per caption. "
            "Take the file from the same extraction as the features, or remove it: it is optional",
        )
        step = captions // images
        same = all(names[t] == names[t - t % step] for t in range(captions))
        return names[::step] if same else None

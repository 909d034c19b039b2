"""Features extracted beforehand, in the folder layout that VSE++ and SCAN made the field's convention."""

from pathlib import Path

import numpy as np

from vsehub.checks import InputError, existing, fail, one_of, require
from vsehub.data.captioned import SPLITS, CaptionedImages
from vsehub.data.feature_file import REPEAT, look_through, open_features
from vsehub.data.text_lines import read_lines

_LAYOUT = "train_ims.npy (features), train_caps.txt (a caption a line), the same for dev and test"


class Precomp:
    """A folder of `{prefix}_ims.npy`, `{prefix}_caps.txt` and, optional, `{prefix}_ids.txt` (image file names).

    Features are float16 or float32, (rows, dim) or (images, regions, dim), and stay on disk (memory-mapped). An image
    has one row and the same number of captions, consecutive, as every other (five as a rule); or, as VSE++ writes it,
    its row five times, one for each caption: then every fifth row is seen.

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
        """The split "train", "val" or "test"; its features are looked through once, in bounded memory.

        InputError where a file is missing or damaged, where features and captions do not match in number, or where a
        feature row holds NaN, infinite values or zeros alone.
        """
        one_of("split", split, SPLITS)
        features_path, captions_path = self._path(split, "ims.npy"), self._path(split, "caps.txt")
        features, captions = open_features(features_path), read_lines(captions_path, "caption")
        rows = len(features)
        if len(captions) % rows:
            near = max(1, round(len(captions) / rows)) * rows
            raise InputError(
                f"{features_path} has {rows} rows but {captions_path} has {len(captions)} captions; expected the same "
                f"whole number of captions for every row ({near} captions would be {near // rows} a row). Take both "
                "files from the same extraction, whole, and give each image the same number of captions"
            )
        repeated = look_through(features_path, features, rows_are_captions=len(captions) == rows)
        images = features[::REPEAT] if repeated else features
        image_index = np.arange(len(captions)) // (len(captions) // len(images))
        return CaptionedImages(images, captions, image_index, self._names(split, len(images), len(captions)))

    def _path(self, split: str, ending: str) -> Path:
        """The path of one of the split's files; where it is missing, InputError listing the splits that are there."""
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
        """One name an image, or None: no ids file, or its lines tell captions apart, not images."""
        path = self.root / f"{self._prefixes[split]}_ids.txt"
        if not path.is_file():
            return None
        names = read_lines(path, "file name")
        if len(names) == images:
            return names
        require(
            len(names) == captions,
            f"{path} has {len(names)} lines; expected {images}, one an image, or {captions}, one a caption. "
            "Take the file from the same extraction as the features, or take it away: it is optional",
        )
        step = captions // images
        same = all(names[t] == names[t - t % step] for t in range(captions))
        return names[::step] if same else None

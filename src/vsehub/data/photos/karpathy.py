"""Photos with captions in Karpathy's splits: COCO, Flickr30k, Flickr8k, or your own data in the same json layout."""

import json
import logging
import os
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import InputError, existing, fail, one_of, require
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.photos.source import ListedPhotos, Listing, is_unicode
from vsehub.io.rows import listed
from vsehub.io.text import stays_inside

log = logging.getLogger(__name__)

ALL_SPLITS = ("train", "restval", "val", "test")  # restval: COCO's validation images that Karpathy leaves for training
_RESTVAL = "restval"
_HALF = "holds half of a surrogate pair, which is not a character; write the missing text"
_LAYOUT = (
    '{"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog ."}, ...]}, ...]}, the layout of '
    "dataset_coco.json, dataset_flickr30k.json and dataset_flickr8k.json"
)


class KarpathyImage(NamedTuple):
    """An image of the json. folder: the json's `filepath` (COCO: "train2014" or "val2014"), "" if it has none."""

    filename: str
    folder: str
    split: str
    captions: list[str]

    @property
    def path(self) -> str:
        """The path of the file in the folder of images."""
        return os.path.normpath(os.path.join(self.folder, self.filename))


def read_entries(path: Path) -> tuple[str | None, list[KarpathyImage]]:
    """The data set's name, None if the file has none, and its images in the order of the file.

    White space in captions becomes single spaces, so that a caption is one line. Raises InputError if the file is
    damaged or has another layout; if an image has no list of captions or an empty caption, is of an unknown split or is
    repeated; or if its path leads outside the folder of images.
    """
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"json: {path} is damaged or no json ({error}). Copy or download it again, whole; expected {_LAYOUT}"
        ) from error
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list) or not images:
        fail(f"json: {path} has no images; expected {_LAYOUT}")
    name = content.get("dataset")
    entries = [_entry(path, number, one) for number, one in enumerate(images)]
    _refuse_repeats(path, entries)
    return name if isinstance(name, str) and is_unicode(name) else None, entries


def _entry(path: Path, number: int, image: Any) -> KarpathyImage:
    def text(key: str, default: str | None = None) -> str:
        value = image.get(key, default)
        if not isinstance(value, str):
            fail(f"json: {path}: image {number}, counted from 0, has {key} {value!r}, no text; expected {_LAYOUT}")
        require(is_unicode(value), f"json: {path}: image {number}, counted from 0: {key} {value!r} {_HALF}")
        return value

    require(isinstance(image, dict), f"json: {path}: image {number}, counted from 0, is no object; expected {_LAYOUT}")
    filename, sentences = text("filename"), image.get("sentences")
    if not isinstance(sentences, list):
        fail(f"json: {path}: image {number}, {filename}, has no list of captions (sentences); expected {_LAYOUT}")
    captions = []
    for sentence in sentences:
        raw = sentence.get("raw") if isinstance(sentence, dict) else None
        if not isinstance(raw, str) or not raw.strip():
            fail(
                f"json: {path}: image {number}, {filename}, has a caption without words (raw is {raw!r}); write the "
                "missing text, or remove the sentence"
            )
        require(is_unicode(raw), f"json: {path}: image {number}, {filename}: the caption {raw!r} {_HALF}")
        captions.append(" ".join(raw.split()))
    require(
        not {"\n", "\r"} & set(filename),
        f"json: {path}: image {number}, counted from 0: filename {filename!r} has a line break; rename the file",
    )
    entry = KarpathyImage(filename, text("filepath", ""), text("split"), captions)
    require(
        entry.split in ALL_SPLITS,
        f"json: {path}: image {number}, {filename}, is of the split {entry.split!r}; known are "
        f"{', '.join(ALL_SPLITS)}. Correct it, or remove the image",
    )
    require(
        stays_inside(entry.folder) and stays_inside(filename),
        f"json: {path}: image {number} lies in {entry.folder!r} as {filename!r}; expected a path inside the folder of "
        "images, neither absolute nor with '..'. Correct it, and give the folder that holds the images",
    )
    return entry


def _refuse_repeats(path: Path, entries: list[KarpathyImage]) -> None:
    """Raise InputError if a picture is repeated, in one split or in two."""
    splits: dict[str, list[str]] = {}
    for entry in entries:
        splits.setdefault(entry.path, []).append(entry.split)
    twice = {name: found for name, found in splits.items() if len(found) > 1}
    if twice:
        named = listed([f"{name} ({', '.join(found)})" for name, found in twice.items()])
        apart = sum(len(set(found)) > 1 for found in twice.values())
        fail(
            f"json: {path}: {len(twice):,} pictures come more than once, {apart:,} of them in several splits: {named}. "
            "Give each picture one entry, with all its sentences"
        )


class KarpathyFiles(FolderFiles):
    """Files below a folder, or directly in the folder if names stay unique.

    names: (I,) the paths that the json gives. flat: (I,) names of files directly in the folder, None where another
    picture has the same. Links are followed.
    """

    def __init__(self, folder: Path, names: Sequence[str], flat: Sequence[str | None]):
        super().__init__(folder, names, outside=True)
        self._flat = list(flat)

    def take(self, rows: np.ndarray) -> "KarpathyFiles":
        """The files of these rows."""
        chosen = rows.tolist()
        return KarpathyFiles(self.folder, [self.names[row] for row in chosen], [self._flat[row] for row in chosen])

    def located(self, split: str) -> FolderFiles:
        """The files under their actual names. Raises InputError if some are missing."""
        found: list[str] = []
        missing: list[str] = []
        for name, flat in zip(self.names, self._flat, strict=True):
            both = (name,) if flat is None else (name, flat)
            known = next((one for one in both if os.path.isfile(self.folder / one)), None)
            if known is None:
                missing.append(os.path.basename(name))
            else:
                found.append(known)
        if missing:
            folders = sorted({os.path.dirname(name) for name in self.names} | {""})
            fail(
                f"images: {len(missing):,} of {len(self):,} files of the split {split!r} are missing: "
                f"{listed(missing)}. Looked in {', '.join(str(self.folder / one) for one in folders)}. Unpack the "
                "images there, or give the folder where they are"
            )
        return FolderFiles(self.folder, found)


class Karpathy(ListedPhotos):
    """The json of the splits and a folder of image files, decoded on demand.

    json: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json or a file of that layout. images: the folder
    of the files, or of COCO's folders train2014 and val2014; the json may only name files inside it, whose links are
    followed. name: for reports, by default the json's. restval: "train" adds COCO's restval images to train, "leave"
    omits them. pictures: of `ListedPhotos`. Each image has captions of its own, also where two are equal.
    """

    redraw = None

    def __init__(
        self,
        json: str | Path,
        images: str | Path,
        name: str | None = None,
        restval: str = "train",
        pictures: PictureSettings | None = None,
    ):
        self.json = existing("json", json, "Give Karpathy's json of the splits, for example dataset_flickr30k.json")
        self.images = existing("images", images, "Give the folder that holds the image files")
        require(self.images.is_dir(), f"images: {images} is a file; give the folder that holds the image files")
        require(self.json.is_file(), f"json: {json} is a folder; give the json file of the splits")
        one_of("restval", restval, ("train", "leave"))
        super().__init__(name or "", pictures)
        self._joins_restval = restval == "train"

    @property
    def name(self) -> str:
        """The name given, else the json's, else the json's file name."""
        return self._name or self._read[0] or self.json.stem

    @cached_property
    def _read(self) -> tuple[str | None, list[KarpathyImage]]:
        name, entries = read_entries(self.json)
        counts = sorted(Counter(entry.split for entry in entries).items())
        log.info("%s: %s", self.json, ", ".join(f"{count:,} images of {split}" for split, count in counts))
        return name, entries

    def read_listing(self) -> Listing:
        """See `ListedPhotos`."""
        entries = self._read[1]
        uses = Counter(entry.filename for entry in entries)
        flat = [entry.filename if uses[entry.filename] == 1 else None for entry in entries]
        splits = ["train" if entry.split == _RESTVAL and self._joins_restval else entry.split for entry in entries]
        return Listing(
            KarpathyFiles(self.images, [entry.path for entry in entries], flat),
            np.repeat(np.arange(len(entries)), [len(entry.captions) for entry in entries]),
            [caption for entry in entries for caption in entry.captions],
            np.array(splits),
            [entry.filename for entry in entries],
            shared=False,
        )

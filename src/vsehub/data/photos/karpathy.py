"""Photos with captions in Karpathy's splits: COCO, Flickr30k, Flickr8k, or your own data in the same json layout."""

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import InputError, existing, fail, one_of, require
from vsehub.components import Component
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.reading import PictureReading
from vsehub.data.sources import SPLITS, CaptionedImages
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
    def place(self) -> str:
        """The path of the file in the folder of images."""
        return os.path.normpath(os.path.join(self.folder, self.filename))


def read_entries(path: Path) -> tuple[str | None, list[KarpathyImage]]:
    """The data set's name, None if the file has none, and its images in the order of the file.

    White space in captions becomes single spaces, so that a caption is one line. Raises InputError if the file is
    damaged or has another layout; if an image has no captions or an empty one, is of an unknown split or is repeated;
    or if its path leads outside the folder of images.
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
    return name if isinstance(name, str) and _encodes(name) else None, entries


def _entry(path: Path, number: int, image: Any) -> KarpathyImage:
    def text(key: str, default: str | None = None) -> str:
        value = image.get(key, default)
        if not isinstance(value, str):
            fail(f"json: {path}: image {number}, counted from 0, has {key} {value!r}, no text; expected {_LAYOUT}")
        require(_encodes(value), f"json: {path}: image {number}, counted from 0: {key} {value!r} {_HALF}")
        return value

    require(isinstance(image, dict), f"json: {path}: image {number}, counted from 0, is no object; expected {_LAYOUT}")
    filename, sentences = text("filename"), image.get("sentences")
    if not isinstance(sentences, list) or not sentences:
        fail(f"json: {path}: image {number}, {filename}, has no captions (sentences); expected {_LAYOUT}")
    captions = []
    for sentence in sentences:
        raw = sentence.get("raw") if isinstance(sentence, dict) else None
        if not isinstance(raw, str) or not raw.strip():
            fail(
                f"json: {path}: image {number}, {filename}, has a caption without words (raw is {raw!r}); write the "
                "missing text, or remove the sentence"
            )
        require(_encodes(raw), f"json: {path}: image {number}, {filename}: the caption {raw!r} {_HALF}")
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
        splits.setdefault(entry.place, []).append(entry.split)
    twice = {place: found for place, found in splits.items() if len(found) > 1}
    if twice:
        named = listed([f"{place} ({', '.join(found)})" for place, found in twice.items()])
        apart = sum(len(set(found)) > 1 for found in twice.values())
        fail(
            f"json: {path}: {len(twice):,} pictures come more than once, {apart:,} of them in several splits: {named}. "
            "Give each picture one entry, with all its sentences"
        )


def _encodes(text: str) -> bool:
    """Whether the text is valid Unicode; JSON can escape half of a surrogate pair, which is not."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


class Karpathy(Component):
    """The json of the splits and a folder of image files, decoded on demand.

    json: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json or a file of that layout. images: the folder
    of the files, or of COCO's folders train2014 and val2014; the json may only name files inside it, whose links are
    followed. name: for reports, by default the json's. restval: "train" adds COCO's restval images to train, "leave"
    omits them. Other arguments: of `PictureReading`.
    """

    rebuilt: Mapping[str, Any] = {"cache": None}  # a checkpoint does not say where files are written

    def __init__(
        self,
        json: str | Path,
        images: str | Path,
        name: str | None = None,
        restval: str = "train",
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augment: str = "none",
        unreadable: str = "stop",
        threads: int | None = None,
        cache: str | None = None,
    ):
        self.json = existing("json", json, "Give Karpathy's json of the splits, for example dataset_flickr30k.json")
        self.images = existing("images", images, "Give the folder that holds the image files")
        require(self.images.is_dir(), f"images: {images} is a file; give the folder that holds the image files")
        require(self.json.is_file(), f"json: {json} is a folder; give the json file of the splits")
        one_of("restval", restval, ("train", "leave"))
        self._name, self._restval = name, restval
        self._reading = PictureReading(size, resize, crops, augment, unreadable, threads, cache)

    @property
    def name(self) -> str:
        """The name given, else the json's, else the json's file name."""
        return self._name or self._read[0] or self.json.stem

    @cached_property
    def _read(self) -> tuple[str | None, list[KarpathyImage]]:
        name, entries = read_entries(self.json)
        log.info("%s: %s", self.json, _counted(entries))
        return name, entries

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test", in the json's order; the first time, every file is decoded as a check.

        Raises InputError if the json is damaged or lacks the split, if files are missing or, with `unreadable` "stop",
        if files cannot be decoded.
        """
        one_of("split", split, SPLITS)
        entries = self._entries(split)
        files = FolderFiles(self.images, self._located(split, entries))
        rows, contents = self._reading.check(split, files)
        kept = [entries[row] for row in rows.tolist()]
        captions = [caption for entry in kept for caption in entry.captions]
        index = np.repeat(np.arange(len(kept)), [len(entry.captions) for entry in kept])
        pictures = self._reading.pictures(split, files.take(rows), contents)
        return CaptionedImages(pictures, captions, index, [entry.filename for entry in kept])

    def _entries(self, split: str) -> list[KarpathyImage]:
        """The json's images of a split; train may include restval. Raises InputError if there are none."""
        joined = {split, _RESTVAL} if split == self._restval else {split}
        entries = [entry for entry in self._read[1] if entry.split in joined]
        require(len(entries) > 0, f"json: {self.json} has no split {split!r}; it has {_counted(self._read[1])}")
        captions = [len(entry.captions) for entry in entries]
        each = f"{min(captions)}" if min(captions) == max(captions) else f"{min(captions)} to {max(captions)}"
        log.info("%s: read %s, %s captions per image", split, _counted(entries), each)
        return entries

    def _located(self, split: str, entries: list[KarpathyImage]) -> list[str]:
        """Each image's path in the folder. Raises InputError if files are missing."""
        paths = [self._path(entry) for entry in entries]
        found = [path for path in paths if path is not None]
        missing = [entry.filename for entry, path in zip(entries, paths, strict=True) if path is None]
        if missing:
            folders = sorted({entry.folder for entry in entries} | {""})
            fail(
                f"images: {len(missing):,} of {len(entries):,} files of the split {split!r} are missing: "
                f"{listed(missing)}. Looked in {', '.join(str(self.images / one) for one in folders)}. "
                "Unpack the images there, or give the folder where they are"
            )
        return found

    def _path(self, entry: KarpathyImage) -> str | None:
        """The path in the image's folder, or directly in `images` if no other image has the same file name."""
        alone = self._filenames[entry.filename] == 1
        places = (os.path.join(entry.folder, entry.filename), *((entry.filename,) if alone else ()))
        return next((place for place in places if os.path.isfile(self.images / place)), None)

    @cached_property
    def _filenames(self) -> Counter[str]:
        return Counter(entry.filename for entry in self._read[1])


def _counted(entries: list[KarpathyImage]) -> str:
    counts = Counter(entry.split for entry in entries)
    return ", ".join(f"{count:,} images of {split}" for split, count in sorted(counts.items()))

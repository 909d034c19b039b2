"""Photos with captions in Karpathy's splits: COCO, Flickr30k, Flickr8k, or one's own in the same json."""

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
from vsehub.data.photos.pictures import Pictures, damaged
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.io.text import stays_inside

ALL_SPLITS = ("train", "restval", "val", "test")  # restval: COCO's validation images that Karpathy left for training
_HALF = "holds half of a surrogate pair, which is no character; write the missing text"
_LAYOUT = (
    '{"images": [{"filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog ."}, ...]}, ...]}, the layout of '
    "dataset_coco.json, dataset_flickr30k.json and dataset_flickr8k.json"
)


class Entry(NamedTuple):
    """An image of the json. folder: its `filepath` (COCO: "train2014" or "val2014"), "" where it has none."""

    filename: str
    folder: str
    split: str
    captions: list[str]

    @property
    def place(self) -> str:
        """The file, from the folder of images."""
        return os.path.normpath(os.path.join(self.folder, self.filename))


def read_entries(path: Path) -> tuple[str | None, list[Entry]]:
    """The data set's name, where the file says one, and its images in the order of the file.

    White space in captions becomes single spaces, so that a caption is one line. InputError where the file is damaged
    or of another layout; where an image has no captions or an empty one, is of an unknown split or comes twice; and
    where it is to lie outside the folder of images (`data.inside`).
    """
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"json: {path} is damaged or no json ({error}). Copy or download it again, whole; expected {_LAYOUT}"
        ) from error
    images = content.get("images") if isinstance(content, dict) else None
    require(isinstance(images, list) and len(images) > 0, f"json: {path} has no images; expected {_LAYOUT}")
    name = content.get("dataset")
    entries = [_entry(path, number, one) for number, one in enumerate(images)]
    _refuse_repeats(path, entries)
    return name if isinstance(name, str) and _encodes(name) else None, entries


def _entry(path: Path, number: int, image: Any) -> Entry:
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
                "missing text, or take the sentence out"
            )
        require(_encodes(raw), f"json: {path}: image {number}, {filename}: the caption {raw!r} {_HALF}")
        captions.append(" ".join(raw.split()))
    require(
        not {"\n", "\r"} & set(filename),
        f"json: {path}: image {number}, counted from 0: filename {filename!r} has a line break; rename the file",
    )
    entry = Entry(filename, text("filepath", ""), text("split"), captions)
    require(
        entry.split in ALL_SPLITS,
        f"json: {path}: image {number}, {filename}, is of the split {entry.split!r}; known are "
        f"{', '.join(ALL_SPLITS)}. Correct it, or take the image out",
    )
    require(
        stays_inside(entry.folder) and stays_inside(filename),
        f"json: {path}: image {number} lies in {entry.folder!r} as {filename!r}; expected a path inside the folder of "
        "images, neither absolute nor with '..'. Correct it, and give the folder that holds the images",
    )
    return entry


def _refuse_repeats(path: Path, entries: list[Entry]) -> None:
    """InputError where a picture comes twice, in one split or in two."""
    splits: dict[str, list[str]] = {}
    for entry in entries:
        splits.setdefault(entry.place, []).append(entry.split)
    twice = {place: found for place, found in splits.items() if len(found) > 1}
    if twice:
        named = ", ".join(f"{place} ({', '.join(found)})" for place, found in list(twice.items())[:_NAMED])
        apart = sum(len(set(found)) > 1 for found in twice.values())
        fail(
            f"json: {path}: {len(twice):,} pictures come more than once, {apart:,} of them in several splits: {named}"
            f"{', ...' if len(twice) > _NAMED else ''}. Give each picture one entry, with all its sentences"
        )


def _encodes(text: str) -> bool:
    """Whether the text is valid Unicode: json can escape half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


log = logging.getLogger(__name__)

_RESTVAL = "restval"
_NAMED = 5  # files named in an error; a warning names more, since it is all that is left of them
_NAMED_LEFT_OUT = 20


class Karpathy(Component):
    """The json of the splits and a folder of image files, decoded when asked for.

    json: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json or one of that layout. images: the folder of
    the files, or of COCO's folders train2014 and val2014; the json names files inside it only, links in it are
    followed. name: for reports, by default the json's. restval: "train"
    adds COCO's restval images to train, "leave" leaves them out. size, resize, crops, threads: as `Pictures`. augment:
    "vsepp", random crops and mirrors in training, or "none". unreadable: "stop" at files that cannot be decoded, or
    "leave_out" them and their captions. cache: the folder that remembers which files are whole; None is
    $XDG_CACHE_HOME/vsehub, or ~/.cache/vsehub.
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
        one_of("augment", augment, ("none", "vsepp"))
        one_of("unreadable", unreadable, ("stop", "leave_out"))
        self._form = {"size": size, "resize": resize, "crops": crops, "threads": threads}
        Pictures([], **self._form)  # wrong sizes are said before the pictures are checked
        self._name, self._restval, self._augment = name, restval, augment
        self._unreadable, self._cache = unreadable, cache

    @property
    def name(self) -> str:
        """As given, or as the json says, or the json's file name."""
        return self._name or self._read[0] or self.json.stem

    @cached_property
    def _read(self) -> tuple[str | None, list[Entry]]:
        name, entries = read_entries(self.json)
        log.info("%s: %s", self.json, _counted(entries))
        return name, entries

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test", in the json's order; every file is decoded once, the first time.

        InputError where the json is damaged or lacks the split, where files are missing, and where they cannot be
        decoded, as `unreadable` says.
        """
        one_of("split", split, SPLITS)
        entries = self._entries(split)
        files = self._without_damaged(split, self._located(split, entries))
        kept = [entry for entry, file in zip(entries, files, strict=True) if file is not None]
        captions = [caption for entry in kept for caption in entry.captions]
        index = np.repeat(np.arange(len(kept)), [len(entry.captions) for entry in kept])
        pictures = Pictures(
            [str(self.images / file) for file in files if file is not None],
            augments=self._augment == "vsepp" and split == "train",
            **self._form,
        )
        return CaptionedImages(pictures, captions, index, [entry.filename for entry in kept])

    def _entries(self, split: str) -> list[Entry]:
        """The json's images of a split, with restval's where they belong to it; InputError where there are none."""
        joined = {split, _RESTVAL} if split == self._restval else {split}
        entries = [entry for entry in self._read[1] if entry.split in joined]
        require(len(entries) > 0, f"json: {self.json} has no split {split!r}; it has {_counted(self._read[1])}")
        captions = [len(entry.captions) for entry in entries]
        each = f"{min(captions)}" if min(captions) == max(captions) else f"{min(captions)} to {max(captions)}"
        log.info("%s: read %s, %s captions an image", split, _counted(entries), each)
        return entries

    def _located(self, split: str, entries: list[Entry]) -> list[str]:
        """Each image's path in the folder; InputError where files are missing."""
        found = [self._path(entry) for entry in entries]
        missing = [entry.filename for entry, path in zip(entries, found, strict=True) if path is None]
        if missing:
            folders = sorted({entry.folder for entry in entries} | {""})
            fail(
                f"images: {len(missing):,} of {len(entries):,} files of the split {split!r} are missing: "
                f"{_listed(missing, _NAMED)}. Looked in {', '.join(str(self.images / one) for one in folders)}. "
                "Unpack the images there, or give the folder where they are"
            )
        return found

    def _path(self, entry: Entry) -> str | None:
        """In its folder, or without it where no other image has the same file name."""
        alone = self._filenames[entry.filename] == 1
        places = (os.path.join(entry.folder, entry.filename), *((entry.filename,) if alone else ()))
        return next((place for place in places if os.path.isfile(self.images / place)), None)

    @cached_property
    def _filenames(self) -> Counter[str]:
        return Counter(entry.filename for entry in self._read[1])

    def _without_damaged(self, split: str, files: list[str]) -> list[str | None]:
        """The files with None in the place of those that cannot be decoded, if they may be left out."""
        reasons = damaged(self.images, files, Pictures([], **self._form).threads, self._cache)
        if not reasons:
            return files
        named = [f"{file} ({reason})" for file, reason in reasons.items()]
        said = f"{len(named):,} of {len(files):,} files of the split {split!r} cannot be decoded"
        require(
            self._unreadable == "leave_out",
            f"images: {said}: {_listed(named, _NAMED)}. Copy them again, or leave them and their captions out with "
            "data.unreadable=leave_out",
        )
        require(len(named) < len(files), f"images: {said}, which is all: {_listed(named, _NAMED)}. Copy them again")
        log.warning("%s and are left out with their captions: %s", said, _listed(named, _NAMED_LEFT_OUT))
        return [None if file in reasons else file for file in files]


def _counted(entries: list[Entry]) -> str:
    counts = Counter(entry.split for entry in entries)
    return ", ".join(f"{count:,} images of {split}" for split, count in sorted(counts.items()))


def _listed(names: list[str], at_most: int) -> str:
    return ", ".join(names[:at_most]) + (", ..." if len(names) > at_most else "")

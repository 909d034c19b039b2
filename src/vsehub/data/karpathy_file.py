"""The json of Karpathy's splits, read strictly: which images there are, in which split, with which captions."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from vsehub.checks import InputError, fail, require
from vsehub.data.inside import stays_inside

SPLITS = ("train", "restval", "val", "test")  # restval: COCO's validation images that Karpathy left for training
_NAMED = 5  # pictures named in a message; the rest are counted
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
        entry.split in SPLITS,
        f"json: {path}: image {number}, {filename}, is of the split {entry.split!r}; known are {', '.join(SPLITS)}. "
        "Correct it, or take the image out",
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

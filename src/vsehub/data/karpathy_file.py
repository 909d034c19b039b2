"""The json of Karpathy's splits, read strictly: which images there are, in which split, with which captions."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from vsehub.checks import InputError, fail, require

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


def read_entries(path: Path) -> tuple[str | None, list[Entry]]:
    """The data set's name, where the file says one, and its images in the order of the file.

    White space in captions becomes single spaces, so that a caption is one line. InputError where the file is damaged
    or of another layout, and where an image has no captions or an empty one.
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
    return name if isinstance(name, str) else None, [_entry(path, number, one) for number, one in enumerate(images)]


def _entry(path: Path, number: int, image: Any) -> Entry:
    def text(key: str, default: str | None = None) -> str:
        value = image.get(key, default)
        if not isinstance(value, str):
            fail(f"json: {path}: image {number}, counted from 0, has {key} {value!r}, no text; expected {_LAYOUT}")
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
        captions.append(" ".join(raw.split()))
    return Entry(filename, text("filepath", ""), text("split"), captions)

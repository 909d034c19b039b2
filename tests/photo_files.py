"""A few pictures with captions, written in every form that a source of photos reads."""

import csv
import io
import json
from typing import NamedTuple

import numpy as np
from PIL import Image

from vsehub.data import HuggingFace, Karpathy, Table

SIDE = 14  # of the part that is read: the middle of a picture of 16 x 18 pixels


class Photo(NamedTuple):
    """A picture: its name, the bytes of its file, its captions and its split."""

    name: str
    content: bytes
    captions: list
    split: str


def picture(number):
    """The bytes of a png of one grey value with a corner."""
    pixels = np.full((SIDE + 2, SIDE + 4, 3), 5 * number % 256, np.uint8)
    pixels[: 1 + number % 5, :3] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def photos(count=12, split=lambda number: ("train", "train", "val", "test")[number % 4]):
    """Pictures of one to three captions each; every third one has a caption in common."""
    made = []
    for number in range(count):
        captions = [f"caption {place} of {number}" for place in range(1 + number % 3)]
        captions += ["a thing that several pictures show"] if number % 3 == 0 else []
        made.append(Photo(f"{number:03d}.png", picture(number), captions, split(number)))
    return made


def write_folder(root, made):
    root.mkdir(parents=True, exist_ok=True)
    for photo in made:
        (root / photo.name).write_bytes(photo.content)
    return root


def write_karpathy(root, made, **settings):
    images = [
        {"filename": photo.name, "split": photo.split, "sentences": [{"raw": caption} for caption in photo.captions]}
        for photo in made
    ]
    folder = write_folder(root / "photos", made)
    (root / "splits.json").write_text(json.dumps({"images": images}))
    return Karpathy(root / "splits.json", folder, **settings)


def write_table(root, made, has_splits=True, **settings):
    """A row for each caption."""
    rows = [
        (photo.name, caption, *([photo.split] * has_splits)) for photo in made for caption in photo.captions or [""]
    ]
    with (root / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption", "split")[: 2 + has_splits], *rows])
    return Table(root / "captions.csv", write_folder(root / "photos", made), **settings)


def write_lines(root, made, has_splits=True, **settings):
    """A line for each picture, with a list of captions."""
    splits = [{"split": photo.split} if has_splits else {} for photo in made]
    lines = [
        {"image": photo.name, "caption": photo.captions} | part_of for photo, part_of in zip(made, splits, strict=True)
    ]
    (root / "captions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return Table(root / "captions.jsonl", write_folder(root / "photos", made), **settings)


def dataset_of(made):
    import datasets

    features = {"image": datasets.Image(), "caption": datasets.Sequence(datasets.Value("string"))}
    images = [{"bytes": photo.content, "path": photo.name} for photo in made]
    columns = {"image": images, "caption": [photo.captions for photo in made]}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def write_saved(root, made, has_splits=True, **settings):
    import datasets

    words = {"train": "train", "val": "validation", "test": "test"}
    parts = {words[split]: dataset_of([photo for photo in made if photo.split == split]) for split in words}
    saved = datasets.DatasetDict(parts) if has_splits else dataset_of(made)
    saved.save_to_disk(root / "saved")
    return HuggingFace(root / "saved", **settings)


def write_imagefolder(root, made, has_splits=True, **settings):
    for split in dict.fromkeys(photo.split for photo in made) if has_splits else [""]:
        members = [photo for photo in made if split in ("", photo.split)]
        folder = write_folder(root / "pets" / split, members)
        lines = [{"file_name": photo.name, "caption": photo.captions} for photo in members]
        (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return HuggingFace(root / "pets", **settings)


WRITERS = {
    "karpathy": write_karpathy,
    "table": write_table,
    "lines": write_lines,
    "saved": write_saved,
    "imagefolder": write_imagefolder,
}

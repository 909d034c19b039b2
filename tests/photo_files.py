"""A few pictures with captions, written as people have them: a folder with a table, tar shards, a saved dataset."""

import csv
import io
import json
import tarfile
from dataclasses import fields

import numpy as np
from PIL import Image

from vsehub.data import PictureSettings

SIDE = 12
_OF_PICTURES = {one.name for one in fields(PictureSettings)}


def arranged(given):
    """The arguments of a source, those that are settings of pictures as one object."""
    own = {key: value for key, value in given.items() if key in _OF_PICTURES}
    others = {key: value for key, value in given.items() if key not in _OF_PICTURES}
    return others | {"pictures": PictureSettings(**own)}


def captions_of(number):
    """One to three captions; every third picture has one in common."""
    own = [f"caption {one} of {number}" for one in range(1 + number % 3)]
    return [*own, "a thing that several pictures show"] if number % 3 == 0 else own


def picture(number):
    """The bytes of a png of one grey value with a corner."""
    pixels = np.full((SIDE, SIDE + 2, 3), 5 * number % 256, np.uint8)
    pixels[: 1 + number % 5, :3] = 255
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def name_of(number):
    return f"{number:03d}.png"


def as_folder(root, numbers):
    """A folder of picture files."""
    root.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        (root / name_of(number)).write_bytes(picture(number))
    return root


def as_table(root, numbers, header=("image", "caption")):
    """photos/ and captions.csv, a row for each caption."""
    as_folder(root / "photos", numbers)
    rows = [(name_of(number), caption) for number in numbers for caption in captions_of(number)]
    with (root / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return root / "captions.csv"


def add(tar, name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def as_shards(root, numbers, each=4, prefix="photos", key="captions"):
    """Tar files of `each` pictures, their captions in json files."""
    root.mkdir(parents=True, exist_ok=True)
    for shard, first in enumerate(range(0, len(numbers), each)):
        with tarfile.open(root / f"{prefix}-{shard:03d}.tar", "w") as tar:
            for number in numbers[first : first + each]:
                add(tar, name_of(number), picture(number))
                add(tar, f"{number:03d}.json", json.dumps({key: captions_of(number), "url": "x"}).encode())
    return root


def as_dataset(numbers):
    """A `datasets.Dataset` of the pictures' bytes and lists of captions."""
    import datasets

    features = {"image": datasets.Image(), "caption": datasets.Sequence(datasets.Value("string"))}
    return datasets.Dataset.from_dict(
        {
            "image": [{"bytes": picture(number), "path": name_of(number)} for number in numbers],
            "caption": [captions_of(number) for number in numbers],
        },
        features=datasets.Features(features),
    )

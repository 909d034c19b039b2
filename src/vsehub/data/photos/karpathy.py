"""Photos with captions in Karpathy's splits: COCO, Flickr30k, Flickr8k, or your own data in the same json layout."""

import json as reader
import os
from collections.abc import Iterator
from pathlib import Path

from vsehub.checks import existing
from vsehub.data.photos.pictures import PictureSettings
from vsehub.data.photos.source import Listed, ListedPhotos
from vsehub.data.photos.table import inside
from vsehub.io.arrays import readable


class Karpathy(ListedPhotos):
    """The json of the splits and a folder of image files, decoded on demand.

    json: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json or a file of that layout. images: the folder
    of the files, or of COCO's folders train2014 and val2014; the json may only name files inside it, whose links are
    followed. name: for reports, by default the json's. COCO's restval images belong to train. pictures: of
    `ListedPhotos`. Each image has captions of its own, also where two are equal.
    """

    shared = False

    def __init__(
        self, json: str | Path, images: str | Path, name: str | None = None, pictures: PictureSettings | None = None
    ):
        place = existing("json", json, "Give Karpathy's json of the splits, for example dataset_flickr30k.json")
        super().__init__(name or place.stem.removeprefix("dataset_"), place, pictures)
        self.images = existing("images", images, "Give the folder that holds the image files")

    def read_listing(self) -> Iterator[Listed]:
        """Yield the pictures of the json file."""
        with readable(self.place, KeyError, TypeError, AttributeError):
            images = reader.loads(self.place.read_bytes())["images"]
            there = {name: (self.images / name).is_dir() for name in {image.get("filepath", "") for image in images}}
            for image in images:
                name, folder = image["filename"], image.get("filepath", "")
                file = inside(
                    self.images, os.path.join(folder, name) if there[folder] else name
                )  # COCO's in one folder
                split = "train" if image["split"] == "restval" else image["split"]
                yield Listed(file, name, [sentence["raw"] for sentence in image["sentences"]], split)

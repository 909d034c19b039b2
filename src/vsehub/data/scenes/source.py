"""The built-in data set: small painted scenes with five captions each, rendered on first use and cached."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from vsehub.checks import one_of, whole_seed
from vsehub.data.scenes.captions import describe
from vsehub.data.scenes.images import BACKGROUNDS, COLOURS, OUTLINES, RADII, SIDE, TEXTURES, Scene, Thing, render
from vsehub.data.sources import SPLITS, CaptionedImages, pairs_by_caption
from vsehub.io.arrays import readable
from vsehub.io.files import atomic, cache_folder, write_text
from vsehub.io.progress import bar

# Images in train, val and test.
SIZES = {"tiny": (96, 32, 32), "default": (2000, 500, 500), "large": (12000, 1000, 1000)}
# Increased with every change to the pictures or the words; part of the cache's name.
EDITION = 1


@dataclass(frozen=True)
class Scenes:
    """Scenes of one to three objects on a background, 64 x 64 pixels, five captions each: nothing to download.

    size: "tiny", "default" or "large". seed: an integer from 0; the same seed gives the same data. Raises InputError
    for other values.
    """

    size: str = "default"
    seed: int = 0
    name: ClassVar[str] = "scenes"

    def __post_init__(self) -> None:
        one_of("size", self.size, tuple(SIZES))
        whole_seed("seed", self.seed)

    @property
    def folder(self) -> Path:
        """The cache folder of this size, seed and edition."""
        return cache_folder() / f"scenes-{self.size}-seed{self.seed}-edition{EDITION}"

    def load(self, split: str) -> CaptionedImages:
        """The split, rendered on first use: images (I, 3, 64, 64) uint8, a read-only memory map; 5 I captions.

        Raises InputError for an unknown split, and if the files of the cache are damaged.
        """
        one_of("split", split, SPLITS)
        images_path, captions_path = self.folder / f"{split}.npy", self.folder / f"{split}.json"
        if not captions_path.exists():
            self._make(split)
        with readable(images_path):
            images = np.load(images_path, mmap_mode="r", allow_pickle=False)
        with readable(captions_path, KeyError):
            captions = json.loads(captions_path.read_text())["captions"]
        names = [f"scene-{split}-{number:06d}" for number in range(len(images))]
        return CaptionedImages(images, captions, pairs_by_caption(np.repeat(np.arange(len(images)), 5)), names)

    def _make(self, split: str) -> None:
        """Render the split and write it to the cache, the captions last."""
        # A generator for each split, so that none depends on the presence or size of the others.
        rng = np.random.default_rng([self.seed, SPLITS.index(split)])
        images = np.empty((SIZES[self.size][SPLITS.index(split)], 3, SIDE, SIDE), dtype=np.uint8)
        captions: list[str] = []
        for image in bar(f"rendering scenes ({split})", images, unit=" pictures"):
            scene = compose(rng)
            image[:] = render(scene, rng)
            captions += describe(scene, rng)
        with atomic(self.folder / f"{split}.npy") as handle:
            np.save(handle, images)
        write_text(self.folder / f"{split}.json", json.dumps({"captions": captions}, indent=0))


def compose(rng: np.random.Generator) -> Scene:
    """A random scene of one to three things that do not overlap; some values are more common than others."""
    things: list[Thing] = []
    for _ in range(rng.choice(3, p=(0.25, 0.45, 0.3)) + 1):
        shape, colour = _common_first(rng, OUTLINES), _common_first(rng, COLOURS)
        texture = TEXTURES[rng.choice(4, p=(0.4, 0.2, 0.2, 0.2))]
        things.append(_place(rng, shape, colour, texture, things))
    return Scene(_common_first(rng, BACKGROUNDS), tuple(things))


def _common_first(rng: np.random.Generator, table: Mapping[str, object]) -> str:
    # The power makes the first of ten about two and a half times as common as the last.
    return tuple(table)[int(len(table) * rng.random() ** 1.4)]


def _place(rng: np.random.Generator, shape: str, colour: str, texture: str, others: list[Thing]) -> Thing:
    """A thing of random size and position that overlaps none of the at most two others."""
    while True:
        size = tuple(RADII)[rng.integers(3)]
        column, row = (int(cell) for cell in rng.integers(3, size=2))
        x, y = (15 + 17 * cell + rng.uniform(-2.5, 2.5) for cell in (column, row))
        margin = RADII[size] + 1.5
        x, y = (min(max(value, margin), SIDE - margin) for value in (x, y))
        if all(math.hypot(x - other.x, y - other.y) > 0.97 * (RADII[size] + RADII[other.size]) for other in others):
            return Thing(shape, colour, texture, size, column, row, x, y)

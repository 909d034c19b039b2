"""The source of any pictures that are listed with captions and splits: by a json, a table, shards or a dataset."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from vsehub.checks import fail, one_of, require
from vsehub.components import Component
from vsehub.data.photos.settings import PictureCollection, PictureSettings
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.data.splits import SplitDraw
from vsehub.io.rows import listed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listing:
    """I pictures and C captions.

    files: the pictures. images: (C,) integers, the picture of each caption; a picture may have any number of captions.
    captions: C strings, not stripped; empty ones are left out. splits: (I,) "train", "val" or "test", other words
    for pictures that are in none; None: they are drawn. names: (I,) for reports; None: those of the files. shared:
    whether a caption of several pictures is one text that belongs to all of them, else several.
    """

    files: PictureCollection
    images: np.ndarray
    captions: list[str]
    splits: np.ndarray | None = None
    names: list[str] | None = None
    shared: bool = True


class ListedPhotos(Component):
    """A source of the pictures that a listing gives; a subclass reads the listing.

    name: for reports. pictures: settings for reading pictures; None: the defaults. draw: settings for drawing splits if
    the listing has none; None: the defaults.
    """

    redraw: str | None = "data.columns.split=null"  # the setting with which splits are drawn, if they can be

    def __init__(self, name: str, pictures: PictureSettings | None, draw: SplitDraw | None = None):
        self._name, self._pictures, self._draw = name, pictures or PictureSettings(), draw or SplitDraw()

    @property
    def name(self) -> str:
        """The name for reports."""
        return self._name

    @abstractmethod
    def read_listing(self) -> Listing:
        """All pictures and captions. Raises InputError if the files that list them are damaged."""

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test", in the source's order; every picture is decoded once as a check.

        A caption of several pictures is one text that belongs to all of them. Raises InputError if the source is
        damaged or lacks the split, if pictures are missing or, with `unreadable` "stop", if some cannot be decoded.
        """
        one_of("split", split, SPLITS)
        listing, splits = self._found
        rows = np.flatnonzero(splits == split)
        if len(rows) == 0:
            counts = {one: int((splits == one).sum()) for one in SPLITS}
            drawing = (
                f", or have all splits drawn by seed: {self.redraw}, with the shares data.draw.val and data.draw.test"
            )
            fail(
                f"{self.name} has no pictures of the split {split!r}; it has "
                + ", ".join(f"{count:,} of {one}" for one, count in counts.items() if count)
                + f". Give pictures of it{drawing if self.redraw else ''}"
            )
        files = listing.files.take(rows).located(split)
        intact, contents = self._pictures.check(split, files)
        files, rows = files.take(intact), rows[intact]
        new_rows = np.full(len(splits), -1)
        new_rows[rows] = np.arange(len(rows))
        index = new_rows[listing.images]
        texts = [listing.captions[number] for number in np.flatnonzero(index >= 0).tolist()]
        index = index[index >= 0]
        pairs: np.ndarray | None = None
        if listing.shared:
            texts, index, pairs = merge_captions(index, texts)
        each = np.bincount(index if pairs is None else pairs[:, 0], minlength=len(rows))
        words = f"{each.min()}" if each.min() == each.max() else f"{each.min()} to {each.max()}"
        log.info("%s: read %s pictures, %s captions per picture", split, f"{len(rows):,}", words)
        if pairs is not None:
            several = int((np.bincount(pairs[:, 1]) > 1).sum())
            log.info("%s: %s of %s captions belong to several pictures", split, f"{several:,}", f"{len(texts):,}")
        names = list(files.names) if listing.names is None else [listing.names[row] for row in rows.tolist()]
        return CaptionedImages(self._pictures.opened(split, files, contents), texts, index, names, pairs)

    @cached_property
    def _found(self) -> tuple[Listing, np.ndarray]:
        """All pictures with captions, and the split of each."""
        listing = self._with_captions(self.read_listing())
        if listing.splits is not None:
            return listing, listing.splits
        count, seed = len(listing.files), self._draw.seed
        splits = draw_splits(count, self._draw, self.name)
        counts = ", ".join(f"{int((splits == one).sum()):,} {one}" for one in SPLITS if (splits == one).any())
        log.info("%s: no splits are given; drawn from %s pictures by seed %d: %s", self.name, count, seed, counts)
        return listing, splits

    def _with_captions(self, listing: Listing) -> Listing:
        """The listing with captions as one line each, without empty ones and pictures that have none."""
        captions = [" ".join(one.split()) for one in listing.captions]
        filled = np.fromiter((bool(one) for one in captions), bool, len(captions))
        images = listing.images[filled]
        bare = np.bincount(images, minlength=len(listing.files)) == 0
        if not filled.all():
            log.warning("%s: %s empty captions are left out", self.name, f"{int((~filled).sum()):,}")
        if bare.any():
            names = [listing.files.names[row] for row in np.flatnonzero(bare).tolist()]
            said = f"{self.name}: {len(names):,} of {len(bare):,} pictures have no caption: {listed(names)}"
            require(
                self._pictures.uncaptioned == "leave_out" and not bare.all(),
                f"{said}. Write captions, or leave these pictures out with data.pictures.uncaptioned=leave_out",
            )
            log.warning("%s. They are left out", said)
        halved = [one for one in captions if not is_unicode(one)]
        require(
            not halved,
            f"{self.name}: captions hold half of a surrogate pair, which is not a character: "
            f"{listed(list(map(repr, halved)))}",
        )
        rest = np.flatnonzero(~bare)
        return replace(
            listing,
            files=listing.files if len(rest) == len(bare) else listing.files.take(rest),
            images=(np.cumsum(~bare) - 1)[images],
            captions=[caption for caption in captions if caption],
            splits=None if listing.splits is None else listing.splits[rest],
            names=None if listing.names is None else [listing.names[row] for row in rest.tolist()],
        )


def is_unicode(text: str) -> bool:
    """Whether the text is valid Unicode; json can escape half of a surrogate pair, which is not a character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def flat_captions(
    rows: np.ndarray, columns: Sequence[tuple[str, Sequence[Any]]], refuse: Callable[[int, str, Any], NoReturn]
) -> tuple[np.ndarray, list[str]]:
    """(C,) the picture of each caption, and C captions, row by row; "" where a row has none.

    rows: (n,) the picture of each row. columns: names and entries (n,): texts, lists of texts, or None. refuse: called
    with row, column and what is no text.
    """
    images, captions = [], []
    for row, image in enumerate(rows.tolist()):
        for column, entries in columns:
            entry = entries[row]
            for one in entry if isinstance(entry, list) else (entry,):
                if not isinstance(one, str) and one is not None:
                    refuse(row, column, one)
                images.append(image)
                captions.append(one or "")
    return np.array(images, np.int64), captions


def merge_captions(images: np.ndarray, captions: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray | None]:
    """Distinct captions in the order of their pictures, the first picture of each, and the pairs.

    images: (C,) the picture of each caption. A caption that a picture has twice counts once. Returns T strings, (T,)
    int64, and (P, 2) int64, picture and caption sorted by caption, then picture; None if each caption has one picture.
    """
    order = np.argsort(images, kind="stable")
    numbers: dict[str, int] = {}
    texts = np.fromiter((numbers.setdefault(captions[n], len(numbers)) for n in order.tolist()), np.int64, len(order))
    keys = np.unique(texts * (int(images.max()) + 1) + images[order])
    pairs = np.stack([keys % (int(images.max()) + 1), keys // (int(images.max()) + 1)], axis=1)
    first = np.flatnonzero(np.r_[True, np.diff(pairs[:, 1]) != 0])
    return list(numbers), pairs[first, 0], None if len(pairs) == len(numbers) else pairs


def draw_splits(count: int, draw: SplitDraw, name: str) -> np.ndarray:
    """The split of each of `count` pictures, drawn by seed; train gets what the shares of the others leave.

    name: for messages. Raises InputError if a split would be empty.
    """
    order, filled = np.random.default_rng(draw.seed).permutation(count), 0
    splits = np.full(count, "train", dtype="<U5")
    for split, share in (("val", draw.val), ("test", draw.test)):
        number = round(share * count)
        require(
            share == 0 or number > 0,
            f"{name}: data.draw.{split} is {share}, which is no picture of {count}; give a larger share, or 0 for no "
            f"{split}",
        )
        splits[order[filled : filled + number]] = split
        filled += number
    require(filled < count, f"{name}: the shares leave none of {count} pictures for train; give smaller ones")
    return splits


@dataclass(frozen=True)
class PhotoColumns(Component):
    """The names of the columns of a table or a dataset.

    image: of the pictures or their paths. caption: of the captions, or a list of such columns. split: of the splits;
    None: there is none. Raises InputError for a name that is no text.
    """

    image: str = "image"
    caption: str | list[str] = "caption"
    split: str | None = "split"

    def __post_init__(self) -> None:
        for key, words in (("image", [self.image]), ("caption", self.captions), ("split", [self.split])):
            allowed = all((isinstance(one, str) and one) or (key == "split" and one is None) for one in words)
            require(bool(words) and allowed, f"{key} is {getattr(self, key)!r}; expected the name of a column")
        twice = len(set(self.captions)) < len(self.captions)
        require(not twice, f"caption names a column twice: {', '.join(map(str, self.captions))}")

    @property
    def captions(self) -> list[str]:
        """The names of all columns of captions."""
        return [self.caption] if isinstance(self.caption, str) else list(self.caption)

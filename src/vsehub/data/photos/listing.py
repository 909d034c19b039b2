"""Photos that a table, shards or a dataset list: their captions, shared ones included, and their splits."""

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, Protocol

import numpy as np

from vsehub.checks import fail, nearest, one_of, require, whole_seed
from vsehub.components import Component
from vsehub.data.photos.reading import PictureCollection, PictureReading
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.io.rows import listed

log = logging.getLogger(__name__)

_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
COLUMNS: Mapping[str, Any] = {"image": "image", "caption": "caption", "split": "split"}
_SPLIT_OF = {word: split for split, words in _WORDS.items() for word in words}


class Stock(PictureCollection, Protocol):
    """All pictures of a source, of which a split takes some."""

    def take(self, rows: np.ndarray) -> "Stock":
        """The pictures of these rows."""


@dataclass(frozen=True)
class Listing:
    """I pictures and C captions.

    files: where the pictures are. images: (C,) integers, the picture of each caption; a picture may have any number.
    captions: C strings as they are written; empty ones are left out. splits: (I,) "train", "val" or "test"; None: they
    are drawn.
    """

    files: Stock
    images: np.ndarray
    captions: list[str]
    splits: np.ndarray | None = None


class ListedPhotos(Component):
    """Base class of sources that list their pictures with captions and, if they have any, splits.

    reading: how pictures are read. val_share, test_share: of the pictures, if the splits are drawn; a share of 0 makes
    no split. seed: of the draw. uncaptioned: "stop" at pictures without any caption, or "leave_out" them. Raises
    InputError for shares that leave nothing for training.
    """

    rebuilt: Mapping[str, Any] = {"cache": None}  # a checkpoint does not say where files are written
    name: str
    redraw = "data.columns.split=null"  # the setting with which splits are drawn

    def __init__(self, reading: PictureReading, val_share: float, test_share: float, seed: int, uncaptioned: str):
        one_of("uncaptioned", uncaptioned, ("stop", "leave_out"))
        require(
            min(val_share, test_share) >= 0 and val_share + test_share < 1,
            f"val_share is {val_share} and test_share {test_share}; expected shares of the pictures that leave some "
            "for train, e.g. 0.1 and 0.1",
        )
        whole_seed("seed", seed)
        self._reading, self._uncaptioned = reading, uncaptioned
        self._shares, self._seed = {"val": val_share, "test": test_share}, seed

    @abstractmethod
    def _listed(self) -> Listing:
        """All pictures and captions. Raises InputError if the source is damaged."""

    def _require_files(self, split: str, files: Any) -> None:
        """Raise InputError if pictures of a split are missing; for sources whose listing does not show it."""

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
            fail(
                f"{self.name} has no pictures of the split {split!r}; it has "
                + ", ".join(f"{count:,} of {one}" for one, count in counts.items() if count)
                + f". Give pictures of it, or have all splits drawn by seed: {self.redraw}, with the shares "
                "data.val_share and data.test_share"
            )
        files = listing.files.take(rows)
        self._require_files(split, files)
        kept, contents = self._reading.check(split, files)
        place = np.full(len(splits), -1)
        place[rows[kept]] = np.arange(len(kept))
        images = place[listing.images]
        captions = [listing.captions[number] for number in np.flatnonzero(images >= 0).tolist()]
        texts, index, pairs = joined(images[images >= 0], captions)
        _say(split, len(kept), texts, index, pairs)
        files = files.take(kept)
        return CaptionedImages(self._reading.pictures(split, files, contents), texts, index, list(files.names), pairs)

    @cached_property
    def _found(self) -> tuple[Listing, np.ndarray]:
        """All pictures with captions, and the split of each."""
        listing = self._with_captions(self._listed())
        if listing.splits is not None:
            return listing, listing.splits
        count = len(listing.files)
        splits = drawn(count, self._shares, self._seed, self.name)
        parts = ", ".join(f"{int((splits == one).sum()):,} {one}" for one in SPLITS if (splits == one).any())
        log.info("%s: no splits are given; drawn from %s pictures by seed %d: %s", self.name, count, self._seed, parts)
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
                self._uncaptioned == "leave_out" and not bare.all(),
                f"{said}. Write captions, or leave these pictures out with data.uncaptioned=leave_out",
            )
            log.warning("%s. They are left out", said)
        kept = np.flatnonzero(~bare)
        place = np.cumsum(~bare) - 1
        _require_unicode(self.name, captions)
        return Listing(
            listing.files if len(kept) == len(bare) else listing.files.take(kept),
            place[images],
            [caption for caption in captions if caption],
            None if listing.splits is None else listing.splits[kept],
        )


def _require_unicode(name: str, captions: Sequence[str]) -> None:
    """Raise InputError for half of a surrogate pair, which json can escape and which is not a character."""
    try:
        "\n".join(captions).encode()
    except UnicodeEncodeError:
        bad = [one for one in captions if any("\ud800" <= character <= "\udfff" for character in one)]
        fail(
            f"{name}: captions hold half of a surrogate pair, which is not a character: {listed(list(map(repr, bad)))}"
        )


def _say(split: str, images: int, texts: list[str], index: np.ndarray, pairs: np.ndarray | None) -> None:
    each = np.bincount(index if pairs is None else pairs[:, 0], minlength=images)
    words = f"{each.min()}" if each.min() == each.max() else f"{each.min()} to {each.max()}"
    log.info("%s: read %s pictures, %s captions per picture", split, f"{images:,}", words)
    if pairs is not None:
        shared = int((np.bincount(pairs[:, 1]) > 1).sum())
        log.info("%s: %s of %s captions belong to several pictures", split, f"{shared:,}", f"{len(texts):,}")


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


def joined(images: np.ndarray, captions: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray | None]:
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


def drawn(count: int, shares: Mapping[str, float], seed: int, name: str) -> np.ndarray:
    """The split of each of `count` pictures, drawn by seed; train gets what the shares of the others leave.

    name: for messages. Raises InputError if a split would be empty.
    """
    order, filled = np.random.default_rng(seed).permutation(count), 0
    splits = np.full(count, "train", dtype="<U5")
    for split, share in shares.items():
        number = round(share * count)
        require(
            share == 0 or number > 0,
            f"{name}: {split}_share is {share}, which is no picture of {count}; give a larger one, or 0 for no {split}",
        )
        splits[order[filled : filled + number]] = split
        filled += number
    require(filled < count, f"{name}: the shares leave none of {count} pictures for train; give smaller ones")
    return splits


def split_named(word: object) -> str | None:
    """ "train", "val" or "test" for a word that a table or a folder uses for it ("validation"), else None."""
    return _SPLIT_OF.get(str(word).strip().lower())


def split_words() -> str:
    """The words that `split_named` knows, for messages."""
    return ", ".join(_SPLIT_OF)


def chosen_columns(given: Mapping[str, Any] | None) -> tuple[str, list[str], str | None]:
    """The names of the column of pictures, of those of captions, and of splits, if there is one.

    given: image, a text; caption, a text or a list of texts; split, a text or None; what is absent is in `COLUMNS`.
    Raises InputError for other keys and values.
    """
    for key in given or {}:
        require(
            key in COLUMNS, f"columns.{key} is no setting{nearest(key, COLUMNS)}; choose among {', '.join(COLUMNS)}"
        )
    named = {**COLUMNS, **(given or {})}
    captions = named["caption"] if isinstance(named["caption"], list | tuple) else [named["caption"]]
    for key, words in (("image", [named["image"]]), ("caption", captions), ("split", [named["split"]])):
        allowed = all((isinstance(one, str) and one) or (key == "split" and one is None) for one in words)
        require(bool(words) and allowed, f"columns.{key} is {named[key]!r}; expected the name of a column")
    require(
        len(set(captions)) == len(captions), f"columns.caption names a column twice: {', '.join(map(str, captions))}"
    )
    return named["image"], list(captions), named["split"]

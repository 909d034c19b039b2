"""What `vsehub search` looks through: a split, a folder of pictures, or a collection in a database."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from omegaconf import DictConfig

from vsehub.checks import existing, fail, nearest, require
from vsehub.cli.shown import Shown, hits_of
from vsehub.criteria.base import Criterion
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.evaluation.trained import FOLDER, DataModel
from vsehub.io.text import read_lines
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.pages.gallery import Gallery, GalleryEntry
from vsehub.report.pages.templates import Thumbnails
from vsehub.report.tables import criterion_text
from vsehub.rerank.names import Names
from vsehub.serving.databases.collection import open_collection
from vsehub.serving.databases.engines import Place, placed


class Searched(Protocol):
    """What is searched. title: of the page. summary: a sentence on it. thumbnails: of the pictures shown so far."""

    title: str
    summary: str
    thumbnails: Thumbnails

    def of_texts(self, texts: Sequence[str], notes: Sequence[Sequence[str]]) -> list[Gallery]:
        """The pictures that each text finds. notes: on each text."""

    def of_image(self, image: str) -> Gallery:
        """The captions that an image finds. Raises InputError where there are no captions."""


@dataclass(frozen=True)
class RankedBy:
    """How results are ranked: the k best under a criterion, which is fitted on a split, or on the texts of a file."""

    name: str
    criterion: Criterion
    k: int
    reference: str


class SearchedSplit:
    """A split of a model's data, or the pictures of a folder, which have no captions."""

    def __init__(self, model: DataModel, split: str, by: RankedBy, images: str | None):
        self._model, self._split, self._by = model, split, by
        self._images = model.split(split)
        self._shown = Shown(self._images, images, plain=not by.criterion.needs_reference)
        self.thumbnails = self._shown.thumbnails
        count = f"{len(self._images.images):,} images"
        if split == FOLDER:
            self.title, self.summary = "Found in the folder", f"The folder: {count}."
        else:
            source = model.source.name
            captions = f"{len(self._images.captions):,} captions"
            self.title, self.summary = f"Found in {source}", f"The {split} split of {source}: {count} with {captions}."
        self._reference_rows: int | None = None
        if by.criterion.needs_reference and by.reference not in SPLITS:
            texts = read_lines(existing("reference", by.reference, "Give one text on each line, or a split"), "text")
            model.use_reference(by.reference, texts)
            self._reference_rows = len(texts)

    def of_texts(self, texts: Sequence[str], notes: Sequence[Sequence[str]]) -> list[Gallery]:
        """See `Searched`."""
        said, by = self._said("captions"), self._by
        found = hits_of(self._model.search(texts, by.k, by.criterion, self._split, by.reference))
        return [
            self._shown.of_text(text, [*own, said], hits) for text, own, hits in zip(texts, notes, found, strict=True)
        ]

    def of_image(self, image: str) -> Gallery:
        """See `Searched`."""
        require(self._split != FOLDER, "image finds captions, and a folder has none; give a text")
        by, row = self._by, image_row(image, self._images)
        require(
            self._reference_rows is None,
            f"reference: {by.reference} holds texts, and an image is asked; give a split, whose images are taken",
        )
        asked = self._images.images[row : row + 1]
        found = hits_of(self._model.search(None, by.k, by.criterion, self._split, by.reference, images=asked))
        return self._shown.of_image(row, [self._said("images")], found[0])

    def _said(self, asked: str) -> str:
        """A sentence on the criterion and its reference, if it takes one. asked: "captions" or "images"."""
        by = self._by
        text = criterion_text(by.name, ", ".join(f"{key} {value}" for key, value in by.criterion.parameters().items()))
        if not by.criterion.needs_reference:
            return f"Criterion {text}."
        if self._reference_rows is not None:
            return (
                f"Criterion {text}, inductive: its reference is the {self._reference_rows:,} texts of {by.reference}."
            )
        loaded = self._model.split(by.reference)
        count = len(loaded.captions if asked == "captions" else loaded.images)
        bank = ""
        if by.criterion.takes_reference_items:
            found, items = ("images", loaded.images) if asked == "captions" else ("captions", loaded.captions)
            bank = f" with its {len(items):,} {found}"
        return f"Criterion {text}, inductive: its reference is the {count:,} {asked} of the {by.reference} split{bank}."


class SearchedCollection:
    """A collection in a database that vsehub filled with vectors of the model; its own correction ranks.

    accept: a rate of false accepts, or None. Raises InputError for what the collection cannot do, before anything
    is encoded.
    """

    def __init__(self, model: DataModel, place: Place, k: int, images: str | None, accept: float | None = None):
        self._model, self._place, self._k, self._accept = model, place, k, accept
        with open_collection(place) as collection:
            metadata, count = collection.metadata, len(collection)
            if accept is not None:
                collection.threshold(accept)
        self.title = f"Found in {place.address}"
        parameters = ", ".join(f"{key} {value}" for key, value in metadata.parameters.items())
        self._said = f"Criterion {criterion_text(metadata.criterion, parameters)}, as the collection was filled."
        self.summary = f"{place.address}: {count:,} items."
        self._images = None if images is None else existing("images", images, "Give the folder of the pictures")
        require(self._images is None or self._images.is_dir(), f"images: {images} is a file; give a folder")
        self.thumbnails = Thumbnails()
        require(k <= count, f"k is {k}; expected at most {count}, the number of items in {place.address}")

    def of_texts(self, texts: Sequence[str], notes: Sequence[Sequence[str]]) -> list[Gallery]:
        """See `Searched`. Ids are taken as the names of pictures in the folder `images`."""
        require(
            self._model.similarity.inner_product,
            f"{self._model.name} was trained with a similarity that is no inner product; a database needs one",
        )
        queries = as_vectors("queries", self._model.similarity.vectors(self._model.encode_texts(texts)).cpu())
        with open_collection(self._place) as collection:
            require(
                queries.shape[1] == collection.metadata.dim,
                f"{self._model.name} gives vectors of {queries.shape[1]} dimensions, and {self._place.address} holds "
                f"{collection.metadata.dim}; give the model whose vectors fill it",
            )
            lists = collection.find(queries, self._k, self._accept)
        galleries = []
        for text, own, hits in zip(texts, notes, lists, strict=True):
            names = Names("items", len(hits), ids=[hit.id for hit in hits], images=self._images)
            found = [
                GalleryEntry(row + 1, f"{hit.score:.4f}", None, hit.id, hit.label, self._thumbnail(names, row))
                for row, hit in enumerate(hits)
            ]
            nothing = [] if hits or self._accept is None else [f"Nothing here at accept={self._accept:g}."]
            said = [*own, *nothing, self._said]
            galleries.append(Gallery(f"“{text}”", said, found, self._images is not None))
        return galleries

    def of_image(self, image: str) -> Gallery:
        """See `Searched`."""
        fail("image finds captions of a split; a collection is searched by texts")

    def _thumbnail(self, names: Names, row: int) -> str | None:
        if self._images is None:
            return None
        name = str(names.of(row)["id"])
        return self.thumbnails(names.image(row) or Path(name), name)


def open_searched(cfg: DictConfig, model: DataModel, by: RankedBy) -> Searched:
    """What the configuration of `search` names. Raises InputError for what cannot be searched."""
    if cfg.index is not None:
        uri = None if cfg.index_uri is None else str(cfg.index_uri)
        place = placed(str(cfg.index), uri, str(cfg.index_name), None)
        return SearchedCollection(model, place, by.k, cfg.images, cfg.accept)
    if cfg.folder is None:
        return SearchedSplit(model, cfg.split, by, cfg.images)
    count = len(model.use_folder(cfg.folder).images)
    return SearchedSplit(model, FOLDER, RankedBy(by.name, by.criterion, min(by.k, count), by.reference), cfg.images)


def image_row(image: str, split: "CaptionedImages") -> int:
    """The row of an image, given by its name or its row number. Raises InputError if there is none."""
    names = split.names or []
    if image in names:
        return names.index(image)
    if image.isdecimal() and int(image) < len(split.images):
        return int(image)
    hint = nearest(image, names) or (f"; the first name is {names[0]}" if names else "")
    fail(f"image: the split has no image {image!r}{hint}. Give a name or a row from 0 to {len(split.images) - 1}")

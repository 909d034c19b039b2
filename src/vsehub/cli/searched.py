"""The search of `vsehub search`: in a split, in a folder of pictures, or in a collection of a database."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from omegaconf import DictConfig

from vsehub.checks import existing, fail, nearest, require
from vsehub.criteria.base import Criterion
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.evaluation.trained import FOLDER, DataModel, Hits
from vsehub.io.text import read_lines
from vsehub.neighbors.vectors import as_vectors
from vsehub.ranking.inputs import Names
from vsehub.report.pages.gallery import Gallery, GalleryEntry
from vsehub.report.pages.templates import Thumbnails
from vsehub.report.tables import criterion_text
from vsehub.serving.databases.collection import open_collection
from vsehub.serving.databases.engines import placed


class Found(NamedTuple):
    """The results. title: of the page. summary: a sentence on what was searched. thumbnails: of the pictures shown."""

    title: str
    summary: str
    galleries: list[Gallery]
    thumbnails: Thumbnails


class ResultPictures:
    """A split's images by name and thumbnail. folder: of the image files; None: the split's own pixels, if it has any.

    Raises InputError if there is a folder and the split does not name its files.
    """

    def __init__(self, split: CaptionedImages, folder: str | None):
        path = None if folder is None else existing("images", folder, "Give the folder of the image files, or omit it")
        self.split, self.files = split, Names("images", len(split.images), ids=split.names, images=path)
        self.shown = folder is not None or (split.images.ndim == 4 and split.images.shape[1] == 3)
        self.thumbnails = Thumbnails()

    def name(self, row: int) -> str:
        """The image's file name, or "row ROW" if it has none."""
        return f"row {row}" if self.split.names is None else self.split.names[row]

    def thumbnail(self, row: int) -> str | None:
        """The image as a data URL; None if it cannot be shown."""
        if not self.shown:
            return None
        if self.files.images is None:
            return self.thumbnails(np.asarray(self.split.images[row]), self.name(row))
        return self.thumbnails(self.files.image(row) or Path(self.name(row)), self.name(row))


def search_split(
    cfg: DictConfig, model: DataModel, criterion: Criterion, name: str, texts: Sequence[str], notes: Sequence[list[str]]
) -> Found:
    """The pictures of a split, or of `cfg.folder`, that texts find, and the captions that `cfg.image` finds.

    name: of the criterion, which is fitted on the split `cfg.reference` or on the texts of a file. notes: on each text.
    """
    k, split, reference, plain = cfg.k, cfg.split, str(cfg.reference), not criterion.needs_reference
    if cfg.folder is not None:
        require(cfg.image is None, "image finds captions, and a folder has none; give a text")
        split, k = FOLDER, min(k, len(model.use_folder(cfg.folder).images))
    images = model.split(split)
    pictures = ResultPictures(images, cfg.images)
    lines = None
    if not plain and reference not in SPLITS:
        lines = read_lines(existing("reference", reference, "Give one text on each line, or a split"), "text")
        model.use_reference(reference, lines)
    galleries = []
    if texts:
        said = _said(model, criterion, name, reference, lines, "captions")
        hits = results(model.search(texts, k, criterion, split, reference), plain)
        for text, own, rows in zip(texts, notes, hits, strict=True):
            entries = [
                GalleryEntry(
                    *(rank, score, similarity, pictures.name(row)), first_caption(images, row), pictures.thumbnail(row)
                )
                for rank, row, score, similarity in rows
            ]
            galleries.append(Gallery(f"“{text}”", [*own, said], entries, pictures.shown))
    if cfg.image is not None:
        asked = image_row(str(cfg.image), images)
        require(
            lines is None, f"reference: {reference} holds texts, and an image is asked; give a split, whose images fit"
        )
        pixels, captions = images.images[asked : asked + 1], set(images.captions_of(asked))
        (rows,) = results(model.search(None, k, criterion, split, reference, images=pixels), plain)
        entries = [
            GalleryEntry(rank, score, similarity, None, images.text_of(row), own=row in captions)
            for rank, row, score, similarity in rows
        ]
        mine = sum(one.own for one in entries)
        count = f"{mine} of its {len(captions)} own captions are among the {len(entries)} nearest."
        said = _said(model, criterion, name, reference, lines, "images")
        asked_as = pictures.name(asked), pictures.thumbnail(asked)
        galleries.append(Gallery(f"Captions of {asked_as[0]}", [count, said], entries, False, *asked_as))
    size = f"{len(images.images):,} images"
    if split == FOLDER:
        return Found("Found in the folder", f"The folder: {size}.", galleries, pictures.thumbnails)
    source = model.source.name
    summary = f"The {split} split of {source}: {size} with {len(images.captions):,} captions."
    return Found(f"Found in {source}", summary, galleries, pictures.thumbnails)


def results(found: Hits, plain: bool) -> Iterator[list[tuple[int, int, str, str | None]]]:
    """Rank, row, score and similarity of each query's hits, best first.

    plain: the scores are the similarities, which are then None.
    """
    for query in zip(*(field.tolist() for field in found), strict=True):
        yield [
            (rank, row, f"{score:.4f}", None if plain else f"{similarity:.4f}")
            for rank, (row, score, similarity) in enumerate(zip(*query, strict=True), 1)
        ]


def first_caption(split: CaptionedImages, row: int) -> str:
    """The first caption of an image; "" if it has none."""
    return next((split.text_of(text) for text in split.captions_of(row)), "")


def _said(
    model: DataModel, criterion: Criterion, name: str, reference: str, lines: Sequence[str] | None, asked: str
) -> str:
    """A sentence on the criterion and its reference, if it takes one. asked: "captions" or "images"."""
    text = criterion_text(name, ", ".join(f"{key} {value}" for key, value in criterion.parameters().items()))
    if not criterion.needs_reference:
        return f"Criterion {text}."
    if lines is not None:
        return f"Criterion {text}, inductive: its reference is the {len(lines):,} texts of {reference}."
    loaded = model.split(reference)
    sides = {"captions": len(loaded.captions), "images": len(loaded.images)}
    count, bank = sides.pop(asked), ""
    if criterion.takes_reference_items:
        bank = " with its " + " ".join(f"{items:,} {kind}" for kind, items in sides.items())
    return f"Criterion {text}, inductive: its reference is the {count:,} {asked} of the {reference} split{bank}."


def search_collection(cfg: DictConfig, model: DataModel, texts: Sequence[str], notes: Sequence[list[str]]) -> Found:
    """The items of a collection that texts find, ranked by its own correction; ids name the pictures in `cfg.images`.

    The collection must hold vectors of the model. `cfg.accept`: a rate of false accepts, or None.
    """
    require(cfg.image is None, "image finds captions of a split; a collection is searched by texts")
    require(
        model.similarity.inner_product,
        f"{model.name} was trained with a similarity that is not an inner product; a database needs one",
    )
    place = placed(cfg.engine, None if cfg.uri is None else str(cfg.uri), str(cfg.collection), None)
    folder = None if cfg.images is None else existing("images", cfg.images, "Give the folder of the pictures")
    with open_collection(place) as collection:
        metadata, count = collection.metadata, len(collection)
        require(cfg.k <= count, f"k is {cfg.k}; expected at most {count}, the number of items in {place.address}")
        queries = as_vectors("queries", model.similarity.vectors(model.encode_texts(texts)).cpu())
        require(
            queries.shape[1] == metadata.dim,
            f"{model.name} gives vectors of {queries.shape[1]} dimensions, and {place.address} holds {metadata.dim}; "
            "give the model whose vectors fill it",
        )
        lists = collection.find(queries, cfg.k, cfg.accept)
    parameters = ", ".join(f"{key} {value}" for key, value in metadata.parameters.items())
    said = f"Criterion {criterion_text(metadata.criterion, parameters)}, as the collection was filled."
    thumbnails, galleries = Thumbnails(), []
    for text, own, hits in zip(texts, notes, lists, strict=True):
        names, entries = Names("items", len(hits), ids=[hit.id for hit in hits], images=folder), []
        for row, hit in enumerate(hits):
            picture = None if folder is None else thumbnails(names.image(row) or Path(hit.id), hit.id)
            entries.append(GalleryEntry(row + 1, f"{hit.score:.4f}", None, hit.id, hit.label, picture))
        nothing = [] if hits or cfg.accept is None else [f"Nothing here at accept={cfg.accept:g}."]
        galleries.append(Gallery(f"“{text}”", [*own, *nothing, said], entries, folder is not None))
    return Found(f"Found in {place.address}", f"{place.address}: {count:,} items.", galleries, thumbnails)


def image_row(image: str, split: CaptionedImages) -> int:
    """The row of an image, given by its name or its row number. Raises InputError if there is none."""
    names = split.names or []
    if image in names:
        return names.index(image)
    if image.isdecimal() and int(image) < len(split.images):
        return int(image)
    hint = nearest(image, names) or (f"; the first name is {names[0]}" if names else "")
    fail(f"image: the split has no image {image!r}{hint}. Give a name or a row from 0 to {len(split.images) - 1}")

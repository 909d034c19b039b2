"""The contents that are served: a split of a model's data, files of vectors, or a collection in a database."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.data.sources import CaptionedImages
from vsehub.evaluation.trained import DataModel
from vsehub.evaluation.words import word_notes
from vsehub.io.arrays import open_picture
from vsehub.metrics.positives import Positives
from vsehub.ranking.inputs import Inputs, Names, Sides

MOST_PIXELS = 64_000_000  # of an uploaded picture


# row -> its picture's file or pixels (3, H, W); None where there is none
Pictured = Callable[[int], Path | np.ndarray | None]


@dataclass(frozen=True)
class Uploaded:
    """A picture in the body of a request."""

    content: bytes

    def read(self) -> bytes:
        """The bytes of the file."""
        return self.content

    def __str__(self) -> str:
        return "the picture"


class Asker:
    """Turns sentences and pictures into queries by a model whose similarity is an inner product of vectors.

    Raises InputError for another similarity.
    """

    def __init__(self, model: DataModel, normalize: bool | None = None):
        require(
            model.similarity.inner_product,
            f"{model.name} was trained with {type(model.similarity).__name__}, which is not an inner product of "
            "vectors; serve needs one",
        )
        self._model, self._normalize = model, normalize

    @property
    def reads(self) -> bool:
        """True if the model encodes sentences."""
        return self._model.vocabulary is not None

    @property
    def sees(self) -> bool:
        """True if the model encodes pictures."""
        return self._model.takes_pictures

    def notes(self, text: str) -> list[str]:
        """Notes on words of a text that the model does not know or read. Raises InputError if all words are unknown."""
        assert self._model.vocabulary is not None
        return word_notes(text, self._model.vocabulary, self._model.max_words)

    @torch.no_grad()
    def texts(self, texts: Sequence[str]) -> Tensor:
        """The vectors of texts (n, D), on the CPU."""
        return self._unit(self._model.similarity.vectors(self._model.encode_texts(list(texts))))

    @torch.no_grad()
    def picture(self, content: bytes) -> Tensor:
        """The vector of a picture (1, D), on the CPU. Raises InputError as `require_small`."""
        require_small(content)
        return self._unit(self._model.similarity.vectors(self._model.encode_picture(Uploaded(content))))

    def _unit(self, vectors: Tensor) -> Tensor:
        vectors = vectors.detach().float().cpu()
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors


def require_small(content: bytes) -> None:
    """Raise InputError unless the bytes are a picture of at most `MOST_PIXELS`; only the header is read."""
    try:
        with open_picture(io.BytesIO(content)) as file:
            pixels = file.width * file.height
    except Exception:  # Pillow's readers can raise almost anything for damaged files
        pixels = 0
    require(
        0 < pixels <= MOST_PIXELS,
        f"the picture cannot be read; send a JPEG, PNG or WebP file of at most {MOST_PIXELS // 10**6} million pixels",
    )


@dataclass(frozen=True, eq=False)
class Contents:
    """The opened contents.

    title: in words. inputs: queries, items, what criteria are fitted on, true pairs, and names.
    picture: of an item. asker: what encodes sentences and pictures; None if only vectors can be asked. normalize:
    whether vectors that are asked are divided by their norms. stored: criterion -> (a, b) of a result that has its own
    correction. thresholds: rate -> the score of that criterion above which a first item is accepted at this rate of
    `vsehub calibrate`. changed: whether the files or the collection have changed since they were opened.
    """

    title: str
    inputs: Inputs
    picture: Pictured
    facts: Sequence[tuple[str, str]] = ()
    asker: Asker | None = None
    normalize: bool | None = None
    stored: Mapping[str, tuple[float, Tensor]] = field(default_factory=dict)
    thresholds: Mapping[float, float] = field(default_factory=dict)
    changed: Callable[[], bool] = lambda: False

    @property
    def asked_by_items(self) -> bool:
        """True if the items are also the queries, because no others were given."""
        return self.inputs.query_names is self.inputs.item_names


def of_split(model: DataModel, split: str, reference: str, images: str | None) -> Contents:
    """A split of a model's data: captions find images. reference: the split whose captions fit the criteria."""
    asker, loaded = Asker(model), model.split(split)
    vectors = model.similarity.vectors
    found, fitted = model.encode(split), model.encode(reference)
    # Captions may be in any order: the number of its image goes with each.
    captions, pictures = vectors(found.texts).detach().cpu(), vectors(found.images).detach().cpu()
    owner = torch.as_tensor(np.asarray(loaded.image_index))
    positives = Positives.from_pairs(torch.arange(len(captions)), owner, len(captions), len(pictures), complete=False)
    seen = None if reference == split else vectors(fitted.texts).detach().cpu()
    sides = Sides.of(captions, pictures, seen, positives=positives)
    texts = [loaded.text_of(row) for row in range(len(captions))]
    first: dict[int, str] = {}
    for row, image in enumerate(owner.tolist()):
        first.setdefault(image, texts[row])
    labels = [first.get(row, "") for row in range(len(pictures))]
    files = None if images is None else existing("images", images, "Give the folder of the image files")
    item_names = Names("items", len(pictures), ids=loaded.names, labels=labels, images=files)
    title = f"The {split} split of {model.source.name}: {len(pictures):,} images, {len(captions):,} captions"
    fitted_on = "the captions themselves" if seen is None else f"{len(seen):,} captions of the {reference} split"
    return Contents(
        title,
        Inputs(sides, Names("queries", len(captions), labels=texts), item_names),
        _pixels(loaded) if files is None else _files(item_names),
        [("criteria are fitted on", f"{fitted_on} ({'transductive' if seen is None else 'inductive'})")],
        asker,
    )


def _pixels(loaded: CaptionedImages) -> Pictured:
    """The pictures of a split that holds pixels."""
    if loaded.images.ndim == 4 and loaded.images.shape[1] == 3:
        return lambda row: np.asarray(loaded.images[row])
    return lambda row: None


def _files(names: Names) -> Pictured:
    """The files of named items."""
    return lambda row: None if (file := names.image(row)) is None else Path(file)


def of_files(
    inputs: Inputs,
    asker: Asker | None,
    normalize: bool | None,
    stored: Mapping[str, tuple[float, Tensor]] | None = None,
    thresholds: Mapping[float, float] | None = None,
) -> Contents:
    """Opened vector files; the items are also the queries if both are the same object. Others: as in `Contents`."""
    itself = inputs.given["queries"] == inputs.given["items"]
    items = inputs.item_names
    title = f"{len(inputs.sides.items):,} items of {inputs.sides.items.shape[1]:,} dimensions"
    title += "" if itself else f", {len(inputs.sides.queries):,} queries"
    reference = "the queries themselves (transductive)"
    if itself:
        reference = "the items themselves: without queries, each item asks"
    elif inputs.sides.reference is not None:
        reference = f"{len(inputs.sides.reference):,} other queries (inductive)"

    return Contents(
        title,
        replace(inputs, query_names=items) if itself else inputs,
        _files(items),
        [("criteria are fitted on", reference)],
        asker,
        normalize,
        stored or {},
        thresholds or {},
        lambda: bool(inputs.changed()),
    )

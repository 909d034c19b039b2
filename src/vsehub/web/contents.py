"""The contents that are served: a split of a model's data, or a result of `vsehub rerank`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.data.sources import CaptionedImages
from vsehub.models.trained import DataModel
from vsehub.positives import Positives
from vsehub.ranking.inputs import Inputs, Names, Sides, read_images

# row -> its picture's file or pixels (3, H, W); None without a picture
Pictured = Callable[[int], str | np.ndarray | None]


class Asker:
    """Turns sentences into queries by a model whose similarity is an inner product of vectors.

    vocabulary: words of the model; None if it encodes no sentences. Raises InputError for another similarity.
    """

    def __init__(self, model: DataModel, normalize: bool | None = None):
        require(
            model.similarity.inner_product,
            f"{model.name} was trained with {type(model.similarity).__name__}, which is not an inner product of "
            "vectors; serve needs one",
        )
        self._model, self._normalize, self.vocabulary = model, normalize, model.vocabulary

    @torch.no_grad()
    def ask(self, text: str) -> tuple[Tensor, list[str]]:
        """The vector of a text (1, D), on the CPU, and notes on words that the model does not know or read.

        Raises InputError if all words are unknown.
        """
        notes = self._model.notes(text)
        vectors = self._model.similarity.vectors(self._model.encode_texts([text])).detach().float().cpu()
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors, notes


@dataclass(frozen=True, eq=False)
class Contents:
    """The opened contents.

    title: name of the collection. inputs: queries, items, what criteria are fitted on, true pairs, and names. picture:
    function that returns an item's picture. fitted_on: description of the criteria's reference. asker: encoder of
    sentences, or None. stored: criterion -> (a, b) of a result that has its own correction. thresholds: rate -> the
    score of that criterion above which a first item is accepted at this rate of `vsehub calibrate`.
    """

    title: str
    inputs: Inputs
    picture: Pictured
    fitted_on: str = ""
    asker: Asker | None = None
    stored: Mapping[str, tuple[float, Tensor]] = field(default_factory=dict)
    thresholds: Mapping[float, float] = field(default_factory=dict)


def of_split(model: DataModel, split: str, reference: str, images: str | None) -> Contents:
    """A split of a model's data: captions find images. reference: the split whose captions fit the criteria."""
    asker, loaded = Asker(model), model.split(split)
    vectors = model.similarity.vectors
    encoded, fitted = model.encode(split), model.encode(reference)
    captions, pictures = vectors(encoded.texts).detach().cpu(), vectors(encoded.images).detach().cpu()
    images_of, captions_of = torch.from_numpy(loaded.pairs).unbind(dim=1)
    positives = Positives.from_pairs(captions_of, images_of, len(captions), len(pictures))
    reference_texts = None if reference == split else vectors(fitted.texts).detach().cpu()
    sides = Sides.of(captions, pictures, reference_texts, positives=positives)
    texts = [loaded.text_of(row) for row in range(len(captions))]
    first = {image: texts[row] for image, row in loaded.pairs[::-1].tolist()}
    labels = [first.get(row, "") for row in range(len(pictures))]
    files = None if images is None else read_images(images)
    item_names = Names("items", len(pictures), ids=loaded.names, labels=labels, images=files)
    fitted_on = (
        "the captions themselves"
        if reference_texts is None
        else f"{len(reference_texts):,} captions of the {reference} split"
    )
    return Contents(
        f"The {split} split of {model.source.name}: {len(pictures):,} images, {len(captions):,} captions",
        Inputs(sides, Names("queries", len(captions), labels=texts), item_names),
        _pixels(loaded) if files is None else item_names.image,
        f"{fitted_on} ({'transductive' if reference_texts is None else 'inductive'})",
        asker,
    )


def _pixels(loaded: CaptionedImages) -> Pictured:
    """The pictures of a split that holds pixels."""
    if len(loaded.images.shape) == 4 and loaded.images.shape[1] == 3:
        return lambda row: np.asarray(loaded.images[row])
    return lambda row: None


def of_result(
    inputs: Inputs, asker: Asker | None, stored: Mapping[str, tuple[float, Tensor]], thresholds: Mapping[float, float]
) -> Contents:
    """The files of a reranking, opened; the other arguments are those of `Contents`."""
    require(not inputs.sides.within, "result: pages show what queries find; rerank with queries=FILE")
    items, queries, reference = inputs.sides.items, inputs.sides.queries, inputs.sides.reference
    others = "" if reference is None else f"{len(reference):,} other queries (inductive)"
    return Contents(
        f"{len(items):,} items of {items.shape[1]:,} dimensions, {len(queries):,} queries",
        inputs,
        inputs.item_names.image,
        others or "the queries themselves (transductive)",
        asker,
        stored,
        thresholds,
    )

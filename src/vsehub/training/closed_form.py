"""Regularised CCA as a model: fitted to the training split, its settings chosen on the validation split."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, finite_number, require, whole
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import SPECIALS, Vocabulary
from vsehub.encoders import ImageFeatures, TextBag, TextFeatures
from vsehub.encoders.cca import Cca, LinearMap, tf_idf
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.io.progress import bar
from vsehub.models.checkpoint import write_checkpoint
from vsehub.models.encode import EncodedSplit, encode_split
from vsehub.models.hub import SUFFIX
from vsehub.similarities.cosine import Cosine
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule
from vsehub.training.run_record import RunRecorder


@dataclass(frozen=True)
class FittedCca:
    """CCA under the chosen settings.

    images, texts: the maps of unit rows, of `dim` dimensions. weights: weights of the vocabulary's words (words,), None
    where texts are vectors. chosen: the settings. rsum: on the validation split. seconds: the time that the fit took.
    """

    images: LinearMap
    texts: LinearMap
    weights: Tensor | None
    chosen: dict[str, float] = field(default_factory=dict)
    rsum: float = 0.0
    seconds: float = 0.0

    @property
    def dim(self) -> int:
        """D."""
        return self.images.directions.shape[1]

    def put_into(self, image_encoder: torch.nn.Module, text_encoder: torch.nn.Module) -> None:
        """Make encoders of `dim` dimensions compute the maps. Raises InputError for encoders of another kind."""
        if not (isinstance(image_encoder, ImageFeatures) and isinstance(text_encoder, TextBag | TextFeatures)):
            fail(
                "CCA gives linear encoders; choose image_encoder=image_features, and text_encoder=text_bag for "
                "captions or text_features for vectors"
            )
        self.images.put_into(image_encoder)
        self.texts.put_into(text_encoder)
        if isinstance(text_encoder, TextBag) and self.weights is not None:
            text_encoder.weights.copy_(self.weights)

    def store(self, module: RetrievalModule, recorder: RunRecorder) -> Path:
        """Make the module's encoders compute the maps, and write the run's files as a training does.

        Returns the checkpoint.
        """
        self.put_into(module.image_encoder, module.text_encoder)
        recorder.record["solved"] = self.chosen
        recorder.add_row({"epoch": 0, "step": 0, "seconds": self.seconds, "val/rsum": self.rsum})
        best = recorder.folder / "checkpoints" / f"best{SUFFIX}"
        best.parent.mkdir(parents=True, exist_ok=True)
        write_checkpoint(best, module.state_dict(), module.description)
        recorder.write()
        return best


class CcaSolver:
    """Trains by regularised CCA instead of gradient steps: `solver=cca` tries every combination of the settings.

    images, texts: regularisations of each side, added to the variances in units of their mean. dimensions: numbers of
    directions, at most those available. powers: powers of the correlations that scale the directions. Raises
    InputError for an empty list, regularisations that are not above 0, dimensions that are not whole numbers from 1 up,
    or powers below 0.
    """

    def __init__(
        self,
        images: Sequence[float] = (0.3, 1.0, 3.0, 10.0),
        texts: Sequence[float] = (0.3, 1.0, 3.0),
        dimensions: Sequence[int] = (32, 64, 96, 128, 192, 256),
        powers: Sequence[float] = (0.0, 0.5, 1.0),
    ):
        # A regularisation of 0 would divide by the variance of directions that the data lack.
        finite_number("solver.images", min(images, default=None), 1e-12)
        finite_number("solver.texts", min(texts, default=None), 1e-12)
        finite_number("solver.powers", min(powers, default=None), 0)
        whole("solver.dimensions", min(dimensions, default=None))
        self.image_ridges, self.text_ridges = tuple(map(float, images)), tuple(map(float, texts))
        self.dimensions, self.powers = tuple(sorted(dimensions)), tuple(map(float, powers))

    def fit(self, data: RetrievalDataModule, protocol: Protocol) -> FittedCca:
        """CCA of the training split under the settings that give the largest rsum on the validation split.

        rsum is that of plain search by `protocol`. Among equal values the first wins, in the order of images, texts,
        dimensions and powers. Raises InputError for images that are not vectors, or captions in subwords.
        """
        start = time.perf_counter()
        train, table = data.load("train")
        require(
            len(train.images.shape) == 2,
            f"CCA takes one feature vector an image, but the data's images have shape {tuple(train.images.shape[1:])}; "
            "extract features first: vsehub extract --help",
        )
        weights = None
        if isinstance(table, TokenTable):
            vocabulary = data.vocabulary
            if not isinstance(vocabulary, Vocabulary):
                fail("CCA counts words; leave loader.tokenizer out, whose subwords depend on their order")
            texts, weights = tf_idf(table.tokens, table.offsets, len(vocabulary), len(SPECIALS))
        else:
            texts = table.vectors
        cca = Cca(train.images, texts, train.pairs)
        best: FittedCca | None = None
        split = data.load("val")[0]
        for image_ridge, text_ridge in bar(
            "choosing", list(itertools.product(self.image_ridges, self.text_ridges)), unit=" fits"
        ):
            image_map, text_map, correlations = cca.fit(image_ridge, text_ridge, self.dimensions[-1])
            encoded = _encode_validation(data, FittedCca(image_map, text_map, weights))
            for dimension, power in itertools.product(self.dimensions, self.powers):
                factors = correlations[:dimension] ** power
                scaled_images, scaled_texts = (
                    side[:, : len(factors)] * torch.from_numpy(factors).float() for side in encoded
                )
                evaluation = evaluate(
                    EncodedSplit.from_encodings(split, scaled_images, scaled_texts),
                    Cosine(),
                    NearestNeighbor(),
                    protocol,
                )
                if best is None or evaluation.metrics["rsum"] > best.rsum:
                    chosen = {"images": image_ridge, "texts": text_ridge, "dimensions": len(factors), "power": power}
                    best = FittedCca(
                        image_map.scaled(factors), text_map.scaled(factors), weights, chosen, evaluation.metrics["rsum"]
                    )
        assert best is not None  # no list is empty
        return replace(best, seconds=time.perf_counter() - start)


def _encode_validation(data: RetrievalDataModule, fitted: FittedCca) -> tuple[Any, Any]:
    """The images (I, D) and texts (T, D) of the validation split under `fitted`, on the CPU."""
    split, table = data.load("val")
    images = ImageFeatures(split.images.shape[1:], fitted.dim)
    texts = (
        TextBag(len(data.vocabulary or ()), fitted.dim)
        if isinstance(table, TokenTable)
        else TextFeatures(table.vectors.shape[1:], fitted.dim)
    )
    fitted.put_into(images, texts)
    encoded = encode_split(images, texts, split, table, data.eval_batch_size)
    return encoded.images, encoded.texts

"""A split searched with a checkpoint: texts find its images, an image finds its captions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsehub.cli.encoded_cache import EncodedCache
from vsehub.criteria.parameters import parameters
from vsehub.data.captioned import CaptionedImages
from vsehub.data.tokens import TokenTable
from vsehub.data.words import Words
from vsehub.evaluation.checkpoint import Model
from vsehub.evaluation.encode import encode_images, encode_texts
from vsehub.report.tables import criterion_text


class Hit(NamedTuple):
    """A found row: its score under the criterion, and its plain similarity to the query."""

    row: int
    score: float
    similarity: float


@dataclass(frozen=True, eq=False)
class SplitSearch:
    """Searches the split `split` with the criterion `rule`, which reports call `criterion_name`.

    load: gives a split by its name. reference: the split whose captions (an image as query: images) a criterion takes
    as reference queries. kept: where encoded splits are kept. max_words: as in training, longer texts are cut.
    """

    model: Model
    vocabulary: Words
    load: Callable[[str], CaptionedImages]
    split: str
    rule: Any
    criterion_name: str
    reference: str
    kept: EncodedCache
    max_words: int | None = None
    batch_size: int = 256

    def images_for(self, texts: list[str], k: int) -> list[list[Hit]]:
        """The k best images of each text, best first."""
        table = TokenTable.build(self.vocabulary, texts, self.max_words)
        queries = encode_texts(self.model.text_encoder, table, np.arange(len(table)), self.batch_size)
        return self._search(queries, "images", "captions", k)

    def captions_for(self, row: int, k: int) -> list[Hit]:
        """The k best captions of the image `row` of the split, best first."""
        queries = encode_images(
            self.model.image_encoder, self.load(self.split).images, np.array([row]), self.batch_size
        )
        return self._search(queries, "captions", "images", k)[0]

    def told(self, asking: str) -> str:
        """The criterion and, where it takes one, its reference; asking: "captions" or "images", as the queries are."""
        name = criterion_text(self.criterion_name, ", ".join(f"{n} {v}" for n, v in parameters(self.rule).items()))
        if not self.rule.needs_reference:
            return f"Criterion {name}."
        loaded = self.load(self.reference)
        count = len(loaded.captions if asking == "captions" else loaded.images)
        return f"Criterion {name}, inductive: its reference is the {count:,} {asking} of the {self.reference} split."

    @torch.no_grad()
    def _search(self, queries: Tensor, items: str, asking: str, k: int) -> list[list[Hit]]:
        vectors = self.model.similarity.vectors
        queries, found = vectors(queries), vectors(self._encoded(self.split, items))
        reference = vectors(self._encoded(self.reference, asking)) if self.rule.needs_reference else None
        scores, rows = self.rule.search(queries, found, reference, k)
        similarities = torch.einsum("qd,qkd->qk", queries, found[rows])
        columns = zip(rows.tolist(), scores.tolist(), similarities.tolist(), strict=True)
        return [[Hit(*hit) for hit in zip(*one, strict=True)] for one in columns]

    def _encoded(self, split: str, side: str) -> Tensor:
        """A split's images or captions as the encoders give them, on their device."""
        loaded = self.load(split)
        encode = self._images if side == "images" else self._captions
        vectors = self.kept.get(f"{split}-{side}", loaded, lambda: encode(loaded))
        return vectors.to(next(self.model.parameters()).device)

    def _images(self, split: CaptionedImages) -> Tensor:
        rows = np.arange(len(split.images))
        return encode_images(self.model.image_encoder, split.images, rows, self.batch_size, progress=True)

    def _captions(self, split: CaptionedImages) -> Tensor:
        table = TokenTable.build(self.vocabulary, split.captions, self.max_words)
        return encode_texts(self.model.text_encoder, table, np.arange(len(table)), self.batch_size, progress=True)

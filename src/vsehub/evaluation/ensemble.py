"""Several models that rank together: the mean of their scores (SCAN's t-i + i-t, Lee 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.evaluation.encode import EncodedSplit
from vsehub.sets import Encoding
from vsehub.types import Similarity


@dataclass(frozen=True, eq=False)
class Several:
    """The same N images or texts as each of several models encodes them, vectors or sets, on one device."""

    parts: tuple[Encoding, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, index: slice | Tensor) -> "Several":
        """Those of a slice or of row numbers (n,)."""
        return Several(tuple(part[index] for part in self.parts))

    @property
    def device(self) -> torch.device:
        """Where the encodings are."""
        return self.parts[0].device


class MeanSimilarity(Similarity):
    """S[i, t] = the mean of the models' scores, each by its own similarity; two score matrices are held at a time."""

    takes = "several"

    def __init__(self, similarities: Sequence[Similarity]):
        super().__init__()
        self.similarities = tuple(similarities)

    @property
    def largest(self) -> float | None:
        """The mean of the bounds, None where one has none."""
        bounds = [similarity.largest for similarity in self.similarities]
        return None if None in bounds else sum(bounds) / len(bounds)

    def forward(self, images: Several, texts: Several) -> Tensor:
        """Scores (I, T) of images against texts, both encoded by as many models as there are similarities."""
        share, mean = 1 / len(self.similarities), None
        for similarity, *sides in zip(self.similarities, images.parts, texts.parts, strict=True):
            scores = similarity(*sides)
            mean = scores * share if mean is None else mean.add_(scores, alpha=share)
        return mean


def together(splits: Sequence[EncodedSplit]) -> EncodedSplit:
    """One split, encoded by several models, as one. Raises InputError where it is not the same split."""
    first = splits[0]
    for other in splits[1:]:
        same = torch.equal(first.image_index, other.image_index) and len(first.images) == len(other.images)
        require(same, "the models of an ensemble encoded different images or texts; encode the same split with each")
    images, texts = (Several(tuple(getattr(split, side) for split in splits)) for side in ("images", "texts"))
    return EncodedSplit(images, texts, first.image_index, first.pairs)

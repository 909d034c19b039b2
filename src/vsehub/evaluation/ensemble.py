"""Ensembles: several models that rank by the mean of their scores (SCAN's t-i + i-t, Lee 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.data.sources import CaptionedImages
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.trained import TrainedModel
from vsehub.sets import Encoding
from vsehub.types import Similarity


@dataclass(frozen=True, eq=False)
class Several:
    """The same N images or texts encoded by each of several models, vectors or sets, on one device."""

    parts: tuple[Encoding, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, index: slice | Tensor) -> "Several":
        """The encodings of a slice or of row numbers (n,)."""
        return Several(tuple(part[index] for part in self.parts))

    def to(self, device: torch.device | str) -> "Several":
        """The encodings on a device."""
        return Several(tuple(part.to(device) for part in self.parts))

    @property
    def device(self) -> torch.device:
        """The device of the encodings."""
        return self.parts[0].device


class MeanSimilarity(Similarity):
    """S[i, t] = the mean of the models' scores, each with its own similarity; holds two score matrices at a time."""

    takes = "several"

    def __init__(self, similarities: Sequence[Similarity]):
        super().__init__()
        self.similarities = tuple(similarities)

    @property
    def largest(self) -> float | None:
        """The mean of the bounds; None if a similarity has none."""
        bounds = [similarity.largest for similarity in self.similarities]
        known = [bound for bound in bounds if bound is not None]
        return sum(known) / len(known) if len(known) == len(bounds) else None

    def forward(self, images: Several, texts: Several) -> Tensor:
        """Scores (I, T) of images against texts, both encoded by as many models as there are similarities."""
        share = 1 / len(self.similarities)
        models = zip(self.similarities, images.parts, texts.parts, strict=True)
        similarity, own_images, own_texts = next(models)
        mean = similarity(own_images, own_texts) * share
        for similarity, own_images, own_texts in models:
            mean.add_(similarity(own_images, own_texts), alpha=share)
        return mean


def together(splits: Sequence[EncodedSplit]) -> EncodedSplit:
    """One encoded split from the encodings of several models.

    Raises InputError if they encoded different splits.
    """
    first = splits[0]
    for other in splits[1:]:
        same = torch.equal(first.image_index, other.image_index) and len(first.images) == len(other.images)
        require(same, "the models of an ensemble encoded different images or texts; encode the same split with each")
    images, texts = (Several(tuple(getattr(split, side) for split in splits)) for side in ("images", "texts"))
    return EncodedSplit(images, texts, first.image_index, first.pairs)


class Ensemble:
    """Several trained models that rank the splits of the first one's data together, each with its own vocabulary."""

    def __init__(self, members: Sequence[TrainedModel]):
        self.members = tuple(members)
        self.similarity = MeanSimilarity([member.similarity for member in members])
        for member in self.members[1:]:
            member.use_data(members[0].source, members[0].splits)

    @property
    def device(self) -> torch.device:
        """Where the first model computes."""
        return self.members[0].device

    @property
    def digests(self) -> list[str]:
        """The checkpoints' SHA-256, sorted: an ensemble is the same in any order."""
        return sorted(member.sha256 for member in self.members)

    @property
    def description(self) -> dict[str, Any]:
        """What a record says of the models beside their `digests`: nothing."""
        return {}

    def split(self, name: str) -> CaptionedImages:
        """A split of the data. Raises InputError if it is missing, or if its features do not fit every model."""
        splits = [member.split(name) for member in self.members]
        return splits[0]

    def encode(self, split: str) -> EncodedSplit:
        """A split, encoded by each of the models."""
        return together([member.encode(split) for member in self.members])

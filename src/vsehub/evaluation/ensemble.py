"""Ensembles: several models that rank by the weighted mean of their scores (SCAN's t-i + i-t, Lee 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vsehub.checks import is_finite, require
from vsehub.data.sources import CaptionedImages
from vsehub.models.encode import EncodedSplit
from vsehub.models.trained import TrainedModel
from vsehub.sets import Encoding
from vsehub.types import Similarity


@dataclass(frozen=True, eq=False)
class MemberEncodings:
    """The same N images or texts encoded by each of several models, vectors or sets, on one device."""

    parts: tuple[Encoding, ...]

    def __len__(self) -> int:
        return len(self.parts[0])

    def __getitem__(self, index: slice | Tensor) -> "MemberEncodings":
        """The encodings of a slice or of row numbers (n,)."""
        return MemberEncodings(tuple(part[index] for part in self.parts))

    def to(self, device: torch.device | str) -> "MemberEncodings":
        """The encodings on a device."""
        return MemberEncodings(tuple(part.to(device) for part in self.parts))

    @property
    def device(self) -> torch.device:
        """The device of the encodings."""
        return self.parts[0].device


class MeanSimilarity(Similarity):
    """S[i, t] = the mean of the models' scores, each with its own similarity; holds three score matrices at a time.

    weights: weights of the models, from 0 up, divided by their sum; None: equal. A model of weight 0 is not scored.
    Raises InputError for weights of another number, below 0, or whose sum is 0.
    """

    takes, largest = "several", None

    def __init__(self, similarities: Sequence[Similarity], weights: Sequence[float] | None = None):
        super().__init__()
        self.similarities = tuple(similarities)
        values = [1.0] * len(self.similarities) if weights is None else weights
        sound = isinstance(values, Sequence) and all(is_finite(weight) and weight >= 0 for weight in values)
        require(
            sound and len(values) == len(self.similarities) and sum(values) > 0,
            f"member_weights is {values!r}; expected a list of a number from 0 up for each of {len(self.similarities)} "
            f"models, at least one above 0, as in {[2, *[1] * (len(self.similarities) - 1)]}",
        )
        self.shares = tuple(weight / sum(values) for weight in values)

    def forward(self, images: MemberEncodings, texts: MemberEncodings) -> Tensor:
        """Scores (I, T) of images against texts, both encoded by as many models as there are similarities."""
        mean = torch.zeros(())
        for similarity, share, *sides in zip(self.similarities, self.shares, images.parts, texts.parts, strict=True):
            if share:
                mean = torch.add(mean, similarity(*sides), alpha=share)
        return mean


def joined_split(splits: Sequence[EncodedSplit]) -> EncodedSplit:
    """One encoded split from the encodings of the same split by several models."""
    images = MemberEncodings(tuple(split.images for split in splits))
    texts = MemberEncodings(tuple(split.texts for split in splits))
    return replace(splits[0], images=images, texts=texts)


class Ensemble:
    """Several trained models that rank the splits of the first one's data together, each with its own vocabulary.

    weights: weights of their scores; None: equal. digests: the checkpoints' SHA-256, with the shares where they differ,
    sorted: the order does not matter. description: the shares, for a record.
    """

    def __init__(self, members: Sequence[TrainedModel], weights: Sequence[float] | None = None):
        self.members = tuple(members)
        self.similarity = MeanSimilarity([member.similarity for member in members], weights)
        shares, digests = self.similarity.shares, [member.sha256 for member in members]
        if len(set(shares)) > 1:
            digests = [f"{digest}*{share:.6g}" for digest, share in zip(digests, shares, strict=True)]
        self.digests, self.description = sorted(digests), {"shares": list(shares)}
        for member in self.members[1:]:
            member.source, member.splits = members[0].source, members[0].splits

    def split(self, name: str) -> CaptionedImages:
        """A split of the data. Raises InputError if it is missing, or if its features do not fit every model."""
        return [member.split(name) for member in self.members][0]  # noqa: RUF015 (each checks it)

    def encode(self, split: str) -> EncodedSplit:
        """A split, encoded by each of the models."""
        return joined_split([member.encode(split) for member in self.members])

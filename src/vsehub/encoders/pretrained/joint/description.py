"""The description of one side of a joint model without its weights, kept in checkpoints to build the model again."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from vsehub.checks import require
from vsehub.types import Preparation

Side = Literal["image", "text"]


class PictureInput(NamedTuple):
    """What an image encoder takes: how pictures come to its size, and the mean and deviation of each channel."""

    size: int
    resize: int
    mode: str
    interpolation: str
    fill: int
    mean: list[float]
    std: list[float]

    @property
    def preparation(self) -> Preparation:
        """How pictures come to the encoder's size."""
        return Preparation(*self[:5])


class Texts(NamedTuple):
    """What a text encoder takes: at most `most` tokens, special ones counted.

    pad: the token behind a text. fixed: whether each text is padded to `most` tokens. blank: a token that is replaced
    by 0, or None.
    """

    most: int
    pad: int
    fixed: bool
    blank: int | None = None


class Description(NamedTuple):
    """The library's own configuration in plain values, and what this side takes: a `PictureInput` or `Texts`."""

    architecture: Mapping[str, Any]
    takes: Any

    @classmethod
    def of(cls, side: Side, config: Mapping[str, Any]) -> "Description":
        """The description of the values that `plain` gave."""
        return cls(config["architecture"], (PictureInput if side == "image" else Texts)(**config["takes"]))

    def plain(self) -> dict[str, Any]:
        """Plain values."""
        return {"architecture": dict(self.architecture), "takes": self.takes._asdict()}


class TextNetwork(nn.Module):
    """A text encoder of a library: token ids (N, L), lengths (N,) of at least 1 -> (N, D)."""

    def __init__(self, model: nn.Module, takes: Texts):
        super().__init__()
        self.model, self.takes = model, takes

    def padded(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The ids with the model's own padding, and which are no padding, both (N, L) or (N, most)."""
        longest = ids.shape[1]
        require(
            longest <= self.takes.most,
            f"a text of {longest} tokens, special ones counted, came; the model takes {self.takes.most}: cut with "
            f"loader.max_words={self.takes.most - 2}",
        )
        width = self.takes.most if self.takes.fixed else longest
        place = torch.arange(width, device=ids.device)
        inside = place < lengths[:, None]
        found = ids.index_select(1, place.clamp(max=longest - 1)).masked_fill(~inside, self.takes.pad)
        if self.takes.blank is not None:
            found = found.masked_fill(found == self.takes.blank, 0)
        return found, inside

"""The description of a joint model without its weights: plain values, kept in checkpoints to build the model again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, require, whole
from vsehub.types import Preparation

Side = Literal["image", "text"]


@dataclass(frozen=True)
class PictureInput:
    """What an image encoder takes: how pictures come to its size, and the mean and deviation of each channel."""

    size: int
    resize: int
    mode: str
    interpolation: str
    fill: int
    mean: Sequence[float]
    std: Sequence[float]

    @property
    def preparation(self) -> Preparation:
        """How pictures come to the encoder's size."""
        return Preparation(self.size, self.resize, self.mode, self.interpolation, self.fill)


@dataclass(frozen=True)
class Texts:
    """What a text encoder takes: at most `most` tokens, special ones counted.

    pad: the token behind a text. fixed: whether each text is padded to `most` tokens. blank: a token that is replaced
    by 0, or None.
    """

    most: int
    pad: int
    fixed: bool
    blank: int | None = None


@dataclass(frozen=True)
class Description:
    """One side of a joint model: the library's own configuration in plain values, and what this side takes."""

    architecture: Mapping[str, Any]
    takes: PictureInput | Texts

    def plain(self) -> dict[str, Any]:
        """The plain values that `described` reads."""
        return {"architecture": plain(self.architecture), "takes": plain(asdict(self.takes))}


def described(side: Side, config: Mapping[str, Any]) -> Description:
    """The description in plain values, which may come from someone else's file. Raises InputError if it is damaged."""
    try:
        architecture, takes = config["architecture"], config["takes"]
        found = PictureInput(**takes) if side == "image" else Texts(**takes)
        sound = isinstance(architecture, Mapping)
        if isinstance(found, PictureInput):
            whole("config.takes.size", found.size)
            whole("config.takes.resize", found.resize)
            sound = sound and len(found.mean) == len(found.std) == 3 and all(one > 0 for one in found.std)
        else:
            whole("config.takes.most", found.most)
            sound = sound and type(found.pad) is int and type(found.fixed) is bool
    except (KeyError, TypeError) as error:
        raise InputError(f"config describes no {side} encoder of a joint model ({error}); leave it out") from error
    require(sound, f"config describes no {side} encoder of a joint model; leave it out")
    return Description(plain(architecture), found)


def plain(value: Any) -> Any:
    """Plain dictionaries and lists at every depth."""
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


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


class Library(Protocol):
    """What a module of this package offers for the models of its library."""

    NAME: str

    def looked_up(self, model: str, side: Side, weights: str | None, pretrained: bool) -> Description:
        """The description of a model by its name or folder, without its weights."""

    def subwords(self, model: str) -> dict[str, Any]:
        """The model's tokenizer in the plain values that a checkpoint keeps."""

    def network(
        self, model: str, side: Side, description: Description, pretrained: bool, weights: str | Path | None
    ) -> nn.Module:
        """One side of the model: normalised pixels (N, 3, H, W), or ids and lengths as `TextNetwork` -> (N, D)."""

    def checkpoint_activations(self, network: nn.Module) -> None:
        """Compute activations again in the backward pass instead of keeping them."""

"""The encoders of a joint model: its own vectors, frozen, adapted or tuned."""

from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsehub.checks import one_of, require
from vsehub.encoders.pretrained.networks import DescribedEncoder, add_mean_std, normalised
from vsehub.extras import package
from vsehub.types import Preparation

LIBRARIES = ("open_clip", "hf")
Tune = Literal["none", "lora", "all"]


class Tower(DescribedEncoder):
    """One side of a joint model, in the model's own space.

    library: "open_clip" or "hf" (transformers). model: a name or a folder, as the library's `describe` in this package
    takes it; nothing is downloaded. pretrained: False starts from random weights. weights: a file of the whole model's
    weights instead. tune: "none" freezes the model, "lora" trains low-rank adapters on the linear layers of its blocks,
    "all" trains it. learning_rate: learning rate of what `tune` trains (None: the optimizer's). lora_rank: rank of the
    adapters' product, which is scaled by lora_alpha / lora_rank. config: the description from a checkpoint, to build
    the model from.
    """

    inner = "network"
    side: str

    def __init__(
        self,
        library: str,
        model: str,
        pretrained: bool = True,
        weights: str | None = None,
        tune: Tune = "none",
        learning_rate: float | None = None,
        lora_rank: int = 8,
        lora_alpha: float = 16.0,
        config: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        one_of("tune", tune, ("none", "lora", "all"))
        self.library, self.model_name, self.tune, self.learning_rate = library, model, tune, learning_rate
        self.description = _describe(self.side, library, model, config)
        self.network = _library(library).network(model, self.side, self.description, pretrained, weights).eval()
        self.network.requires_grad_(tune == "all")
        self.rebuilt = {"pretrained": False, "weights": None, "config": self.description}
        if tune == "lora":
            adapt(self.network, lora_rank, lora_alpha)
        self.space = f"{library}:{model}" + (f" with {weights}" if weights is not None else "")
        with torch.no_grad():
            self.dim = self._set_up()
        self.train()

    @abstractmethod
    def _set_up(self) -> int:
        """Set what `forward` needs besides the network; returns D, as encoding one picture or one token shows it."""


class ImageTower(Tower):
    """(N, 3, size, size) pixels, uint8 or floats in [0, 1], to (N, D).

    The size is the model's own; `preparation` resizes pictures to it.
    """

    side = "image"

    @classmethod
    def preparation_of(cls, settings: Mapping[str, Any]) -> Preparation | None:
        """The model's own preprocessing, up to the pixels."""
        return _preparation(
            _describe(cls.side, settings.get("library"), str(settings.get("model")), settings.get("config"))
        )

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, size, size) -> (N, D). Raises InputError for pictures of another size."""
        size = self.description["takes"]["size"]
        require(
            tuple(images.shape[1:]) == (3, size, size),
            f"{self.model_name} takes pictures of shape (3, {size}, {size}), but the data's images have shape "
            f"{tuple(images.shape[1:])}; choose data of picture files, which are brought to that size, or another "
            "image encoder",
        )
        with self.gradient():
            return _library(self.library).encode_image(self.network, normalised(self, images))

    def _set_up(self) -> int:
        takes = self.description["takes"]
        self.preparation = _preparation(self.description)
        add_mean_std(self, takes["mean"], takes["std"])
        return self(torch.zeros(1, 3, self.preparation.size, self.preparation.size)).shape[1]


class TextTower(Tower):
    """Token ids (N, L), lengths (N,) of at least 1, to (N, D); the tokens are those of the model's own tokenizer.

    description["takes"]: "most": the largest number of tokens. "pad": id of the padding. "fixed": whether texts are
    padded to "most", without a mask. "blank": id of a token that is replaced by 0, or None.
    """

    side = "text"

    @classmethod
    def subwords_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The model's own tokenizer."""
        return _library(settings.get("library")).subwords(str(settings.get("model")))

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """texts (N, L) ids, lengths (N,) -> (N, D). Raises InputError for more tokens than the model takes."""
        takes, longest = self.description["takes"], texts.shape[1]
        most = takes["most"]
        require(
            longest <= most,
            f"a text has {longest} tokens, special ones counted; the model takes {most}: cut with "
            f"loader.max_words={most - 2}",
        )
        # The tokens with the model's own padding; a model of fixed length gets no mask.
        position = torch.arange(most if takes["fixed"] else longest, device=texts.device)
        inside = position < lengths[:, None]
        ids = texts.index_select(1, position.clamp(max=longest - 1)).masked_fill(~inside, takes["pad"])
        if takes["blank"] is not None:
            ids = ids.masked_fill(ids == takes["blank"], 0)
        with self.gradient():
            return _library(self.library).encode_text(self.network, ids, None if takes["fixed"] else inside)

    def _set_up(self) -> int:
        return self(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)).shape[1]


def adapt(network: nn.Module, rank: int, alpha: float) -> None:
    """Put low-rank adapters on the linear layers of the blocks of `network`, in place; only they stay trainable.

    The projections within torch's MultiheadAttention, a class of their own, are never called as layers.
    """
    peft = package("tune=lora", "peft", "peft")
    layers = [
        name
        for name, layer in network.named_modules()
        if type(layer) is nn.Linear and any(part.isdigit() for part in name.split("."))
    ]
    with torch.random.fork_rng(devices=[]):
        peft.inject_adapter_in_model(peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=layers), network)


def _library(name: Any) -> Any:
    """The module of this package for the models of a library."""
    one_of("library", name, LIBRARIES)
    return import_module(f"vsehub.encoders.pretrained.joint.{name}")


def _describe(side: str, library: Any, model: str, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _library(library).describe(model, side) if config is None else config


def _preparation(description: Mapping[str, Any]) -> Preparation:
    """The preprocessing of pictures for an image encoder."""
    return Preparation(**{name: description["takes"][name] for name in Preparation._fields})

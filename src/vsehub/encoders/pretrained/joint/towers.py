"""The encoders of a joint model: its own vectors, frozen, adapted or tuned, with or without a linear map on top."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsehub.checks import one_of, require, whole
from vsehub.components import Component
from vsehub.encoders.pretrained.configurations import require_repository
from vsehub.encoders.pretrained.networks import PretrainedEncoder, weights_hash
from vsehub.extras import package
from vsehub.types import Preparation

LIBRARIES = ("open_clip", "hf")
Tune = Literal["none", "lora", "all"]
_BASE = "base_hash"  # in the state: of the weights that the adapters were trained on


@dataclass(frozen=True)
class LoRA(Component):
    """Settings of low-rank adapters.

    rank: of the adapters' product. alpha: the product is scaled by alpha / rank. dropout: of an adapter's input.
    layers: the last parts of the names of linear layers, such as q_proj; None: all linear layers of the network's
    blocks.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    layers: Sequence[str] | None = None

    def adapt(self, network: nn.Module) -> None:
        """Put adapters on linear layers of `network`, in place; only they stay trainable.

        Raises InputError for a layer that is not there, and if peft is missing.
        """
        peft = package("tune=lora", "peft", "peft")
        scale: Any = self.alpha  # which peft declares as a whole number, and divides
        config = peft.LoraConfig(
            r=self.rank, lora_alpha=scale, lora_dropout=self.dropout, target_modules=self.chosen(network)
        )
        with torch.random.fork_rng(devices=[]):
            peft.inject_adapter_in_model(config, network)

    def chosen(self, network: nn.Module) -> list[str]:
        """The names of the layers that get adapters. Raises InputError for `layers` that are not there.

        The projections within torch's MultiheadAttention are never called as layers, and are left out.
        """
        inside = tuple(f"{name}." for name, one in network.named_modules() if isinstance(one, nn.MultiheadAttention))
        found = [
            name
            for name, one in network.named_modules()
            if isinstance(one, nn.Linear) and not f"{name}.".startswith(inside or ("?",))
        ]
        if self.layers is None:
            return [name for name in found if any(part.isdigit() for part in name.split("."))]
        for layer in self.layers:
            require(
                any(f".{name}".endswith(f".{layer}") for name in found),
                f"lora.layers: the network has no linear layer {layer!r}; there are "
                f"{', '.join(sorted({name.rpartition('.')[2] for name in found}))}",
            )
        return [name for name in found if any(f".{name}".endswith(f".{layer}") for layer in self.layers)]


class Tower(PretrainedEncoder):
    """One side of a joint model, in the model's own space or, with a linear map on top, in a new one.

    library: "open_clip" or "hf" (transformers). model: a name or a folder, as the library's `looked_up` in this package
    takes it; nothing is downloaded. pretrained: False starts from random weights. weights: a file of the whole model's
    weights instead. tune: "none" freezes the model, "lora" trains adapters on it, "all" trains it. linear: D of the
    linear map, None for the model's own vectors. learning_rate: of what `tune` trains (None: the optimizer's).
    checkpointing: compute activations again in the backward pass, which saves memory. lora: settings of the
    adapters; None: the defaults. config: the description from a checkpoint, to build the model from.

    With adapters the state holds the adapters and the hash of the base weights, and is refused on other base weights.
    Without adapters the state holds all weights.
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
        linear: int | None = None,
        learning_rate: float | None = None,
        checkpointing: bool = False,
        lora: LoRA | None = None,
        config: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        one_of("tune", tune, ("none", "lora", "all"))
        found = _library(library)
        self.library, self.model_name, self.tune, self.learning_rate = library, model, tune, learning_rate
        self.description = _described(self.side, library, model, config)
        self.network = found.network(model, self.side, self.description, pretrained, weights, checkpointing).eval()
        self.network.requires_grad_(tune == "all")
        self.rebuilt: Mapping[str, Any] = {"config": self.description}
        if tune == "lora" and (pretrained or weights is not None):
            # The state leaves the base out; its hash, as bytes, says which one belongs to it.
            digest = bytes.fromhex(weights_hash(self.network))
            self.register_buffer(_BASE, torch.tensor(list(digest), dtype=torch.uint8))
            hooks: Any = self  # torch declares no types of these two
            hooks.register_state_dict_post_hook(_without_base)
            hooks.register_load_state_dict_pre_hook(_with_base)
        else:
            self.rebuilt = {**self.rebuilt, "pretrained": False, "weights": None}
        if tune == "lora":
            (lora or LoRA()).adapt(self.network)
        self.linear: nn.Module = nn.Identity()
        self.dim = self._look()
        if linear is None:
            self.space = f"{library}:{model}" + (f" with {weights}" if weights is not None else "")
        else:
            whole("linear", linear)
            self.linear = nn.Linear(self.dim, linear)
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
            self.dim = linear
        self.train()

    @classmethod
    def admit(cls, settings: Mapping[str, Any], trust: Sequence[str]) -> None:
        """See `Component`: a checkpoint brings its configuration, and may name a base model."""
        weights = settings.get("weights")
        if weights is not None:
            require(
                weights in trust,
                f"its weights would be read from {weights!r}; if that file is yours, give trust={weights}",
            )
        elif settings.get("pretrained", True) or not isinstance(settings.get("config"), Mapping):
            require_repository(str(settings.get("model")), trust)

    def train(self, mode: bool = True) -> "Tower":
        """Training mode, in which a frozen model stays in eval mode, and so do the batch statistics under adapters."""
        super().train(mode)
        for part in self.network.modules():
            if self.tune == "lora" and isinstance(part, nn.modules.batchnorm._BatchNorm):
                part.eval()
        return self

    def weights_hash(self) -> str:
        """16 hexadecimal digits that identify the model's weights, without adapters and the linear map."""
        return weights_hash(self.network)

    @abstractmethod
    def _look(self) -> int:
        """D of the model's own vectors, from one black picture or one token."""

    def _through(self, *inputs: Tensor) -> Tensor:
        with self.gradient():
            found = self.network(*inputs)
        return self.linear(found)


class ImageTower(Tower):
    """(N, 3, size, size) pixels, uint8 or floats in [0, 1], to (N, D).

    The size is the model's own, to which pictures are brought as the model wants them (`preparation`).
    """

    side = "image"
    mean: Tensor
    std: Tensor

    @classmethod
    def preparation_of(cls, settings: Mapping[str, Any]) -> Preparation | None:
        """The model's own preprocessing, up to the pixels."""
        return _preparation(
            _described(cls.side, settings.get("library"), str(settings.get("model")), settings.get("config"))
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
        pixels = images.to(self.mean.dtype)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return self._through((pixels - self.mean) / self.std)

    def _look(self) -> int:
        self.preparation = _preparation(self.description)
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(self.description["takes"][name])[:, None, None], persistent=False)
        with torch.no_grad():
            return self.network(torch.zeros(1, 3, self.preparation.size, self.preparation.size)).shape[1]


class TextTower(Tower):
    """Token ids (N, L), lengths (N,) of at least 1, to (N, D); the tokens are those of the model's own tokenizer."""

    side = "text"

    @classmethod
    def subwords_of(cls, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The model's own tokenizer."""
        return _library(settings.get("library")).subwords(str(settings.get("model")))

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """texts (N, L) ids, lengths (N,) -> (N, D). Raises InputError for more tokens than the model takes."""
        return self._through(texts, lengths)

    def _look(self) -> int:
        with torch.no_grad():
            return self.network(torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, dtype=torch.int64)).shape[1]


def _library(name: Any) -> Any:
    """The module of this package for the models of a library."""
    one_of("library", name, LIBRARIES)
    return import_module(f"vsehub.encoders.pretrained.joint.{name}")


def _described(side: str, library: Any, model: str, config: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _library(library).looked_up(model, side) if config is None else config


def _preparation(description: Mapping[str, Any]) -> Preparation:
    """The preprocessing of pictures for an image encoder."""
    return Preparation(**{name: description["takes"][name] for name in Preparation._fields})


def _without_base(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Remove the base weights, to which adapters were added, from the state."""
    for name in _base(module, prefix):
        state.pop(name, None)


def _with_base(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add the module's own base to a state with adapters. Raises InputError if they were trained on another base."""
    theirs, ours = state[f"{prefix}{_BASE}"], module.get_buffer(_BASE)
    require(
        torch.equal(theirs.cpu(), ours.cpu()),
        f"the adapters were trained on other weights of {getattr(module, 'model_name', '')} than are found here; give "
        "the weights that they were trained on",
    )
    state.update(_base(module, prefix))


def _base(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """The frozen part of an adapted network's state, by its names in the module's."""
    network = module.get_submodule("network")
    return {f"{prefix}network.{name}": one for name, one in network.state_dict().items() if "lora_" not in name}

"""The encoders of a joint model: its own vectors, frozen, adapted or tuned, with or without a linear map on top."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, fail, one_of, positive, require, whole
from vsehub.encoders.pretrained.configurations import require_place
from vsehub.encoders.pretrained.joint.description import Description, Library, PictureInput, Side, described
from vsehub.encoders.pretrained.joint.lora import LoRA, base_name, is_adapter, keep_statistics
from vsehub.types import Encoder, Preparation

LIBRARIES = ("open_clip", "hf")
Tune = Literal["none", "lora", "all"]
_BASE = "base_hash"  # in the state: of the weights that the adapters were trained on


class Tower(Encoder, ABC):
    """One side of a joint model, in the model's own space or, with a linear map on top, in a new one.

    library: "open_clip" or "hf" (transformers). model: a name or a folder, as the library's `looked_up` in this package
    takes it; nothing is downloaded. pretrained: False starts from random weights. weights: a file of the whole model's
    weights instead. tune: "none" freezes the model, "lora" trains adapters on it, "all" trains it. linear: D of the
    linear map, None for the model's own vectors. learning_rate: of what `tune` trains (None: the optimizer's).
    checkpointing: compute activations again in the backward pass, which saves memory. lora: settings of the
    adapters; None: the defaults. config: the description from a checkpoint, of which the model is built. Raises
    InputError for settings that have no effect together.

    With adapters the state holds the adapters and the hash of the base weights, and is refused on other base weights.
    Without adapters the state holds all weights.
    """

    side: Side

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
        require(
            learning_rate is None or tune != "none",
            "learning_rate is the model's, which is frozen; give tune=lora or tune=all with it",
        )
        require(
            not checkpointing or tune != "none", "checkpointing saves memory in training; give tune=lora or all too"
        )
        if learning_rate is not None:
            positive("learning_rate", learning_rate)
        one_of("tune", tune, ("none", "lora", "all"))
        found = _library(library)
        self.library, self.model_name, self.tune, self.learning_rate = library, model, tune, learning_rate
        self.description = _described(found, self.side, model, weights, pretrained, config)
        self.network = found.network(model, self.side, self.description, pretrained, weights).eval()
        self.network.requires_grad_(tune == "all")
        loaded = pretrained or weights is not None
        self.rebuilt: Mapping[str, Any] = {"config": self.description.plain()}
        if tune == "lora" and loaded:
            # The state leaves the base out; its hash, as bytes, says which one belongs to it.
            digest = bytes.fromhex(network_hash(self.network))
            self.register_buffer(_BASE, torch.tensor(list(digest), dtype=torch.uint8))
            hooks: Any = self  # torch declares no types of these two
            hooks.register_state_dict_post_hook(_without_base)
            hooks.register_load_state_dict_pre_hook(_with_base)
        else:
            self.rebuilt = {**self.rebuilt, "pretrained": False, "weights": None}
        if checkpointing:
            found.checkpoint_activations(self.network)
        if tune == "lora":
            (lora or LoRA()).adapt(self.network)
        self.linear: nn.Module = nn.Identity()
        dim = self._look()
        if linear is None:
            self.space = f"{library}:{model}" + (f" with {weights}" if weights is not None else "")
        else:
            whole("linear", linear)
            own = nn.Linear(dim, linear)
            nn.init.xavier_uniform_(own.weight)
            nn.init.zeros_(own.bias)
            self.linear, dim = own, linear
        self.dim = dim
        self.train()

    @classmethod
    def admit(cls, settings: Mapping[str, Any], trust: Sequence[str]) -> None:
        """See `Component`: a checkpoint brings its configuration, and may name a base model."""
        if settings.get("weights") is not None:
            weights = str(settings["weights"])
            require(
                weights in trust,
                f"its weights would be read from {weights!r}; if that file is yours, give trust={weights}",
            )
        elif settings.get("pretrained", True) or not isinstance(settings.get("config"), Mapping):
            require_place(str(settings.get("model")), trust)

    def own_rates(self) -> list[tuple[list[nn.Parameter], float]]:
        """The parameters of the model that `tune` trains, if they have a learning rate of their own."""
        if self.learning_rate is None:
            return []
        return [([one for one in self.network.parameters() if one.requires_grad], self.learning_rate)]

    def train(self, mode: bool = True) -> "Tower":
        """Training mode, in which a frozen model stays in eval mode."""
        super().train(mode)
        self.network.train(mode and self.tune != "none")
        if self.tune == "lora":
            keep_statistics(self.network)
        return self

    def weights_hash(self) -> str:
        """16 hexadecimal digits that identify the model's weights, without adapters and the linear map."""
        return network_hash(self.network)

    @abstractmethod
    def _look(self) -> int:
        """D of the model's own vectors, from one black picture or one token."""

    def _through(self, *inputs: Tensor) -> Tensor:
        with torch.set_grad_enabled(self.tune != "none" and torch.is_grad_enabled()):
            found = self.network(*inputs)
        return self.linear(found)


class ImageTower(Tower):
    """(N, 3, size, size) pixels, uint8 or floats in [0, 1], to (N, D).

    The size is the model's own, to which pictures are brought as the model wants them (`preparation`).
    """

    side: Side = "image"
    mean: Tensor
    std: Tensor

    @classmethod
    def preparation_of(cls, settings: Mapping[str, Any]) -> Preparation | None:
        """The model's own preprocessing, up to the pixels."""
        return _taken(cls.side, settings, PictureInput).preparation

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, size, size) -> (N, D). Raises InputError for pictures of another size."""
        takes = self.description.takes
        assert isinstance(takes, PictureInput)
        require(
            tuple(images.shape[1:]) == (3, takes.size, takes.size),
            f"{self.model_name} takes pictures of shape (3, {takes.size}, {takes.size}), but the data's images have "
            f"shape {tuple(images.shape[1:])}; choose data of picture files, which are brought to that size, or "
            "another image encoder",
        )
        pixels = images.to(self.mean.dtype)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return self._through((pixels - self.mean) / self.std)

    def _look(self) -> int:
        takes = self.description.takes
        assert isinstance(takes, PictureInput)
        self.preparation = takes.preparation
        for name, values in (("mean", takes.mean), ("std", takes.std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)
        try:
            with torch.no_grad():
                return self.network(torch.zeros(1, 3, takes.size, takes.size)).shape[1]
        except (RuntimeError, AssertionError, ValueError) as error:
            said = str(error).partition("\n")[0][:200]
            raise InputError(
                f"model: {self.model_name} cannot take the pictures of {takes.size} x {takes.size} pixels that its "
                f"preprocessing makes ({said}); its files are not of one model"
            ) from error


class TextTower(Tower):
    """Token ids (N, L), lengths (N,) of at least 1, to (N, D); the tokens are those of the model's own tokenizer."""

    side: Side = "text"

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


def network_hash(network: nn.Module) -> str:
    """16 hexadecimal digits of SHA-256 over the weights without adapters: equal before and after adapters are added."""
    digest = hashlib.sha256()
    own = {base_name(name): one for name, one in network.state_dict().items() if not is_adapter(name)}
    for name, value in sorted(own.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _library(name: Any) -> Library:
    one_of("library", name, LIBRARIES)
    found: Any = import_module(f"vsehub.encoders.pretrained.joint.{name}")
    return found


def _described(
    library: Library, side: Side, model: str, weights: str | None, pretrained: bool, config: Mapping[str, Any] | None
) -> Description:
    return library.looked_up(model, side, weights, pretrained) if config is None else described(side, config)


def _taken(side: Side, settings: Mapping[str, Any], kind: type[Any]) -> Any:
    library = _library(settings.get("library"))
    given = (settings.get("weights"), bool(settings.get("pretrained", True)), settings.get("config"))
    found = _described(library, side, str(settings.get("model")), *given).takes
    assert isinstance(found, kind)
    return found


def _without_base(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """Remove the base weights, to which adapters were added, from the state."""
    for name in _base_names(module, prefix):
        state.pop(name, None)


def _with_base(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add the module's own base to a state with adapters. Raises InputError if they were trained on another base."""
    assert isinstance(module, Tower)
    theirs, ours = state.get(f"{prefix}{_BASE}"), module.get_buffer(_BASE)
    if not isinstance(theirs, Tensor):
        fail(f"the adapters of {module.model_name} do not name their base; they are of another version, or damaged")
    words = ["".join(f"{byte:02x}" for byte in one.tolist()) for one in (theirs, ours)]
    require(
        words[0] == words[1],
        f"the adapters were trained on other weights of {module.model_name} (hash {words[0]}) than are found here "
        f"({words[1]}); give the weights that they were trained on their place back",
    )
    state.update(_base_names(module, prefix))


def _base_names(module: nn.Module, prefix: str) -> dict[str, Tensor]:
    """The frozen part of an adapted network's state, by its names in the module's."""
    network = module.get_submodule("network")
    return {f"{prefix}network.{name}": value for name, value in network.state_dict().items() if not is_adapter(name)}

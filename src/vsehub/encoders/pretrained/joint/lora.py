"""Low-rank adapters on the linear layers of a network (LoRA, Hu et al. 2022), by peft."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from vsehub.checks import positive, probability, require, whole
from vsehub.components import Component
from vsehub.extras import package

_NAMED = 12  # layers in a message


@dataclass(frozen=True)
class LoRA(Component):
    """Settings of low-rank adapters.

    rank: of the adapters' product. alpha: the product is scaled by alpha / rank. dropout: of an adapter's input.
    layers: the last parts of the names of linear layers, such as q_proj; None: all linear layers of the network's
    blocks. Raises InputError for settings out of range.
    """

    rank: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    layers: Sequence[str] | None = None

    def __post_init__(self) -> None:
        whole("rank", self.rank)
        positive("alpha", self.alpha)
        probability("dropout", self.dropout)

    def adapt(self, network: nn.Module) -> None:
        """Put adapters on linear layers of `network`, in place; only they stay trainable.

        Raises InputError for a layer that is not there, listing those that are, and if peft is missing.
        """
        peft = package("tune=lora", "peft", "peft")
        scale: Any = self.alpha  # which peft declares as a whole number, and divides
        config = peft.LoraConfig(
            r=self.rank, lora_alpha=scale, lora_dropout=self.dropout, target_modules=self.chosen(network)
        )
        with torch.random.fork_rng(devices=[]):
            peft.inject_adapter_in_model(config, network)

    def chosen(self, network: nn.Module) -> list[str]:
        """The names of the layers that get adapters. Raises InputError for `layers` that are not there."""
        found = linear_layers(network)
        if self.layers is None:
            chosen = [name for name in found if any(part.isdigit() for part in name.split("."))]
        else:
            for layer in self.layers:
                _require_known(layer, found)
            chosen = [name for name in found if any(f".{name}".endswith(f".{layer}") for layer in self.layers)]
        require(len(chosen) > 0, f"lora.layers: no linear layer is chosen; there are {_listed(found)}")
        return chosen


def linear_layers(network: nn.Module) -> list[str]:
    """The names of the linear layers whose own `forward` is called: not those within torch's MultiheadAttention."""
    inside = tuple(f"{name}." for name, one in network.named_modules() if isinstance(one, nn.MultiheadAttention))
    return [
        name
        for name, one in network.named_modules()
        if isinstance(one, nn.Linear) and not (inside and name.startswith(inside))
    ]


def is_adapter(name: str) -> bool:
    """Whether a parameter of an adapted network, by its name, belongs to an adapter."""
    return "lora_" in name


def base_name(name: str) -> str:
    """The name that a parameter has in the network without adapters."""
    return name.replace(".base_layer.", ".")


def keep_statistics(network: nn.Module) -> None:
    """Leave batch statistics as they are in training: they belong to the network without adapters."""
    for part in network.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.eval()


def _require_known(layer: Any, found: Sequence[str]) -> None:
    known = isinstance(layer, str) and any(f".{name}".endswith(f".{layer}") for name in found)
    kinds = sorted({name.rpartition(".")[2] for name in found})
    near = get_close_matches(str(layer), kinds, n=1)
    require(
        known,
        f"lora.layers: the network has no linear layer {layer!r}{f'; did you mean {near[0]}?' if near else ''} Layers "
        f"there: {', '.join(kinds)}; in full: {_listed(found)}",
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")

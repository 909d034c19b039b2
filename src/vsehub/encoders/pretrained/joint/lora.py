"""Low-rank adapters on the linear layers of a network (LoRA, Hu et al. 2022), by peft."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from vsehub.checks import positive, probability, require, whole
from vsehub.components import Component
from vsehub.extras import package


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

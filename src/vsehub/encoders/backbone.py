"""A network of torchvision or timm as a source of features: pixels in, what its classifier would see out."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import InputError, require, whole
from vsehub.encoders.vision_models import vision_model
from vsehub.encoders.weight_file import load_weights, weights_hash

_MAPS = (3, 4)  # dimensions of a feature map: (N, places, C) of a transformer, (N, C, H, W) of a convolutional network


class Backbone(nn.Module):
    """Features of pictures, global or by region.

    image_shape: (3, height, width) of one image, or (crops, 3, height, width), whose features are averaged. library,
    model, pretrained: as `vision_model`. weights: a file of weights instead of the library's, as `load_weights`; its
    classifier, if it has one, is left out. size: F of the features. Raises InputError for other shapes, for pictures
    of a size that the model cannot take, and as those two functions.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        library: str,
        model: str,
        pretrained: bool = True,
        weights: str | None = None,
    ):
        super().__init__()
        require(
            len(image_shape) in (3, 4) and image_shape[-3] == 3,
            f"{model} takes pictures (3, height, width), or crops of them, but the data's images have shape "
            f"{tuple(image_shape)}; choose another image encoder",
        )
        found = vision_model(library, model, pretrained and weights is None)
        if weights is not None:
            load_weights(found.network, weights, model, ignored=found.head)
        self.library, self.model, self.mean_std = library, model, (found.mean, found.std)
        self.network = found.network.eval().to(memory_format=torch.channels_last)
        # Of the model, not of its weights: not part of a checkpoint.
        self.register_buffer("mean", torch.tensor(found.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(found.std)[:, None, None], persistent=False)
        self.size, self._map = self._look(tuple(image_shape[-3:]), found.size)

    def forward(self, images: Tensor) -> Tensor:
        """(N, *image_shape), uint8 or floats in [0, 1] -> (N, F)."""
        crops = images if images.ndim == 5 else images[:, None]
        return self.network(self._pixels(crops.flatten(0, 1))).unflatten(0, crops.shape[:2]).mean(dim=1)

    def regions(self, images: Tensor, side: int) -> Tensor:
        """The last feature map, averaged to side x side places: (N, 3, H, W) -> (N, side * side, C), row by row.

        Raises InputError for crops, for more regions than the map has places, and for a model whose last map has no
        rows and columns.
        """
        whole("regions", side)
        require(images.ndim == 4, f"regions are of whole pictures; images of shape {tuple(images.shape[1:])} are crops")
        found = self._last_map(self._pixels(images))
        least = min(found.shape[2:])
        require(
            side <= least,
            f"regions is {side}, but the last map of {self.model} has {found.shape[2]} x {found.shape[3]} places for "
            f"pictures of this size; give at most regions={least}, or larger pictures",
        )
        return F.adaptive_avg_pool2d(found, side).flatten(2).transpose(1, 2)

    def weights_hash(self) -> str:
        """16 hexadecimal digits that tell these weights from others, wherever they came from."""
        return weights_hash(self.network)

    def _pixels(self, images: Tensor) -> Tensor:
        pixels = images.to(self.mean.dtype, memory_format=torch.channels_last)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return (pixels - self.mean) / self.std

    def _last_map(self, pixels: Tensor) -> Tensor:
        """(N, C, H, W) as the network's pooling sees it."""
        if hasattr(self.network, "forward_features"):  # all of timm's; of the others it is caught as it passes
            found = self.network.forward_features(pixels)
        else:
            caught: list[Tensor] = []
            hook = self.network.get_submodule(self._map).register_forward_hook(lambda *call: caught.append(call[2]))
            try:
                self.network(pixels)
            finally:
                hook.remove()
            found = caught[-1]
        if found.ndim == 4:
            last = getattr(self.network, "num_features", None)
            return found.permute(0, 3, 1, 2) if found.shape[1] != last == found.shape[3] else found
        places = found.shape[1]
        prefix = getattr(self.network, "num_prefix_tokens", places - math.isqrt(places) ** 2)  # class tokens
        side = math.isqrt(places - prefix)
        require(
            found.ndim == 3 and side * side == places - prefix,
            f"{self.model} has no feature map of rows and columns (its last has shape {tuple(found.shape[1:])}); "
            "leave regions out, or choose another model",
        )
        return found[:, prefix:].transpose(1, 2).unflatten(2, (side, side))

    @torch.no_grad()
    def _look(self, shape: tuple[int, ...], usual: int) -> tuple[int, str]:
        """F, and the name of the layer that gives the last map before the last pooling, from one black picture."""
        seen: list[tuple[str, int]] = []
        hooks = [
            part.register_forward_hook(lambda part, _, out, name=name: seen.append((name, _dimensions(part, out))))
            for name, part in self.network.named_modules()
            if name
        ]
        try:
            features = self.network(torch.zeros(1, *shape).to(memory_format=torch.channels_last))
        except (RuntimeError, AssertionError, ValueError, TypeError) as error:
            said = str(error).partition("\n")[0]
            raise InputError(
                f"{self.model} cannot take pictures of {shape[1]} x {shape[2]} pixels ({said}); "
                f"it was made for {usual} x {usual}: change the size of the data's pictures"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        require(features.ndim == 2, f"{self.model} gives {tuple(features.shape[1:])} an image, not a vector")
        pools = [place for place, (_, dimensions) in enumerate(seen) if dimensions == 0]
        maps = [name for name, dimensions in seen[: pools[-1] if pools else None] if dimensions in _MAPS]
        return features.shape[1], maps[-1] if maps else ""


def _dimensions(part: nn.Module, out: Tensor) -> int:
    """Of what a layer gave; 0 for a pooling to a fixed size."""
    if isinstance(part, nn.AdaptiveAvgPool2d):
        return 0
    return out.ndim if isinstance(out, Tensor) else -1

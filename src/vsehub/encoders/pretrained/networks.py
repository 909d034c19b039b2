"""Networks of torchvision and timm without their classifiers, as sources of image features."""

import hashlib
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import InputError, existing, fail, one_of, regular, require, whole
from vsehub.extras import package

_HUB_SECONDS = 5  # that the Hugging Face Hub may take to answer
_HEADS = ("fc", "classifier", "heads", "head")  # what torchvision calls its classifiers
_AUXILIARY = ("AuxLogits", "aux1", "aux2")
_MAPS = (3, 4)  # dimensions of a feature map: (N, places, C) of a transformer, (N, C, H, W) of a convolutional network


class Backbone(nn.Module):
    """Features of pictures, global or by region.

    image_shape: (3, height, width) of one image, or (crops, 3, height, width), whose features are averaged. library,
    model, pretrained: as `vision_model`. weights: a file of weights instead of the library's, as `load_weights`; its
    classifier, if it has one, is left out. size: F of the features. Raises InputError for other shapes, for pictures
    of a size that the model cannot take, and as those two functions.
    """

    mean: Tensor
    std: Tensor

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
        """16 hexadecimal digits that identify the weights, whichever file they came from."""
        return weights_hash(self.network)

    def _pixels(self, images: Tensor) -> Tensor:
        pixels = images.to(self.mean.dtype, memory_format=torch.channels_last)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return (pixels - self.mean) / self.std

    def _last_map(self, pixels: Tensor) -> Tensor:
        """(N, C, H, W) as the network's pooling sees it."""
        features = getattr(self.network, "forward_features", None)
        if features is not None:  # all of timm's; of the others it is caught as it passes
            found = features(pixels)
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
    """The number of dimensions of a layer's output; 0 for a pooling to a fixed size."""
    if isinstance(part, nn.AdaptiveAvgPool2d):
        return 0
    return out.ndim if isinstance(out, Tensor) else -1


@dataclass(frozen=True)
class VisionModel:
    """A network without its classifier, and the pictures that it was made for.

    network: pixels (N, 3, H, W), normalised -> features (N, F). head: the names of the classifier's parameters, which
    a file of weights may hold. mean, std: of the normalisation, a value a channel, for pixels in [0, 1]. size: of the
    pictures, in pixels a side.
    """

    network: nn.Module
    head: frozenset[str]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int


def vision_model(library: str, model: str, pretrained: bool) -> VisionModel:
    """The model of that name, with the library's own weights or with random ones.

    library: "torchvision" or "timm". model: NAME or NAME.WEIGHTS, as in "resnet152.IMAGENET1K_V1". Drawing random
    weights leaves torch's random state as it was. Raises InputError for an unknown name, a library that is not
    installed, and weights that are not available.
    """
    one_of("library", library, tuple(_LIBRARIES))
    with torch.random.fork_rng(devices=[]):
        return _LIBRARIES[library](model, pretrained)


def _torchvision(model: str, pretrained: bool) -> VisionModel:
    torchvision = package(f"the model {model}", "train", "torchvision")
    name, _, tag = model.partition(".")
    names = torchvision.models.list_models(module=torchvision.models)
    _require_known("torchvision", name, names)
    choices = torchvision.models.get_model_weights(name)
    if tag:
        one_of(f"the weights of {name}", tag, tuple(choice.name for choice in choices))
    weights = choices[tag] if tag else choices.DEFAULT
    chosen = {"weights": weights if pretrained else None}
    network: Any = _fetched(model, pretrained, lambda: torchvision.models.get_model(name, **chosen))
    before = set(network.state_dict())
    for part in (one for one in _AUXILIARY if hasattr(network, one)):
        setattr(network, part, None)
        network.aux_logits = False
    if hasattr(network, "transform_input"):  # without it the published weights see pixels normalised in another way
        network.transform_input = True
    _take_off(network)
    made_for = weights.transforms()
    head = frozenset(before - set(network.state_dict()))
    return VisionModel(network, head, tuple(made_for.mean), tuple(made_for.std), made_for.crop_size[0])


def _take_off(network: nn.Module) -> None:
    """Replace the last layer of the network's classifier by the identity."""
    head = next(name for name in _HEADS if hasattr(network, name))
    layers = [name for name, part in network.named_modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    network.set_submodule([name for name in layers if f"{name}.".startswith(f"{head}.")][-1], nn.Identity())


def _timm(model: str, pretrained: bool) -> VisionModel:
    timm = package(f"the model {model}", "timm", "timm")
    name, _, tag = model.partition(".")
    _require_known("timm", name, timm.list_models())
    if tag:
        tags = [one.partition(".")[2] for one in timm.list_pretrained(f"{name}.*")]
        one_of(f"the weights of {name}", tag, tuple(tags))
    with _hub_asked_once() if pretrained else nullcontext():
        network: Any = _fetched(model, pretrained, lambda: timm.create_model(model, pretrained=pretrained))
    before = set(network.state_dict())
    network.reset_classifier(0)
    made_for = timm.data.resolve_model_data_config(network)
    head = frozenset(before - set(network.state_dict()))
    return VisionModel(network, head, tuple(made_for["mean"]), tuple(made_for["std"]), made_for["input_size"][-1])


_LIBRARIES = {"torchvision": _torchvision, "timm": _timm}


def load_weights(network: nn.Module, path: str | Path, name: str, ignored: Collection[str] = ()) -> None:
    """Give `network` the weights of a state dict.

    path: .safetensors, or what torch.save wrote, bare or as "state_dict" or "model" of a dictionary. name: of the
    network, for messages. ignored: entries that the file may hold beside the network's. Raises InputError where the
    file is damaged or holds another network's weights.
    """
    found = _state(regular(existing("weights", path, "Give a file with the state dict of the model")))
    wanted = {key: tuple(value.shape) for key, value in _entries(network)}
    wrong = _differences(name, wanted, found, {*network.state_dict(), *ignored})
    require(
        not wrong,
        f"weights: {path} is not of {name}: {'; '.join(wrong)}. Give that model's file, or the model of this one",
    )
    network.load_state_dict({key: value for key, value in found.items() if key not in ignored}, strict=False)


def weights_hash(network: nn.Module) -> str:
    """16 hexadecimal digits of SHA-256 over the names, types, shapes and bytes of a network's weights."""
    digest = hashlib.sha256()
    for key, value in sorted(_entries(network)):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _entries(network: nn.Module) -> list[tuple[str, Tensor]]:
    """The state dict without the counts of batches: older files lack them, and nothing is computed from them."""
    return [(key, value) for key, value in network.state_dict().items() if not key.endswith("num_batches_tracked")]


def _state(path: Path) -> dict[str, Tensor]:
    """The state dict of a file, without the prefix that data-parallel training puts before its names."""
    found: Any
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            found = load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle, zip and safetensors each have their own
        said = str(error).partition("\n")[0][:200]
        said = type(error).__name__ if "weights_only" in said else said  # torch's advice would run the file's code
        raise InputError(
            f"weights: {path} cannot be read ({said}). Expected a state dict, as "
            ".safetensors or written by torch.save(model.state_dict(), FILE)"
        ) from error
    for inside in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(inside), dict):
            found = found[inside]
    require(
        isinstance(found, dict) and len(found) > 0 and all(isinstance(value, Tensor) for value in found.values()),
        f"weights: {path} holds no state dict; expected names and tensors, as torch.save(model.state_dict(), FILE) "
        "writes them",
    )
    return {key.removeprefix("module."): value for key, value in found.items()}


def _differences(name: str, wanted: dict[str, tuple[int, ...]], found: dict[str, Tensor], known: set[str]) -> list[str]:
    """The entries that are missing, unexpected or of another shape, the first of each by name."""
    shapes = {key: tuple(value.shape) for key, value in found.items()}
    missing = [key for key in wanted if key not in found]
    foreign = [key for key in found if key not in known]
    other = [key for key, shape in wanted.items() if key in found and shapes[key] != shape]
    wrong = []
    if missing:
        wrong.append(f"{len(missing)} of {len(wanted)} entries are missing, first {missing[0]} {wanted[missing[0]]}")
    if foreign:
        wrong.append(f"{len(foreign)} entries are not {name}'s, first {foreign[0]} {shapes[foreign[0]]}")
    if other:
        wrong.append(
            f"{len(other)} entries have other shapes, first {other[0]} {shapes[other[0]]}, expected {wanted[other[0]]}"
        )
    return wrong


def _require_known(library: str, name: str, names: list[str]) -> None:
    near = get_close_matches(name, names, n=5) or names[:5]
    require(
        name in names,
        f"model: {library} has no model {name!r} of its {len(names)}; close to it: {', '.join(near)}",
    )


@contextmanager
def _hub_asked_once() -> Iterator[None]:
    """Where the Hugging Face Hub does not answer one request, only its cache is looked at within the block.

    Its client would repeat each request five times, half a minute for each file.
    """
    try:
        from huggingface_hub import constants, get_session
    except ImportError:
        yield
        return
    before = constants.HF_HUB_OFFLINE
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_SECONDS)
    except Exception:  # of the library of its version
        constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def _fetched(model: str, pretrained: bool, build: Callable[[], nn.Module]) -> nn.Module:
    if not pretrained:
        return build()
    try:
        return build()
    except Exception as error:  # each library has its own for a network that is not there
        said = str(error).partition("\n")[0][:200]
        fail(
            f"the weights of {model} are not available ({type(error).__name__}: {said}). Give "
            "image_encoder.weights=FILE with its state dict, or image_encoder.pretrained=false for random weights"
        )

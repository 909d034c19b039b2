"""Networks trained elsewhere: those of torchvision and timm without their classifiers, and what all of them share."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import InputError, existing, one_of, regular, require, suggest, whole
from vsehub.extras import package
from vsehub.types import Encoder


class PretrainedEncoder(Encoder):
    """An encoder on a network trained elsewhere, which is frozen or tuned.

    inner: the name of the network's module. tune: whether, or how, it is trained. learning_rate: learning rate of the
    tuned network; None: the optimizer's.
    """

    # A checkpoint holds the network's weights: rebuilding it takes no download and no file.
    rebuilt: Mapping[str, Any] = {"pretrained": False, "weights": None}
    inner = "backbone"
    tune: bool | str
    learning_rate: float | None

    def learning_rates(self) -> list[tuple[list[nn.Parameter], float]]:
        """The trained parameters of the network, if they have a learning rate of their own."""
        tuned = [weight for weight in self.get_submodule(self.inner).parameters() if weight.requires_grad]
        return [(tuned, self.learning_rate)] if tuned and self.learning_rate is not None else []

    def train(self, mode: bool = True) -> "PretrainedEncoder":
        """Training mode; a frozen network stays in eval mode: no dropout, batch statistics as they are."""
        super().train(mode)
        self.get_submodule(self.inner).train(mode and self.tune in (True, "all"))
        return self

    def gradient(self) -> AbstractContextManager[Any]:
        """A context without gradient where the network is frozen."""
        return torch.set_grad_enabled(self.tune not in (False, "none") and torch.is_grad_enabled())


class DescribedEncoder(PretrainedEncoder):
    """A pretrained encoder that is rebuilt from the description in its checkpoint, the argument `config`."""

    @classmethod
    def restored(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """As `Component`. Raises InputError for a checkpoint without the description: `model` would be opened."""
        require(isinstance(settings.get("config"), Mapping), "its config is missing, and `model` would be opened")
        return super().restored(settings)


class Backbone(nn.Module):
    """Features of pictures, global or by region.

    image_shape: (3, height, width) of one image, or (crops, 3, height, width), whose features are averaged. library:
    "torchvision" or "timm". model: NAME or NAME.WEIGHTS, as in "resnet152.IMAGENET1K_V1". pretrained: whether to load
    the library's own weights. weights: a file of weights instead, as `load_weights`; its classifier, if it has one, is
    left out. size: F of the features. Random weights leave torch's random state as it was. Raises InputError for other
    shapes and a damaged file, ConnectionError where the library cannot download its weights.
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
        one_of("library", library, ("torchvision", "timm"))
        with torch.random.fork_rng(devices=[]):
            load = _torchvision if library == "torchvision" else _timm
            try:
                vision = load(model, pretrained and weights is None)
            except OSError as error:
                raise ConnectionError(
                    f"the weights of {model} cannot be downloaded ({error}); give a file (image_encoder.weights=FILE), "
                    "or train from the start with image_encoder=image_cnn"
                ) from error
        if weights is not None:
            load_weights(vision.network, weights, vision.classifier)
        self.library, self.model, self.mean_std = library, model, [vision.mean, vision.std]
        self.network = vision.network.eval().to(memory_format=torch.channels_last)
        add_mean_std(self, vision.mean, vision.std)
        with torch.no_grad():
            self.size = self(torch.zeros(1, *image_shape[-3:])).shape[1]

    def forward(self, images: Tensor) -> Tensor:
        """(N, *image_shape), uint8 or floats in [0, 1] -> (N, F)."""
        crops = images if images.ndim == 5 else images[:, None]
        return self.network(normalised(self, crops.flatten(0, 1))).unflatten(0, crops.shape[:2]).mean(dim=1)

    def regions(self, images: Tensor, side: int) -> Tensor:
        """The last feature map, averaged to side x side places: (N, 3, H, W) -> (N, side * side, C), row by row.

        Raises InputError for crops, and for more regions than the map has places.
        """
        whole("regions", side)
        require(images.ndim == 4, f"regions are of whole pictures; images of shape {tuple(images.shape[1:])} are crops")
        last_map = self._last_map(normalised(self, images))
        height, width = last_map.shape[2:]
        require(side <= min(height, width), f"regions is {side}, but {self.model} has a map of {height} x {width} here")
        return F.adaptive_avg_pool2d(last_map, side).flatten(2).transpose(1, 2)

    def _last_map(self, pixels: Tensor) -> Tensor:
        """(N, C, H, W) as the network's last pooling sees it."""
        network: Any = self.network
        if self.library == "timm":
            return network.forward_intermediates(pixels, indices=1, norm=True, intermediates_only=True)[0]
        pools = [part for part in network.modules() if isinstance(part, nn.AdaptiveAvgPool2d)]
        require(bool(pools), f"{self.model} of torchvision has no map before a pooling; choose a model of timm")
        inputs: list[Tensor] = []
        with pools[-1].register_forward_pre_hook(lambda _, arguments: inputs.extend(arguments)):
            network(pixels)
        return inputs[0]


def add_mean_std(module: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
    """Give a module the mean and deviation of each channel, which `normalised` reads; no part of a checkpoint."""
    for name, values in (("mean", mean), ("std", std)):
        module.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)


def normalised(module: Any, images: Tensor) -> Tensor:
    """Pixels as a module's network takes them, of uint8 or of floats in [0, 1]: (N, 3, H, W) -> (N, 3, H, W)."""
    pixels = images.to(module.mean.dtype, memory_format=torch.channels_last)
    if images.dtype == torch.uint8:
        pixels = pixels / 255
    return (pixels - module.mean) / module.std


class Vision(NamedTuple):
    """A network without its classifier, from normalised pixels (N, 3, H, W) to features (N, F).

    classifier: names of the classifier's parameters, which a file of weights may hold. mean, std: of each channel.
    """

    network: nn.Module
    classifier: set[str]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _torchvision(model: str, pretrained: bool) -> Vision:
    torchvision = package(f"the model {model}", "train", "torchvision")
    require_listed(model, torchvision.models.list_models())
    name, _, tag = model.partition(".")
    weights = torchvision.models.get_model_weights(name)[tag or "DEFAULT"]
    network: Any = torchvision.models.get_model(name, weights=weights if pretrained else None)
    before = set(network.state_dict())
    if hasattr(network, "transform_input"):  # without it the published weights see pixels normalised in another way
        network.transform_input = True
    layers = [name for name, part in network.named_modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    network.set_submodule(layers[-1], nn.Identity())
    pictures = weights.transforms()
    return Vision(network, before - set(network.state_dict()), tuple(pictures.mean), tuple(pictures.std))


def _timm(model: str, pretrained: bool) -> Vision:
    timm = package(f"the model {model}", "timm", "timm")
    require_listed(model, timm.list_models())
    network = timm.create_model(model, pretrained=pretrained)
    before = set(network.state_dict())
    network.reset_classifier(0)
    pictures = timm.data.resolve_model_data_config(network)
    return Vision(network, before - set(network.state_dict()), tuple(pictures["mean"]), tuple(pictures["std"]))


def require_listed(model: str, names: Collection[str]) -> None:
    """Raise InputError unless a library lists a model: other names would be looked up on the hub or as a folder."""
    name = model.partition(".")[0]
    require(name in names, f"model is {model!r}, which the library does not list{suggest(name, names)}")


@contextmanager
def explained(message: str) -> Iterator[None]:
    """Raise InputError with `message` and what a library said, for any error, since each has its own error classes.

    torch.load's advice that would run code from a file is left out.
    """
    try:
        yield
    except Exception as error:
        said = "" if "weights_only" in str(error) else f": {' '.join(str(error).split())[:300]}"
        raise InputError(f"{message} ({type(error).__name__}{said})") from error


def load_weights(network: nn.Module, path: str | Path, ignored: Collection[str] = ()) -> None:
    """Give `network` the weights of a state dict; no code of the file runs.

    path: .safetensors, or what torch.save wrote, bare or as "state_dict" of a dictionary. ignored: entries that the
    file may hold beside the network's. Raises InputError where the file is damaged or of another network.
    """
    path = regular(existing("weights", path, "Give a file with the state dict of the model"))
    with explained(f"weights: {path} cannot be loaded; expected a state dict"):
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        missing, foreign = network.load_state_dict(content.get("state_dict", content), strict=False)
    # Older files lack the counts of batches, which no computation uses.
    missing = [key for key in missing if not key.endswith("num_batches_tracked")]
    foreign = [key for key in foreign if key not in ignored]
    require(
        not missing and not foreign,
        f"weights: {path} is of another model: it lacks {len(missing)} entries ({', '.join(missing[:1])}) and has "
        f"{len(foreign)} others ({', '.join(foreign[:1])})",
    )


def weights_hash(network: nn.Module) -> str:
    """16 hexadecimal digits of SHA-256 over a network's weights, except counts of batches, which older files lack."""
    digest = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        if not name.endswith("num_batches_tracked"):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]

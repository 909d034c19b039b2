"""Networks of torchvision and timm by name, their classifiers taken off."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import torch
from torch import nn

from vsehub.checks import InputError, fail, one_of, require

_HEADS = ("fc", "classifier", "heads", "head")  # what torchvision calls its classifiers
_AUXILIARY = ("AuxLogits", "aux1", "aux2")


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
    installed, and weights that cannot be had.
    """
    one_of("library", library, tuple(_LIBRARIES))
    with torch.random.fork_rng(devices=[]):
        return _LIBRARIES[library](model, pretrained)


def _torchvision(model: str, pretrained: bool) -> VisionModel:
    import torchvision

    name, _, tag = model.partition(".")
    names = torchvision.models.list_models(module=torchvision.models)
    _require_known("torchvision", name, names)
    choices = torchvision.models.get_model_weights(name)
    if tag:
        one_of(f"the weights of {name}", tag, tuple(choice.name for choice in choices))
    weights = choices[tag] if tag else choices.DEFAULT
    chosen = {"weights": weights if pretrained else None}
    network = _fetched(model, pretrained, lambda: torchvision.models.get_model(name, **chosen))
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
    """Put nothing in the place of the layer that gives the classes: the last of the network's classifier."""
    head = next(name for name in _HEADS if hasattr(network, name))
    layers = [name for name, part in network.named_modules() if isinstance(part, (nn.Linear, nn.Conv2d))]
    network.set_submodule([name for name in layers if f"{name}.".startswith(f"{head}.")][-1], nn.Identity())


def _timm(model: str, pretrained: bool) -> VisionModel:
    try:
        import timm
    except ImportError as error:
        raise InputError("timm is not installed; install it with: pip install 'vsehub[timm]'") from error
    name, _, tag = model.partition(".")
    _require_known("timm", name, timm.list_models())
    if tag:
        tags = [one.partition(".")[2] for one in timm.list_pretrained(f"{name}.*")]
        one_of(f"the weights of {name}", tag, tuple(tags))
    network = _fetched(model, pretrained, lambda: timm.create_model(model, pretrained=pretrained))
    before = set(network.state_dict())
    network.reset_classifier(0)
    made_for = timm.data.resolve_model_data_config(network)
    head = frozenset(before - set(network.state_dict()))
    return VisionModel(network, head, tuple(made_for["mean"]), tuple(made_for["std"]), made_for["input_size"][-1])


_LIBRARIES = {"torchvision": _torchvision, "timm": _timm}


def _require_known(library: str, name: str, names: list[str]) -> None:
    near = get_close_matches(name, names, n=5) or names[:5]
    require(
        name in names,
        f"model: {library} has no model {name!r} of its {len(names)}; close to it: {', '.join(near)}",
    )


def _fetched(model: str, pretrained: bool, build: Callable[[], nn.Module]) -> nn.Module:
    if not pretrained:
        return build()
    try:
        return build()
    except Exception as error:  # each library has its own for a network that is not there
        said = str(error).partition("\n")[0][:200]
        fail(
            f"the weights of {model} cannot be had ({type(error).__name__}: {said}). Give "
            "image_encoder.weights=FILE with its state dict, or image_encoder.pretrained=false for random weights"
        )

"""Weights of a known network in a file of somebody else's, and what tells two sets of weights apart."""

import hashlib
from collections.abc import Collection
from pathlib import Path

import torch
from torch import Tensor, nn

from vsehub.checks import InputError, existing, require


def load_weights(network: nn.Module, path: str | Path, name: str, ignored: Collection[str] = ()) -> None:
    """Give `network` the weights of a state dict.

    path: .safetensors, or what torch.save wrote, bare or as "state_dict" or "model" of a dictionary. name: of the
    network, for messages. ignored: entries that the file may hold beside the network's. Raises InputError where the
    file is damaged or holds another network's weights.
    """
    found = _state(existing("weights", path, "Give a file with the state dict of the model"))
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
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()[:16]


def _entries(network: nn.Module) -> list[tuple[str, Tensor]]:
    """The state dict without the counts of batches: older files lack them, and nothing is computed from them."""
    return [(key, value) for key, value in network.state_dict().items() if not key.endswith("num_batches_tracked")]


def _state(path: Path) -> dict[str, Tensor]:
    """The state dict of a file, without the prefix that data-parallel training puts before its names."""
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


def _differences(name: str, wanted: dict[str, tuple], found: dict[str, Tensor], known: set[str]) -> list[str]:
    """What is missing, too much or of another shape, the first of each by name."""
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

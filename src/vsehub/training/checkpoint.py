"""The files that training writes: last.ckpt, the state from which a run continues, and the best epoch's model."""

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO
from torch.optim import Optimizer

from vsehub.checks import InputError, existing, fail, require
from vsehub.evaluation.checkpoint import write_checkpoint
from vsehub.evaluation.checkpoint_file import SUFFIX
from vsehub.io.files import atomic
from vsehub.io.records import require_version

VERSION = 2  # of last.ckpt, in its entry "vsehub"
AGAIN = "Start a new run in another folder; best.safetensors, if it is there, is whole and can be evaluated"


class BestModel(ModelCheckpoint):
    """Keeps the model of the best epoch, as `evaluation.checkpoint` writes it."""

    FILE_EXTENSION = SUFFIX


class CheckpointFiles(TorchCheckpointIO):
    """Lightning's checkpoint files, each written whole or not at all, in the run's folder and nowhere else."""

    def __init__(self, folder: Path):
        super().__init__()
        self.folder = folder.resolve()

    def save_checkpoint(self, checkpoint: dict, path, storage_options=None) -> None:
        """Write `checkpoint` to `path`; what was there before stays until the new file is whole."""
        if Path(path).suffix == SUFFIX:
            write_checkpoint(path, checkpoint["state_dict"], checkpoint["vsehub"]["description"])
            return
        with atomic(path) as handle:
            torch.save(checkpoint, handle)

    def load_checkpoint(self, path, map_location=None, weights_only: bool | None = None) -> dict:
        """The state in `path`, read without unpickling code."""
        return load_state(path)

    def remove_checkpoint(self, path) -> None:
        """Remove an earlier checkpoint; one elsewhere, which only an altered last.ckpt could name, stays."""
        if Path(path).resolve().parent == self.folder:
            Path(path).unlink(missing_ok=True)


def load_state(path: str | Path) -> dict[str, Any]:
    """The state of a training under way, last.ckpt, on the CPU, read without unpickling code.

    Raises InputError if the file is missing, cut short, of another program or of another version.
    """
    path = existing("resume", path, "Give the folder of a run that `vsehub train` started")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (
        RuntimeError,
        OSError,
        EOFError,
        BadZipFile,
        pickle.UnpicklingError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        IndexError,
    ) as error:
        raise InputError(
            f"resume: {path} cannot be read ({type(error).__name__}); it is cut short or damaged. {AGAIN}"
        ) from error
    own = state.get("vsehub") if isinstance(state, dict) else None
    if not (isinstance(own, dict) and "version" in own):
        fail(f"resume: {path} was not written by `vsehub train`. {AGAIN}")
    require_version(f"resume: {path}", own["version"], VERSION, "The run's run.json names it; or start a new run")
    return state


def parameter_names(optimizer: Optimizer, module: LightningModule) -> dict[int, str]:
    """The names of an optimizer's parameters in `module`, by the parameters' ids, in the optimizer's order."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {id(one): names[id(one)] for group in optimizer.param_groups for one in group["params"]}


def name_parameters(state: dict[str, Any], optimizer: Optimizer, module: LightningModule) -> None:
    """Put the parameters' names in the place of their numbers in an optimizer's state.

    PyTorch takes such a state as it is; with numbers, a list in another order would give a parameter another one's
    moments without an error.
    """
    names = list(parameter_names(optimizer, module).values())
    state["state"] = {names[number]: kept for number, kept in state["state"].items()}
    for group in state["param_groups"]:
        group["params"] = [names[number] for number in group["params"]]


def require_fitting(
    state: dict[str, Any],
    own: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    trained: Sequence[str],
    path: str | Path,
) -> None:
    """Raise InputError unless a state is of a module of this description: same settings, vocabulary and shapes.

    own, weights, trained: the description, the weights and the names of the optimizer's parameters, in their order, of
    the module that is to be trained further.

    Fused optimizers read a tensor of another shape beyond its end.
    """
    held = state["vsehub"]["description"]
    parts = {f"config.{part}": value for part, value in own["config"].items() if part not in ("data", "loader")}
    expected = parts | {name: value for name, value in own.items() if name != "config"}
    found = {f"config.{part}": value for part, value in held["config"].items()} | held
    different = [name for name, value in expected.items() if name not in found or found[name] != value]
    require(not different, f"resume: {path} was written with another {', '.join(different)} than this run has. {AGAIN}")
    shapes = {name: tensor.shape for name, tensor in weights.items()}
    held_shapes = {name: tensor.shape for name, tensor in state["state_dict"].items()}
    wrong = [name for name in shapes.keys() | held_shapes if shapes.get(name) != held_shapes.get(name)]
    for optimizer in state["optimizer_states"]:
        groups = optimizer["param_groups"]
        if [name for group in groups for name in group["params"]] != list(trained):
            wrong.append("the optimizer's parameters, which have another order")
        for name, kept in optimizer["state"].items():
            shape = shapes.get(name, ())
            tensors = [one for one in kept.values() if isinstance(one, torch.Tensor) and one.ndim]
            same = [one for one in tensors if groups[0].get("fused") or one.ndim == len(shape)]
            wrong += [f"the optimizer's {name}" for one in same if one.shape != shape]
    require(not wrong, f"resume: {path} does not fit the model: {', '.join(wrong[:3])}. {AGAIN}")

"""The files that training writes: last.ckpt, for resuming, and the best epoch's model."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.plugins.io import TorchCheckpointIO

from vsehub.checks import InputError, existing, require
from vsehub.io.files import atomic
from vsehub.io.records import require_version
from vsehub.models.checkpoint import write_checkpoint
from vsehub.models.hub import SUFFIX

VERSION = 3  # of last.ckpt, in its entry "vsehub"
NEW_RUN = "Start a new run in another folder; best.safetensors, if it is there, is whole and can be evaluated"


class BestModel(ModelCheckpoint):
    """Keeps the model of the best epoch, as `models.checkpoint` writes it."""

    FILE_EXTENSION = SUFFIX

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Keep the model before its first epoch if it was measured."""
        super().on_train_start(trainer, module)
        if self.monitor in trainer.callback_metrics:
            self._save_topk_checkpoint(trainer, self._monitor_candidates(trainer))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the run that is resumed was; Lightning forgets the last epoch's score."""
        super().load_state_dict(state_dict)
        self.current_score = state_dict["current_score"]


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
        """Remove an earlier checkpoint of the run's folder. Other paths, from a manipulated last.ckpt, are ignored."""
        if Path(path).resolve().parent == self.folder:
            Path(path).unlink(missing_ok=True)


def load_state(path: str | Path) -> dict[str, Any]:
    """The state of a training under way, last.ckpt, on the CPU, read without unpickling code.

    Raises InputError if the file is missing, cut short, of another program or of another version.
    """
    path = existing("resume", path, "Give the folder of a run that `vsehub train` started")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        version = state["vsehub"]["version"]
    except Exception as error:  # a damaged file raises any of a dozen classes
        raise InputError(f"resume: {path} cannot be read ({type(error).__name__}). {NEW_RUN}") from error
    require_version(f"resume: {path}", version, VERSION, "The run's run.json names it; or start a new run")
    return state


def require_same_folder(state: dict[str, Any], path: Path) -> None:
    """Raise InputError unless the state was written in the folder that holds it: only then is it of this run."""
    folders = {callback["dirpath"] for callback in state["callbacks"].values() if "dirpath" in callback}
    require(
        str(path.resolve().parent) in folders,
        f"resume: {path} was written in {', '.join(sorted(folders))}, by another run or before this one was moved; put "
        f"this run's own file there. {NEW_RUN}",
    )

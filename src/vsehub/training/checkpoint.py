"""Checkpoints: one file with weights, configuration and vocabulary, written whole or not at all."""

import pickle
from pathlib import Path
from zipfile import BadZipFile

import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from vsehub.checks import InputError, existing, require
from vsehub.data.words import Words, restored
from vsehub.files import atomic


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoint files under a temporary name first; a full disk is said plainly."""

    def save_checkpoint(self, checkpoint: dict, path, storage_options=None) -> None:
        """Write `checkpoint` to `path`; what was there before stays until the new file is whole."""
        with atomic(path) as handle:
            torch.save(checkpoint, handle)


def load_checkpoint(path: str | Path) -> dict:
    """A checkpoint of ours, on the CPU, read without unpickling code.

    Raises InputError where the file is missing, cut short, no checkpoint of ours, or its weights do not fit its
    vocabulary.
    """
    path = existing("checkpoint", path, "Give the path of a .ckpt file, e.g. RUN_FOLDER/checkpoints/best.ckpt")
    require(path.is_file(), f"checkpoint: {path} is a folder; give a .ckpt file, e.g. {path}/checkpoints/best.ckpt")
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, BadZipFile, pickle.UnpicklingError) as error:
        raise InputError(
            f"checkpoint: {path} cannot be read ({type(error).__name__}); it is cut short or no checkpoint "
            "written by `vsehub train`. Train again, or resume the run from checkpoints/last.ckpt"
        ) from error
    description = checkpoint.get("vsehub") if isinstance(checkpoint, dict) else None
    require(
        bool(description),
        f"checkpoint: {path} was not written by `vsehub train`: it holds no configuration and no vocabulary",
    )
    require("vocabulary" in description, f"checkpoint: {path} holds no vocabulary; train again with this version")
    vocabulary = restored(description["vocabulary"])
    known = 0 if vocabulary is None else len(vocabulary)
    words = checkpoint["state_dict"].get("text_encoder.words.weight")
    require(
        words is None or len(words) == known,
        f"checkpoint: {path} is of another vocabulary: it has {0 if words is None else len(words)} word vectors but "
        f"{known} words",
    )
    return checkpoint


def require_same_vocabulary(checkpoint: dict, vocabulary: Words | None, path: str | Path) -> None:
    """Raise InputError unless training data and checkpoint number the same words alike."""
    theirs, ours = (_words(one) for one in (restored(checkpoint["vsehub"]["vocabulary"]), vocabulary))
    require(
        theirs == ours,
        f"checkpoint: {path} is of another vocabulary ({theirs}) than the training captions give ({ours}); resume with "
        "the data and loader settings of the run's start, or start a new run",
    )


def _words(vocabulary: Words | None) -> str:
    return "none: vectors" if vocabulary is None else f"{len(vocabulary)} words, {vocabulary.fingerprint()}"

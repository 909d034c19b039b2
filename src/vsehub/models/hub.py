"""The files of models, on this machine or on the Hugging Face hub; torch is not imported."""

import re
from pathlib import Path

from vsehub.checks import InputError, existing, require
from vsehub.extras import package
from vsehub.io.address import masked
from vsehub.io.arrays import shortened

SUFFIX, SCHEME, MODEL = ".safetensors", "hf://", "model.safetensors"


def checkpoint_file(path: str | Path) -> Path:
    """The path of a checkpoint; for hf://USER/NAME or hf://USER/NAME@REVISION that of its copy in the hub's cache.

    If the hub does not answer, the cached copy is taken. Raises InputError for a missing file, one whose name is not
    that of a checkpoint, and where the hub refuses.
    """
    require(isinstance(path, str | Path), f"checkpoint is {path}; expected one file")
    if str(path).startswith(SCHEME):
        require(".." not in str(path), f"checkpoint is {path!r}; expected hf://USER/NAME or hf://USER/NAME@REVISION")
        repo, _, revision = str(path).removeprefix(SCHEME).partition("@")
        hub = package("checkpoint", "hub", "huggingface_hub")
        try:
            return Path(hub.hf_hub_download(repo, MODEL, revision=revision or None))
        except Exception as error:  # the client's classes have no common base
            said = shortened(re.sub(r"hf_[A-Za-z0-9]{8,}", "hf_***", masked(str(error))))
            raise InputError(f"checkpoint: {path}: {type(error).__name__}: {said}") from error
    path = existing("checkpoint", path, f"Give the path of a checkpoint, e.g. RUN_FOLDER/checkpoints/best{SUFFIX}")
    require(
        path.is_file() and path.suffix != ".ckpt",
        f"checkpoint: {path} is a folder, or the state of a training under way; give the model of a run, "
        f"RUN_FOLDER/checkpoints/best{SUFFIX}",
    )
    return path

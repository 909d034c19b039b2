"""The path of a checkpoint, checked before anything is read; torch is not imported."""

from pathlib import Path

from vsehub.checks import existing, require
from vsehub.evaluation.hub import fetched, is_on_hub

SUFFIX = ".safetensors"


def checkpoint_file(path: str | Path) -> Path:
    """The path of a checkpoint; for hf://USER/NAME the path of its local copy.

    Raises InputError for a missing file, or one whose name is not that of a checkpoint.
    """
    require(isinstance(path, str | Path), f"checkpoint is {path}; expected one file")
    if is_on_hub(path):
        return fetched(str(path))
    path = existing("checkpoint", path, f"Give the path of a checkpoint, e.g. RUN_FOLDER/checkpoints/best{SUFFIX}")
    best = path / "checkpoints" / f"best{SUFFIX}"
    require(path.is_file(), f"checkpoint: {path} is a folder; give a file" + (f": {best}" if best.is_file() else ""))
    require(
        path.suffix != ".ckpt",
        f"checkpoint: {path} is the state of a training under way, which only resume= reads; give the model: "
        f"{path.with_name(f'best{SUFFIX}')}",
    )
    return path

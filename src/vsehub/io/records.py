"""The kinds of JSON records that commands write, and their strict reading."""

from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple

from vsehub import __version__
from vsehub.checks import require
from vsehub.io.files import read_object

RESULT, BIASES = "result.json", "biases.parquet"  # files of a reranking


class Kind(NamedTuple):
    """A kind of record: its name in messages, the version of its format, and the types of its keys."""

    name: str
    version: int
    keys: dict[str, type | UnionType]


RUN = Kind(
    "a run's record",
    2,
    {
        "status": str,
        "name": str,
        "label": str,
        "dataset": str,
        "architecture": str,
        "seed": int,
        "config": dict,
        "data": dict,
        "best": dict | None,
        "metrics": dict | None,
        "epochs": int | None,
        "wall_seconds": int | float | None,
        "command": str | None,
    },
)
EVALUATION = Kind(
    "an evaluation",
    3,
    {
        "split": str,
        "protocol": str,
        "folds": int,
        "fold_images": int | None,
        "criterion": str,
        "parameters": dict,
        "reference": str,
        "images": int,
        "texts": int,
        "checkpoints": list,
        "metrics": dict,
        "contributions": list | None,
    },
)
EMBEDDINGS = Kind(
    "a result of rerank or diagnose",
    2,
    {
        "kind": str,
        "inputs": dict,
        "queries": dict,
        "items": dict,
        "rankings": list,
        "k": int,
        "truth": dict | None,
        "calibration": dict | None,
        "reference": dict,
    },
)


def read_record(path: Path, kind: Kind, hint: str) -> dict[str, Any]:
    """The record in `path`. Raises InputError, ending in `hint`, if it is damaged or of another version."""
    record = read_object(path, hint)
    require_version(f"{path}, {kind.name},", record.get("schema"), kind.version, hint)
    wrong = [key for key, types in kind.keys.items() if not isinstance(record.get(key), types)]
    require(not wrong, f"{path}: {', '.join(wrong)} is missing, or not what vsehub writes. {hint}")
    metrics: dict[str, Any] = record.get("metrics") or {}
    wrong = [key for key, value in metrics.items() if type(value) not in (int, float, type(None))]
    require(not wrong, f"{path}: metrics: {', '.join(wrong)} is not a number. {hint}")
    return record


def require_version(name: str, version: Any, expected: int | str, hint: str) -> None:
    """Raise InputError unless a file's format has the version that this vsehub reads.

    name: name of the file, in the message. expected: the version to read. hint: a sentence that ends the message.
    """
    require(
        type(version) is type(expected) and version == expected,
        f"{name} is of version {str(version)[:40]} of its format, and vsehub {__version__} reads version {expected}. "
        f"Use the vsehub that wrote it, or a later one. {hint}",
    )

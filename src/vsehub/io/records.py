"""The kinds of JSON records that commands write, and their strict reading."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vsehub.checks import fail, regular, require
from vsehub.io.versions import require_version


@dataclass(frozen=True)
class Kind:
    """A kind of record.

    name: its name in messages. version: the version of its format. keys: required keys and their types. optional:
    optional keys and their types. choices: the allowed values of a text, by its key. numbers: keys of objects that hold
    only numbers.
    """

    name: str
    version: int
    keys: dict[str, type | tuple[type, ...]]
    optional: dict[str, type | tuple[type, ...]] = field(default_factory=dict)
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()


RUN = Kind(
    "a run's record",
    2,
    {
        **{"status": str, "name": str, "label": str, "dataset": str, "architecture": str},
        **{"seed": int, "config": dict, "data": dict},
    },
    {"best": dict, "metrics": dict, "epochs": int, "wall_seconds": (int, float), "command": str},
    {"status": ("running", "stopped", "failed", "finished")},
    ("metrics",),
)
EVALUATION = Kind(
    "an evaluation",
    3,
    {
        **{"split": str, "protocol": str, "folds": int, "fold_images": (int, type(None)), "criterion": str},
        **{"parameters": dict, "reference": str, "images": int, "texts": int, "checkpoints": list, "metrics": dict},
    },
    {"contributions": list, "precision": str, "rounding": dict},
    numbers=("metrics",),
)
EMBEDDINGS = Kind("a result of rerank or diagnose", 1, {"kind": str, "queries": dict, "items": dict, "rankings": list})
CALIBRATION = Kind(
    "a calibration",
    1,
    {
        **{"criterion": str, "parameters": dict, "items": (dict, type(None)), "reference": (dict, type(None))},
        **{"normalize": (bool, type(None)), "rates": list, "null_scores": list, "best_scores": list},
    },
)


def read_record(path: Path, kind: Kind, hint: str) -> dict[str, Any]:
    """The record in `path`. Raises InputError, ending in `hint`, if it is damaged or of another version."""
    text = regular(path).read_bytes()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        fail(f"{path} is not whole JSON ({error}): it was cut short or changed by hand. {hint}")
    return checked_record(record, kind, str(path), hint)


def checked_record(record: Any, kind: Kind, name: str, hint: str) -> dict[str, Any]:
    """The record, called `name` in messages. Raises InputError, ending in `hint`, for another kind or version."""
    if not isinstance(record, dict):
        fail(f"{name} holds a {type(record).__name__}; expected a JSON object. {hint}")
    version = record.get("schema")
    require_version(f"{name}, {kind.name},", version, kind.version, hint, record.get("vsehub"))
    missing = [key for key in kind.keys if key not in record]
    require(not missing, f"{name} lacks {', '.join(missing)}. {hint}")
    types = kind.keys | {key: one for key, one in kind.optional.items() if record.get(key) is not None}
    wrong = [key for key, one in types.items() if not isinstance(record[key], one)]
    require(not wrong, f"{name}: {', '.join(wrong)} is of another type than vsehub writes. {hint}")
    for key in kind.numbers:
        held = record.get(key) or {}
        word = next((name for name, one in held.items() if type(one) not in (int, float, type(None))), None)
        require(word is None, f"{name}: {key}/{word} is {held.get(word)!r}, which is not a number. {hint}")
    for key, values in kind.choices.items():
        require(
            record[key] in values,
            f"{name}: {key} is {record[key]!r}, which vsehub does not write ({', '.join(values)}). {hint}",
        )
    return record

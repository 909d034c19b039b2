"""The facts that are stored with a collection, as JSON, and their strict reading."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from vsehub import __version__
from vsehub.checks import fail, require
from vsehub.io.versions import require_version

SCHEMA = 8
_LONGEST = 1 << 16  # characters of the JSON
_TEXT = 4096  # characters of a text
_RATE = re.compile(r"0\.[0-9]{1,20}|[1-9](\.[0-9]{1,20})?e-[0-9]{2}")  # a float between 0 and 1, as Python writes it
_COUNTS = {"queries": 1, "items": 1, "version": 0}  # of a calibration, and the least that each can be
_MOST_ITEMS, _MOST_DIMENSIONS = 1 << 48, 1 << 20


@dataclass(frozen=True)
class Facts:
    """What a collection of vsehub holds.

    criterion, parameters: the name of a criterion's yaml file, and its settings. reference: where its reference queries
    came from, in words. reference_rows: the number of reference queries stored beside the collection, from which new
    items get their bias; 0 for none. shift: the correction of that bias if these queries are a sample. scale (a) and
    mean_bias (the mean of b): a corrected score is a times the inner product, minus the mean. dim: D; stored vectors
    have one dimension more. items: how many were put in when it was filled. approximate: whether the engine searches an
    approximate index. normalize: whether vectors were divided by their norms. fingerprint: of the item vectors. digest:
    of ids, labels and biases, by which a command knows its own collection; "" once items have come or gone. complete:
    whether all items are in it. version: how often vsehub has added or removed items since it was filled. calibration:
    {"queries": n, "thresholds": {rate: score}, "items": M, "version": that of the calibrated items} of
    `vsehub calibrate`, the rates as texts; None without.
    """

    criterion: str
    parameters: dict[str, Any]
    reference: str
    reference_rows: int
    shift: float
    scale: float
    mean_bias: float
    dim: int
    items: int
    approximate: bool
    normalize: bool | None
    fingerprint: str
    digest: str
    complete: bool
    version: int = 0
    calibration: dict[str, Any] | None = None
    vsehub: str = __version__

    def text(self) -> str:
        """JSON, to be stored."""
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    @property
    def stored_dim(self) -> int:
        """The dimension of stored vectors: D, and one for the bias."""
        return self.dim + 1

    def calibrated(self, thresholds: Mapping[str, Any], items: int) -> Self:
        """These facts with a calibration (`calibration.stored`) of so many items, those of this version."""
        return replace(self, calibration={**thresholds, "items": items, "version": self.version})

    def is_of_the_command_of(self, other: "Facts") -> bool:
        """Whether both collections belong to one command: same contents, no changes since."""
        return bool(self.digest) and replace(self, complete=True) == replace(other, complete=True)

    @classmethod
    def read(cls, text: str | None, address: str) -> Self:
        """The facts of a stored text. Raises InputError, with the collection's address, if it is not vsehub's."""
        found = require_of_vsehub(text, address)
        require(
            "beside" not in found,
            f"index_uri: {address} is what vsehub keeps beside the collection {str(found.get('beside'))[:50]}; give "
            "that one, or another index_name",
        )
        hint = "Or fill it again with overwrite=true"
        require_version(f"index_uri: {address}", found.pop("schema"), SCHEMA, hint, found.get("vsehub"))
        wrong = [one.name for one in fields(cls) if not _fits(one.name, one.type, found.get(one.name))]
        require(
            not wrong and len(found) == len(fields(cls)),
            f"index_uri: the facts of {address} are damaged ({', '.join(wrong) or 'more than vsehub writes'}); fill it "
            "again with overwrite=true",
        )
        return cls(**found)


def require_of_vsehub(text: str | None, address: str) -> dict[str, Any]:
    """The object in a stored text. Raises InputError if the collection at the address is not vsehub's."""
    try:
        found = json.loads(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or "schema" not in found:
        fail(
            f"index_uri: {address} was not made by vsehub: it has no facts on its correction. Give another index_name, "
            "or remove it yourself"
        )
    return found


def mark_of_beside(name: str) -> str:
    """The text that marks a collection stored beside the collection `name`."""
    return json.dumps({"schema": SCHEMA, "beside": name})


def is_beside(text: str | None) -> bool:
    """Whether a stored text marks a collection that belongs beside another."""
    return "beside" in require_of_vsehub(text, "")


def require_beside(text: str | None, name: str, address: str) -> None:
    """Raise InputError unless a stored text marks a collection as stored beside the collection `name`."""
    require(
        require_of_vsehub(text, address).get("beside") == name,
        f"index_uri: {address} is not what vsehub keeps beside {name}; give another index_name",
    )


def _fits(name: str, kind: Any, value: Any) -> bool:
    """Whether a value read from JSON is one that vsehub writes."""
    if kind is str:
        return type(value) is str and len(value) <= _TEXT
    if kind is int:
        least, most = int(name not in ("reference_rows", "version")), _MOST_DIMENSIONS if name == "dim" else _MOST_ITEMS
        return type(value) is int and least <= value <= most
    if kind is float:
        number = type(value) in (int, float) and math.isfinite(value)
        return number and (name != "scale" or value > 0)
    if name == "calibration":
        return value is None or _is_calibration(value)
    if name == "parameters":  # their values are checked when the criterion is built
        return isinstance(value, dict) and all(type(one) is str for one in value)
    return type(value) is bool or (value is None and name == "normalize")


def _is_calibration(value: Any) -> bool:
    """Whether a value read from JSON is a calibration as vsehub writes it."""
    if not isinstance(value, dict) or value.keys() != {"queries", "thresholds", "items", "version"}:
        return False
    thresholds = value["thresholds"]
    return (
        all(type(value[name]) is int and value[name] >= least for name, least in _COUNTS.items())
        and isinstance(thresholds, dict)
        and all(type(score) in (int, float) and math.isfinite(score) for score in thresholds.values())
        and all(_RATE.fullmatch(rate) for rate in thresholds)
    )

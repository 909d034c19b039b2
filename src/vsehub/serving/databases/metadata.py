"""The metadata that is stored with a collection as JSON, and its strict reading."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self, get_origin

from vsehub import __version__
from vsehub.checks import require
from vsehub.io.versions import require_version

SCHEMA = 8


@dataclass(frozen=True)
class Metadata:
    """The metadata of a collection.

    criterion, parameters: the name of a criterion's yaml file, and its settings. reference: where its reference queries
    came from, in words. reference_rows: the number of reference queries stored beside the collection, from which new
    items get their bias; 0 for none. shift: the correction of that bias if these queries are a sample. scale (a) and
    mean_bias (the mean of b): a corrected score is a times the inner product, minus the mean. dim: D; stored vectors
    have one dimension more. approximate: whether the engine searches an approximate index. normalize: whether vectors
    were divided by their norms. columns: the items' further columns and Arrow's names of their types. complete: whether
    all items are stored. version: how often vsehub has added or removed items since then. thresholds: those of
    `vsehub calibrate` by their rates, as texts; {} if not calibrated. calibrated: the number of items at that time.
    """

    criterion: str
    parameters: dict[str, Any]
    reference: str
    reference_rows: int
    shift: float
    scale: float
    mean_bias: float
    dim: int
    approximate: bool
    normalize: bool | None
    columns: dict[str, str]
    complete: bool = False
    version: int = 0
    thresholds: dict[str, float] = field(default_factory=dict)
    calibrated: int = 0
    vsehub: str = __version__

    def text(self) -> str:
        """JSON, to be stored."""
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    @property
    def rates(self) -> dict[float, float]:
        """Rate of false accepts -> threshold."""
        return {float(rate): float(score) for rate, score in self.thresholds.items()}

    @classmethod
    def read(cls, text: str, address: str) -> Self:
        """The metadata of a text. Raises InputError, with the collection's address, if vsehub did not write it."""
        values = read_object(text, address)
        hint = "Or fill it again with overwrite=true"
        require_version(f"index_uri: {address}", values.pop("schema"), SCHEMA, hint)
        try:
            metadata = cls(**values)
            types = {entry.name: dict if get_origin(entry.type) is dict else entry.type for entry in fields(cls)}
            sound = all(isinstance(getattr(metadata, name), kind) for name, kind in types.items())  # type: ignore[arg-type]
            numbers = (metadata.mean_bias, metadata.shift, *metadata.rates, *metadata.rates.values())
            sound = sound and all(map(math.isfinite, numbers)) and 0 < metadata.scale < math.inf and metadata.dim > 0
        except (AttributeError, TypeError, ValueError):
            sound = False
        require(sound, f"index_uri: the metadata of {address} is damaged; fill it again with overwrite=true")
        return metadata


def read_object(text: str, address: str) -> dict[str, Any]:
    """The object in a stored text. Raises InputError if the collection is not vsehub's, or kept beside another."""
    values = _parsed(text)
    require(
        "schema" in values,
        f"index_uri: {address} was not made by vsehub: it has no metadata on its correction. Give another index_name",
    )
    name = str(values.get("beside"))[:50]
    require("beside" not in values, f"index_uri: {address} is the reference of the collection {name!r}; give that one")
    return values


def reference_text(name: str) -> str:
    """The text that marks the reference of the collection `name`."""
    return json.dumps({"schema": SCHEMA, "beside": name})


def is_reference(text: str, name: str) -> bool:
    """Whether a stored text marks the reference of the collection `name`."""
    return _parsed(text).get("beside") == name


def _parsed(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {}

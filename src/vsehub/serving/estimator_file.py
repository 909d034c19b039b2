"""A fitted search in one safetensors file: vectors, item terms and ids as arrays, the rest as JSON in its header.

The file holds only data, no pickles: reading it runs no code. Vectors are written in blocks and mapped when they are
read, so that neither needs memory for all of them.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.data.truth import distinct_ids
from vsehub.data.vectors.readers import read_safetensors
from vsehub.io.arrays import readable
from vsehub.io.files import atomic
from vsehub.io.versions import require_version
from vsehub.neighbors.vectors import VectorSource
from vsehub.serving.calibration import Calibration
from vsehub.serving.fitted import Fitted

FORMAT, VERSION = "vsehub corrected search", "3"
SETTINGS = ("criterion", "parameters", "k", "normalize")
_KINDS = {torch.float64: ("F64", "<f8"), torch.float32: ("F32", "<f4"), torch.bool: ("BOOL", "|b1")}
_BLOCK_BYTES = 16 << 20
# A parameter is at most this, or the number of vectors: a larger one can only be meant to take forever.
_MOST = 1 << 16
_MOST_TERMS = 8
_CALIBRATION = ("null_scores", "best_scores")
_AGAIN = "Copy it again, whole, or fit and save again"


@dataclass(frozen=True)
class Saved:
    """The contents of a file.

    criterion, parameters: the name of a criterion and its settings. items (M, D), reference (R, D): mapped; None if
    there is no reference. terms: of the items, each (M,); None if there is no reference. ids: of the items, or None.
    calibration: None if it is not calibrated.
    """

    criterion: str
    parameters: dict[str, Any]
    k: int
    normalize: bool | None
    items: np.ndarray
    reference: np.ndarray | None
    terms: tuple[Tensor, ...] | None
    ids: list[str] | None
    calibration: Calibration | None


def write_search(path: str | Path, settings: Mapping[str, Any], fitted: Fitted) -> None:
    """Write a fitted search atomically. settings: those of `SETTINGS`, plain values."""
    items, reference, terms, ids = fitted.items, fitted.reference, fitted.terms, fitted.ids
    calibration = fitted.calibration
    arrays = {"items": _Array.of_vectors(items)}
    if reference is not None:
        arrays["reference"] = _Array.of_vectors(reference)
    arrays |= {f"terms.{place}": _Array.of_tensor(term) for place, term in enumerate(terms or ())}
    digest = None
    if ids is not None:
        text = json.dumps(list(ids)).encode()
        digest = hashlib.sha256(text).hexdigest()
        arrays["ids"] = _Array("U8", 1, (len(text),), iter((text,)))
    if calibration is not None:
        arrays |= {name: _Array.of_tensor(getattr(calibration, name)) for name in _CALIBRATION}
    description = {
        **settings,
        "items": list(items.shape),
        "reference": None if reference is None else len(reference),
        "terms": None if terms is None else len(terms),
        "ids": digest,
        "calibration": None if calibration is None else len(calibration),
    }
    metadata = {"description": json.dumps(description, default=float), "format": FORMAT, "version": VERSION}
    header: dict[str, Any] = {"__metadata__": metadata}
    # Wide numbers first, so that every array begins at a multiple of their width.
    ordered = dict(sorted(arrays.items(), key=lambda one: -one[1].width))
    end = 0
    for name, array in ordered.items():
        begin, end = end, end + array.width * int(np.prod(array.shape))
        header[name] = {"dtype": array.kind, "shape": list(array.shape), "data_offsets": [begin, end]}
    head = json.dumps(header, separators=(",", ":")).encode()
    head = head.ljust(-(-len(head) // 8) * 8)
    with atomic(path) as handle:
        handle.write(len(head).to_bytes(8, "little") + head)
        for array in ordered.values():
            for block in array.blocks:
                handle.write(block)


@dataclass(frozen=True)
class _Array:
    """An array to write: its safetensors type, bytes a number, shape, and its bytes in order."""

    kind: str
    width: int
    shape: tuple[int, ...]
    blocks: Iterator[bytes | memoryview]

    @classmethod
    def of_vectors(cls, vectors: VectorSource) -> "_Array":
        dtype = vectors.rows(0, 1).dtype
        step = max(1, _BLOCK_BYTES // (dtype.itemsize * vectors.shape[1]))
        starts = range(0, len(vectors), step)
        blocks = (_bytes(vectors.rows(start, min(start + step, len(vectors)))) for start in starts)
        return cls(_KINDS[dtype][0], dtype.itemsize, tuple(vectors.shape), blocks)

    @classmethod
    def of_tensor(cls, tensor: Tensor) -> "_Array":
        return cls(_KINDS[tensor.dtype][0], tensor.dtype.itemsize, tuple(tensor.shape), iter((_bytes(tensor),)))


def _bytes(tensor: Tensor) -> memoryview:
    array = tensor.detach().cpu().numpy().astype(_KINDS[tensor.dtype][1], order="C", copy=False)
    return array.data.cast("B")


def read_search(path: str | Path) -> Saved:
    """The fitted search in a file.

    Raises InputError if the file is missing, cut short, damaged, of something else or of another version, or if its
    parts do not fit each other. That the criterion is one of vsehub's is left to who builds it.
    """
    path = existing("search", path, "Give the file that `CorrectedSearch.save` wrote")
    require(path.is_file(), f"search: {path} is a folder; give the file that `CorrectedSearch.save` wrote")
    with readable(path, SafetensorError, kind="a fitted search"), safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        require(
            metadata.get("format") == FORMAT,
            f"search: {path} was not written by `CorrectedSearch.save`. Give such a file",
        )
        require_version(f"search: {path}", metadata.get("version"), VERSION, "Or fit and save again")
        names = set(file.keys())
        small = {name: file.get_tensor(name) for name in names - {"items", "reference"}}
    told = _description(path, metadata.get("description", ""))
    vectors = {name: _vectors(path, name) for name in ("items", "reference") if name in names}
    rows, columns = told["items"]
    shapes: dict[str, tuple[int, ...]] = {"items": (rows, columns)}
    if told["reference"] is not None:
        shapes["reference"] = (told["reference"], columns)
    shapes |= {f"terms.{place}": (rows,) for place in range(told["terms"] or 0)}
    if told["ids"] is not None:
        shapes["ids"] = small["ids"].shape if "ids" in small else ()
    if told["calibration"] is not None:
        shapes |= dict.fromkeys(_CALIBRATION, (told["calibration"],))
    found = {name: array.shape for name, array in (vectors | small).items()}
    require(
        found == shapes and (told["terms"] is None) == (told["reference"] is None),
        f"search: the arrays in {path} are not those of its description. {_AGAIN}",
    )
    _require_sizes(path, told["parameters"], max(_MOST, *(len(one) for one in vectors.values())))
    terms = None
    if told["terms"] is not None:
        terms = tuple(torch.from_numpy(small[f"terms.{place}"].copy()) for place in range(told["terms"]))
        require(
            all(term.dtype in _KINDS and bool(term.isfinite().all()) for term in terms),
            f"search: the item terms in {path} are NaN, infinite or no numbers of a criterion. {_AGAIN}",
        )
    ids = None if told["ids"] is None else _ids(path, small["ids"], told["ids"], rows)
    calibration = None
    if told["calibration"] is not None:
        scores = [small[name] for name in _CALIBRATION]
        require(
            all(one.dtype == np.float64 and bool(np.isfinite(one).all()) for one in scores),
            f"search: the scores of the calibration in {path} are NaN, infinite or no float64. {_AGAIN}",
        )
        calibration = Calibration(*(torch.from_numpy(one.copy()) for one in scores))
    return Saved(
        items=vectors["items"],
        reference=vectors.get("reference"),
        terms=terms,
        ids=ids,
        calibration=calibration,
        **{key: told[key] for key in SETTINGS},
    )


def _description(path: Path, text: str) -> dict[str, Any]:
    """The description, all keys there and of the right kinds."""
    try:
        told = json.loads(text)
        sound = (
            isinstance(told["criterion"], str)
            and isinstance(told["parameters"], dict)
            and all(map(_is_setting, told["parameters"].values()))
            and _is_size(told["k"])
            and (told["normalize"] is None or isinstance(told["normalize"], bool))
            and isinstance(told["items"], list)
            and len(told["items"]) == 2
            and all(map(_is_size, told["items"]))
            and (told["reference"] is None or _is_size(told["reference"]))
            and (told["terms"] is None or (type(told["terms"]) is int and 0 <= told["terms"] <= _MOST_TERMS))
            and (told["ids"] is None or isinstance(told["ids"], str))
            and (told["calibration"] is None or _is_size(told["calibration"]))
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    require(sound, f"search: the description in {path} is damaged. {_AGAIN}")
    description: dict[str, Any] = told
    return description


def _is_setting(value: Any) -> bool:
    """A plain value, or one for each k."""
    return all(
        one is None or isinstance(one, bool | int | float | str)
        for one in (value.values() if isinstance(value, dict) else (value,))
    )


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 48


def _vectors(path: Path, name: str) -> np.ndarray:
    array, _ = read_safetensors(path, name)  # opened before, so that it is whole
    require(array.dtype in (np.float32, np.float64), f"search: {name} in {path} holds {array.dtype}. {_AGAIN}")
    assert isinstance(array, np.ndarray)
    return array


def _require_sizes(path: Path, parameters: dict[str, Any], most: int) -> None:
    """Raise InputError for whole numbers beyond `most`."""
    for name, value in parameters.items():
        for one in value.values() if isinstance(value, dict) else (value,):
            require(
                not isinstance(one, int) or abs(one) <= most,
                f"search: {path}: the parameter {name:.40} is too large; expected at most {most:,}. {_AGAIN}",
            )


def _ids(path: Path, stored: np.ndarray, digest: str, rows: int) -> list[str]:
    text = stored.tobytes()
    require(hashlib.sha256(text).hexdigest() == digest, f"search: the ids in {path} are damaged. {_AGAIN}")
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        ids = None
    require(
        isinstance(ids, list) and len(ids) == rows and all(isinstance(one, str) for one in ids),
        f"search: the ids in {path} are not one text for each of its {rows} items. {_AGAIN}",
    )
    found: list[str] = ids
    distinct_ids(f"search: the ids in {path}", found)
    return found

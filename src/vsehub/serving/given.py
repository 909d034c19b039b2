"""What callers give to a search, as vectors, ids and known answers."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, fail, require
from vsehub.data.truth import distinct_ids, read_truth
from vsehub.metrics.positives import Positives
from vsehub.neighbors.vectors import VectorSource, array_of, as_vectors

HELD_BYTES = 2**30  # of items that are held as float32 if they come as a file, in half precision or not yet normalised


def as_array(name: str, vectors: Any) -> Any:
    """Lists and data frames as a numpy array; arrays, tensors, paths and other sources of vectors as they are."""
    if isinstance(vectors, str | Path | VectorSource):
        return vectors
    require(
        not hasattr(vectors, "toarray"),
        f"{name} is {type(vectors).__name__}: sparse input is not supported; give {name}.toarray()",
    )
    if not isinstance(vectors, np.ndarray | Tensor):
        framed = hasattr(vectors, "to_numpy")  # pandas, polars
        require(
            framed or isinstance(vectors, list | tuple) or hasattr(vectors, "__array__"),
            f"{name} is {type(vectors).__name__}; expected a tensor, a numpy array (N, D), a data frame, a list of "
            "lists or the path of a file",
        )
        vectors = _floats(name, vectors.to_numpy() if framed else vectors)
    elif isinstance(vectors, np.ndarray) and (vectors.dtype == object or vectors.dtype.kind in "iubc"):
        vectors = vectors if vectors.dtype in (np.int8, np.uint8) else _floats(name, vectors)
    require(
        not isinstance(vectors, Tensor) or vectors.layout == torch.strided,
        f"{name} is a sparse tensor; give a dense one: {name}.to_dense()",
    )
    shape = tuple(vectors.shape)
    require(
        len(shape) != 2 or shape[1] > 0 or shape[0] == 0,
        f"{name} has 0 feature(s) (shape={shape}) while a minimum of 1 is required. Give vectors of numbers",
    )
    require(
        vectors.ndim != 1,
        f"{name} is one vector of {vectors.shape[0] if vectors.ndim else 0} numbers; expected a matrix (N, D). Reshape "
        "your data: of one vector q, give q[None]",
    )
    return vectors


def _floats(name: str, vectors: Any) -> np.ndarray:
    """A matrix of float32. Raises InputError for what holds no real numbers."""
    try:
        found = np.asarray(vectors)
        require(found.dtype.kind != "c", f"{name}: Complex data not supported; give real numbers")
        return found.astype(np.float32)
    except (TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} is no matrix of numbers (N, D): {error}") from error


def hold_items(items: VectorSource) -> VectorSource:
    """Items as float32 in memory where that is small and every search would read or convert them again."""
    small = 4 * items.shape[0] * items.shape[1] <= HELD_BYTES
    if array_of(items) is not None or not small or items.rows(0, 0).dtype != torch.float32:
        return items
    return as_vectors("items", items.rows(0, len(items)))


def checked_ids(ids: Sequence[str], rows: int) -> list[str]:
    """The ids, or InputError if they are not one text a row, all different."""
    require(isinstance(ids, Iterable), f"ids is {type(ids).__name__}; expected one text for each item")
    found = list(ids)
    require(
        not isinstance(ids, str) and len(found) == rows,
        f"ids are {len(found)} for {rows} items; expected one text for each item",
    )
    other = next((one for one in found if not isinstance(one, str)), None)
    require(
        all(isinstance(one, str) for one in found),
        f"ids: {other!r} is {type(other).__name__}; expected one text for each item, such as list(map(str, ids))",
    )
    found = [str(one) for one in found]
    distinct_ids("ids", found)
    return found


def known_answers(
    truth: Any, queries: int, items: int, query_ids: Sequence[str] | None, item_ids: Sequence[str] | None
) -> Positives:
    """Which items answer which queries, from positions, pairs, a mask or a table."""
    if isinstance(truth, str | Path):
        pairs = read_truth(truth, queries, items, query_ids, item_ids)
        return Positives.from_pairs(*pairs, queries, items, complete=False)
    try:
        given = truth.detach().cpu() if isinstance(truth, Tensor) else torch.from_numpy(np.array(truth))
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"truth is {type(truth).__name__}; expected positions, pairs or a mask") from error
    shape = tuple(given.shape)
    if given.dtype == torch.bool and shape == (queries, items):
        query, item = given.nonzero(as_tuple=True)
    elif given.dtype != torch.bool and shape == (queries,):
        query, item = torch.arange(queries), given
    elif given.dtype != torch.bool and len(shape) == 2 and shape[1] == 2:
        query, item = given.unbind(dim=1)
    else:
        fail(
            f"truth is {given.dtype} {shape}; expected the position of each query's item ({queries},), pairs of "
            f"positions of queries and items (P, 2), or a boolean matrix ({queries}, {items})"
        )
    try:
        return Positives.from_pairs(query, item, queries, items, complete=False)
    except InputError as error:
        raise InputError(f"truth: {error}") from error

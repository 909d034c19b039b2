"""The arguments of a corrected search in Python: matrices of vectors, and known answers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.data.truth import read_truth
from vsehub.data.vectors.embeddings import few_checked, look_through, open_vectors
from vsehub.metrics.positives import Positives
from vsehub.neighbors.screened import KeptItems
from vsehub.neighbors.vectors import VectorSource, array_of, as_vectors, usable_device

HELD_BYTES = 2**30  # of items that come as a file, in half precision or not yet normalised


def as_matrix(name: str, vectors: Any) -> str | Path | Tensor | np.ndarray:
    """A numpy array of floats or bytes, float32 of data frames, lists and other numbers; tensors and paths stay."""
    if isinstance(vectors, str | Path | Tensor):
        return vectors
    require(not hasattr(vectors, "toarray"), f"{name}: sparse input is not supported; give {name}.toarray()")
    array = np.asanyarray(vectors)
    require(array.dtype.kind != "c", f"{name}: Complex data not supported")
    if array is not vectors or (array.dtype.kind != "f" and array.dtype not in (np.int8, np.uint8)):
        array = array.astype(np.float32)
    require(
        array.ndim == 2,
        f"{name} has shape {array.shape}; expected a matrix (N, D). Reshape your data: of one vector q, give q[None]",
    )
    require(array.shape[1] > 0, f"{name} has 0 feature(s) (shape={array.shape}) while a minimum of 1 is required.")
    return array


def open_matrix(
    name: str,
    vectors: Any,
    normalize: bool | None,
    columns: int | None = None,
    device: str | torch.device | None = None,
    ids: Sequence[Any] | None = None,
) -> tuple[VectorSource, list[str] | None]:
    """Checked vectors, read in blocks, and their ids: `ids` as texts, else those of their file, or None.

    normalize: see `VectorFile`. columns: the required dimension. Arrays and tensors that are not normalised are neither
    copied nor converted. A few rows take microseconds. Raises InputError if the vectors or the ids do not fit.
    """
    rows = few_checked(vectors, normalize) if device is None and ids is None else None
    if rows is not None:
        return as_vectors(name, rows, columns), None
    vectors = as_matrix(name, vectors)
    file = open_vectors(vectors, name, normalize=normalize)
    file = file if ids is None else file.with_ids([str(one) for one in ids])
    stays = not normalize and not isinstance(vectors, str | Path)
    source = as_vectors(name, vectors if stays else file, columns, None if device is None else usable_device(device))
    look_through(file)
    return source, file.ids


def hold(items: VectorSource) -> VectorSource:
    """Items ready for many searches: in memory, if they are small."""
    if array_of(items) is None and 4 * items.shape[0] * items.shape[1] <= HELD_BYTES:
        items = as_vectors("items", items.rows(0, len(items)))
    return KeptItems(items)


def known_answers(
    truth: Any, queries: int, items: int, query_ids: Sequence[str] | None, item_ids: Sequence[str] | None
) -> Positives:
    """Which items answer which queries.

    truth: the position of each query's item (Q,), pairs of positions of queries and items (P, 2), a boolean matrix
    (Q, M), or the path of a table with the columns query and item. Raises InputError if it does not fit.
    """
    if isinstance(truth, str | Path):
        pairs = read_truth(truth, queries, items, query_ids, item_ids)
        return Positives.from_pairs(*pairs, queries, items, complete=False)
    answers = truth.detach().cpu() if isinstance(truth, Tensor) else torch.from_numpy(np.array(truth))
    mask = answers.dtype == torch.bool
    require(
        tuple(answers.shape) in ([(queries, items)] if mask else [(queries,), (len(answers), 2)]),
        f"truth is {answers.dtype} {tuple(answers.shape)}; expected the position of each query's item ({queries},), "
        f"pairs of positions of queries and items (P, 2), or a boolean matrix ({queries}, {items})",
    )
    if answers.ndim == 1:
        query, item = torch.arange(queries), answers
    else:
        query, item = (answers.nonzero() if mask else answers).unbind(dim=1)
    return Positives.from_pairs(query, item, queries, items, complete=False)

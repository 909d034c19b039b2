"""A fitted search: the vectors and answers that it takes, what it ranks with, and the safetensors file that holds it.

The file has vectors, terms, ids and calibration scores as arrays, the rest as JSON in its header. Reading it runs no
code: a criterion is one of vsehub's own, and its settings are checked as those of the command line.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from vsehub.checks import InputError, existing, require
from vsehub.components import TARGET, Components, conf_folder
from vsehub.criteria.base import Correction, Criterion, Terms, finite_terms, fit_all
from vsehub.criteria.chain import Chain
from vsehub.criteria.choose import Tried
from vsehub.data.truth import distinct_ids, read_truth
from vsehub.data.vectors.embeddings import few_checked, look_through, open_vectors
from vsehub.data.vectors.readers import read_safetensors
from vsehub.io.arrays import DAMAGE
from vsehub.io.files import atomic
from vsehub.metrics.positives import Positives
from vsehub.neighbors.screened import KeptItems
from vsehub.neighbors.vectors import VectorSource, array_of, as_vectors, usable_device
from vsehub.serving.calibration import Calibration

GROUP, FORMAT = "criterion", "vsehub search 4"
_DAMAGE: tuple[type[Exception], ...] = (SafetensorError, KeyError, TypeError, AttributeError, *DAMAGE)
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
    """The items that answer each query.

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


@dataclass(frozen=True)
class Fitted:
    """The fitted state of a `CorrectedSearch`. It is immutable: a change of the search replaces it.

    `criterion_`: the `Criterion`, after `tune` with the settings chosen. `items_` (M, D), `reference_` (R, D): read in
    blocks; None without a reference. `item_terms_`: the criterion's terms (M,) of the items; None if they are
    estimated anew from the queries of each search. `ids_`: M texts, or None. `normalize_`: that of `fit`. `tried_`: all
    candidates of `tune` with their mean reciprocal rank and R@1; None before it. `calibration_`: None before
    `calibrate`, and after other changes. Raises InputError for ids that repeat or are not as many as the items.
    """

    criterion_: Criterion
    items_: VectorSource
    reference_: VectorSource | None
    item_terms_: Terms | None
    ids_: list[str] | None
    normalize_: bool | None
    tried_: Sequence[Tried] | None = None
    calibration_: Calibration | None = None

    def __post_init__(self) -> None:
        names = self.items_ if self.ids_ is None else self.ids_
        sizes = {len(self.items_), len(names), *map(len, self.item_terms_ or ())}
        require(len(sizes) == 1, f"ids, terms: expected one for each of {len(self.items_)} items")
        distinct_ids("ids", self.ids_ or ())

    @property
    def n_features_in_(self) -> int:
        """The dimension D."""
        return self.items_.shape[1]

    def terms_on(self, device: torch.device) -> Terms:
        """The terms of the items, on a device."""
        return tuple(term.to(device) for term in self.item_terms_ or ())

    def search(self, queries: VectorSource, k: int) -> tuple[Tensor, Tensor]:
        """Values and positions (Q, k) of queries."""
        if self.item_terms_ is None:
            return self.criterion_.search(queries, self.items_, None, k)
        terms = self.terms_on(queries.rows(0, 0).device)
        return self.criterion_.correction.search_fitted(queries, self.items_, terms, k)

    def with_items(self, rows: Tensor, terms: Terms | None, ids: list[str] | None) -> Self:
        """The same with other items (M, D), their terms and ids, and no calibration.

        Raises InputError for ids that repeat, and if the items' terms depend on each other.
        """
        require(
            self.reference_ is None or self.criterion_.correction.independent,
            f"criterion: under {self.criterion_!r} an item's terms depend on the other items; fit anew with all items",
        )
        items = KeptItems(as_vectors("items", rows))
        return replace(self, items_=items, item_terms_=terms, ids_=ids, calibration_=None)


def item_terms(criterion: Criterion, items: VectorSource, reference: VectorSource | None) -> Terms | None:
    """The terms of the items; None if they depend on the queries of each search."""
    if reference is not None:
        return fit_all([criterion.correction], items, reference)[0]
    return () if isinstance(criterion, Correction) and not criterion.needs_reference else None


def criterion_settings(criterion: Criterion) -> dict[str, Any]:
    """The class of a criterion of vsehub and its settings. Raises InputError for a class of others."""
    settings: dict[str, Any] = {TARGET: f"vsehub.criteria.{type(criterion).__name__}"}
    require(
        Components([conf_folder()]).find(GROUP, settings) is type(criterion),
        f"criterion: {criterion!r} is not of vsehub, and a file names no other code",
    )
    steps = [criterion_settings(step) for step in criterion.steps] if isinstance(criterion, Chain) else []
    return settings | ({"steps": steps} if steps else criterion.parameters())


def write_fitted(path: Path, fitted: Fitted, k: int) -> None:
    """Write a fitted search atomically. k: the number of items that a search returns."""
    settings = {"criterion": criterion_settings(fitted.criterion_), "k": k, "normalize": fitted.normalize_}
    text = json.dumps(settings)
    require(json.loads(text) == settings, f"criterion: settings of {fitted.criterion_!r} cannot be stored as JSON")
    tensors = {f"terms.{place}": term for place, term in enumerate(fitted.item_terms_ or ())}
    for name, vectors in (("items", fitted.items_), ("reference", fitted.reference_)):
        if vectors is not None:
            tensors[name] = vectors.rows(0, len(vectors))
    if fitted.calibration_ is not None:
        tensors |= vars(fitted.calibration_)
    arrays = {name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}
    if fitted.ids_ is not None:
        arrays["ids"] = np.frombuffer(json.dumps(fitted.ids_).encode(), np.uint8)
    with atomic(path) as handle:
        handle.write(save(arrays, {"format": FORMAT, "settings": text}))


def read_fitted(path: str | Path, device: str | torch.device | None = None) -> tuple[Fitted, int]:
    """The fitted search in a file, its vectors mapped, and k. Raises InputError for other or damaged files."""
    path = existing("search", path, "Give the file that `CorrectedSearch.save` wrote")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            require(metadata.get("format") == FORMAT, f"its format is {metadata.get('format')!r:.60}, not {FORMAT!r}")
            names = set(file.keys())
            arrays = {name: file.get_tensor(name) for name in names - {"items", "reference"}}
        settings = json.loads(metadata["settings"])
        criterion = Components([conf_folder()]).build(GROUP, settings["criterion"])
        items, reference = as_vectors("items", read_safetensors(path, "items")[0]), None
        terms = item_terms(criterion, items, None)
        if "reference" in names:
            stored = read_safetensors(path, "reference")[0]
            place = None if device is None else usable_device(device)
            reference = as_vectors("reference", stored, items.shape[1], place)
            ordered = sorted(name for name in names if name.startswith("terms."))
            terms = finite_terms(tuple(torch.from_numpy(arrays[name]) for name in ordered))
        ids = json.loads(arrays["ids"].tobytes()) if "ids" in names else None
        scores = [torch.from_numpy(arrays[name]) for name in ("null_scores", "best_scores") if name in names]
        state = criterion, KeptItems(items), reference, terms, ids, settings["normalize"]
        return Fitted(*state, calibration_=Calibration(*scores) if scores else None), settings["k"]
    except _DAMAGE as error:
        raise InputError(f"search: {path} is not a fitted search: {error}") from error

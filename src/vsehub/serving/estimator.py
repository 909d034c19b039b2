"""Corrected search as an estimator: fit, tune, calibrate, search, save."""

import inspect
import json
import logging
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from vsehub.checks import InputError, existing, fail, one_of, require, whole
from vsehub.components import TARGET, Components, conf_folder
from vsehub.criteria import Auto, Chain, Correction, Criterion, ItemBias
from vsehub.criteria.base import Terms, finite, finite_terms, fit_all, require_can_exclude_self, small_reference_warning
from vsehub.criteria.choose import Tried, choose, named_criterion
from vsehub.data.truth import read_truth, require_distinct_ids
from vsehub.data.vectors.embeddings import check_vectors, open_vectors
from vsehub.data.vectors.readers import read_safetensors
from vsehub.io.arrays import DAMAGE
from vsehub.io.files import atomic
from vsehub.machine import usable_device
from vsehub.neighbors.screened import CachedItems
from vsehub.neighbors.tiles import nearest, ranges
from vsehub.neighbors.vectors import BLOCK, VectorSource, array_of, as_vectors, to_type_of
from vsehub.positives import Positives
from vsehub.serving.calibration import Calibration

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

log = logging.getLogger(__name__)

GROUP, FORMAT = "criterion", "vsehub search 4"
IN_MEMORY_BYTES = 2**30  # items that are not a float32 array are copied into memory, beyond this size read in blocks


class CorrectedSearch:
    """Exact search whose ranking is corrected by a criterion: fit it on items, then search queries.

    criterion: a name of those that `vsehub rerank criterion=` takes ("csls", "is", "sinkhorn", "auto", ...), or a
    `Criterion`. k: number of items that `search` returns for a query by default. normalize: True divides every vector
    by its norm; None refuses vectors whose norm is not 1; False takes them as they are. parameters: settings of a
    criterion that is named, such as {"k": 5} of CSLS, whose k is the number of neighbours; None for those of its yaml
    file. device: where scores are computed, such as "cuda"; None for the device of the queries.

    **With a reference** (inductive) the correction is estimated once, from queries such as those of training captions,
    and applies to any query: the items' terms are stored, and a search costs about as much as without a correction.
    **Without one** (transductive) each `search` takes its own queries as the reference: the answer to a query then
    depends on those that are asked with it, a single query is its own reference, and every search estimates the
    correction anew. The first search of few queries logs a warning.

    Queries, items and reference are (n, D) matrices: numpy arrays, memory maps, tensors, data frames, lists of lists,
    or paths of files (`open_vectors`). Arrays and tensors of float32 are not copied: leave those unchanged that the
    search was fitted on. Other items are held in memory as float32, up to 1 GB of them; more are read in blocks.

    After `fit`: `criterion_`, after `tune` with the settings chosen; `items_` (M, D) and `reference_` (R, D) or None,
    read in blocks; `item_terms_`, the criterion's terms (M,) of the items, None if each search estimates them; `ids_`,
    M texts or None; `tried_`, all candidates of `tune` with the geometric mean of the rank and R@1; `calibration_`.

    >>> import numpy as np
    >>> from vsehub import CorrectedSearch
    >>> def unit(*degrees):
    ...     return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)
    >>> items, training, queries = unit(0, 29, 90), unit(10, 25, 30, 35), unit(8, 50)
    >>> CorrectedSearch("nns", k=1).fit(items).search(queries)[1].tolist()
    [[0], [1]]
    >>> search = CorrectedSearch("csls", k=1, parameters={"k": 2}).fit(items, reference=training)
    >>> search.search(queries)[1].tolist()  # item 1 is near most of the training queries
    [[0], [2]]
    """

    criterion_: Criterion
    items_: VectorSource
    reference_: VectorSource | None
    item_terms_: Terms | None
    ids_: list[str] | None
    tried_: Sequence[Tried] | None = None
    calibration_: Calibration | None = None

    def __init__(
        self,
        criterion: str | Criterion = "csls",
        k: int = 10,
        normalize: bool | None = None,
        parameters: Mapping[str, Any] | None = None,
        device: str | torch.device | None = None,
    ):
        self.criterion, self.k, self.normalize = criterion, k, normalize
        self.parameters, self.device = parameters, device

    def __repr__(self) -> str:
        names = inspect.signature(type(self)).parameters
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).__annotations__:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise not_fitted()(f"{name}: this search is not fitted yet; call fit(items) first")

    @torch.no_grad()
    def fit(self, items: Any, *, reference: Any = None, ids: Sequence[Any] | None = None) -> Self:
        """Take the items (M, D) and estimate the correction on reference queries (R, D).

        reference: None if each search is to take its own queries (transductive). ids: ids of the items, all different
        as texts; None: those of the items' file, if it has any. Raises InputError for arguments of the constructor that
        are not possible, for vectors that do not fit or that `normalize` refuses, and for a reference that the
        criterion cannot use.
        """
        criterion = named_criterion(self.criterion, self.parameters or {})
        require(
            reference is None or criterion.inductive,
            f"reference: {criterion!r} takes no reference, since it matches the queries of a search with the items",
        )
        opened, item_ids = self._open("items", items, ids=ids)
        reference_rows = (
            None if reference is None else self._open("reference", reference, opened.shape[1], self.device)[0]
        )
        if array_of(opened) is None and 4 * len(opened) * opened.shape[1] <= IN_MEMORY_BYTES:
            opened = as_vectors("items", opened.rows(0, len(opened)))
        if isinstance(criterion, Auto):  # until `tune` chooses
            criterion = criterion.untuned(0 if reference_rows is None else len(reference_rows))[1]
        cached_items = CachedItems(opened)
        if reference_rows is not None:
            warn_once(small_reference_warning(criterion, len(reference_rows)))
        return self._set_fitted(
            criterion, cached_items, reference_rows, item_terms(criterion, cached_items, reference_rows), item_ids
        )

    @torch.no_grad()
    def tune(self, queries: Any, truth: Any) -> Self:
        """Choose the criterion's settings on queries (Q, D) with known answers, and fit it.

        All settings of its GRID are tried. Those that it has are kept unless others rank the answers higher by more
        than one standard error (`choose.choose_row`). With criterion="auto" the criterion is chosen too, where it
        beats plain search by the same rule; before `tune` it is CSLS, or Sinkhorn from 200 reference queries. With a
        reference, queries that are in it, bit for bit, are left out of it, fold by fold, while they are searched. Very
        many queries, references or items are sampled. Measure on other queries than these.

        truth: the position of each query's item (Q,), pairs of positions of queries and items (P, 2), or the path of a
        table with the columns query and item. Raises InputError if truth does not fit, has answers of too few queries,
        or the criterion has nothing to tune.
        """
        if not isinstance(self.criterion_, Correction):
            fail(f"criterion: {self.criterion_!r} matches queries and items; tune takes one that corrects scores")
        vectors, positives = self._open_answered(queries, truth)
        named = named_criterion(self.criterion, self.parameters or {})
        among = named if isinstance(named, Auto) else self.criterion_
        choice = choose(among, vectors, positives, self.items_, self.reference_)
        terms = item_terms(choice.criterion, self.items_, self.reference_)
        self._set_fitted(choice.criterion, self.items_, self.reference_, terms, self.ids_)
        self.tried_ = choice.tried
        return self

    @torch.no_grad()
    def calibrate(self, queries: Any, truth: Any, seed: int = 0) -> Self:
        """Calibrate the best scores of queries without an answer, from queries (Q, D) with known answers.

        `search` can then give p values and accept results at a rate of false accepts; see `serving.calibration` for
        what is guaranteed. Give other queries than to `tune`. Among queries that share answers one is drawn by seed,
        and those in the reference are left out. `fit` and `tune` make the calibration void. truth: known answers, as in
        `tune`. Raises InputError if truth does not fit or leaves no query or no item, and if a score depends on the
        other queries of its search (no reference, or a matching).
        """
        if not isinstance(self.criterion_, Correction) or self.item_terms_ is None:
            fail(f"criterion: without reference queries a score under {self.criterion_!r} depends on other queries")
        vectors, positives = self._open_answered(queries, truth)
        terms = self._terms_for(vectors)
        self.calibration_ = Calibration.from_queries(
            self.criterion_, vectors, self.items_, terms, positives, self.reference_, seed
        )
        return self

    @torch.no_grad()
    def search(
        self,
        queries: Any,
        k: int | None = None,
        return_ids: bool = False,
        p_values: bool = False,
        accept: float | None = None,
    ) -> tuple[Any, ...]:
        """Values and positions (Q, k) of the k best items of each query (Q, D), best first; (k,) of one query (D,).

        Equal to `Criterion.search` with the items and the reference of `fit`, bit for bit; with a reference, their
        scores are not computed again. k: None for the constructor's. return_ids: return ids, Q lists of k texts,
        instead of positions. p_values: also return those of the queries' first items (Q,), float64 on the CPU, after
        `calibrate`. accept: a share of the queries without an answer; lists whose p value is larger are cut: their
        values are -inf, their positions -1, their lists of ids empty. Returns tensors if queries are a tensor or a
        path, else numpy arrays. Raises InputError if the vectors do not fit or `normalize` refuses them, if k exceeds
        the items, without a calibration, and for a rate that it does not allow.
        """
        if not isinstance(queries, str | Path) and np.ndim(queries) == 1:
            rows = queries[None] if isinstance(queries, Tensor | np.ndarray) else [queries]
            return tuple(part[0] for part in self.search(rows, k, return_ids, p_values, accept))
        k = whole("k", self.k if k is None else k)
        vectors = self._open("queries", queries, self.items_.shape[1], self.device)[0]
        if self.item_terms_ is None:
            warn_once(small_reference_warning(self.criterion_, len(vectors)))
            values, positions = self.criterion_.search(vectors, self.items_, None, k)
        else:
            terms = self._terms_for(vectors)
            values, positions = self.criterion_.correction.search_fitted(vectors, self.items_, terms, k)
        calibration: Any = self.calibration_
        if calibration is None and (p_values or accept is not None):
            fail("p_values, accept: not calibrated, or changed since; call calibrate(queries, truth)")
        best = values[:, 0]
        if accept is not None:
            cut = values[:, :1].double() <= calibration.threshold(accept)
            values, positions = values.masked_fill(cut, -torch.inf), positions.masked_fill(cut, -1)
        like = queries if isinstance(queries, str | Path | Tensor) else np.empty(0)  # lists and data frames give arrays
        results = to_type_of(like, values, positions)
        if p_values:
            results += to_type_of(like, calibration.p_values(best))
        if not return_ids:
            return results
        ids = self.ids_ or range(len(self.items_))
        lists = [[ids[row] for row in rows if row >= 0] for rows in positions.tolist()]
        return results[0], lists, *results[2:]

    @torch.no_grad()
    def neighbors_of_items(self, k: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Values and positions (M, k) of the k best other items of each item, best first.

        An item is left out of its list, its copies are not; without a reference each item's terms are estimated from
        the other items. k: None for the constructor's. Raises InputError for a k above M - 1, and for a criterion whose
        correction depends on a query's scores with all items or, without a reference, on those of all queries and
        items together; see `require_can_exclude_self`.
        """
        values, positions, _ = self._neighbors_of_items(k)
        return values.numpy(), positions.numpy()

    def _neighbors_of_items(self, k: int | None) -> tuple[Tensor, Tensor, Terms]:
        """Values and positions (M, k) of the k best other items of each item, and the terms of the items."""
        criterion, items, terms = self.criterion_, self.items_, self.item_terms_
        k = whole("k", self.k if k is None else k)
        require_can_exclude_self(repr(criterion), criterion, terms is not None)
        if terms is None:  # those of each item from the others
            terms = fit_all([criterion.correction], items, items, exclude_self=True)[0]
        correct = criterion.correction.tile_correction(items, items, terms)
        values, positions = nearest(items, items, k, [correct], exclude_self=True)[0]
        return finite("values", values), positions, terms

    @torch.no_grad()
    def kneighbors_graph(self, k: int | None = None, mode: str = "distance") -> "csr_matrix":
        """The graph of `neighbors_of_items`, sparse (M, M), as estimators of metric="precomputed" take it.

        mode: "connectivity", 1 for each of the k others; or "distance", the largest value of any item with itself or a
        neighbour minus the value of the pair, which is 1 minus the cosine in plain search of unit vectors. Each item is
        then also its own neighbour, at distance 0, and distances under CSLS include the terms of both items. Raises
        InputError as `neighbors_of_items`.
        """
        from scipy.sparse import csr_matrix

        one_of("mode", mode, ("connectivity", "distance"))
        criterion, items = self.criterion_, self.items_
        values, positions, terms = self._neighbors_of_items(k)
        data = torch.ones_like(values)
        if mode == "distance":
            if not isinstance(criterion, ItemBias):
                fail(f"mode: the values of {criterion!r} of different items do not compare; give mode='connectivity'")
            # The values include the neighbour's term. CSLS also has a term of the query, here the item: its own item
            # term. Other biases add 0.
            zero = torch.zeros_like(values)
            values = values + criterion.corrected(zero, tuple(term[:, None] for term in terms), (zero,))
            norms = [items.rows(part.start, part.stop).square().sum(dim=1) for part in ranges(len(items), BLOCK)]
            largest = torch.maximum(criterion.corrected(torch.cat(norms), terms, terms).max(), values.max())
            data = torch.cat([zero[:, :1], largest - values], dim=1)
            positions = torch.cat([torch.arange(len(items))[:, None], positions], dim=1)
        ends = np.arange(len(items) + 1) * positions.shape[1]
        return csr_matrix((data.flatten().numpy(), positions.flatten().numpy(), ends), shape=(len(items),) * 2)

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the fitted search to one safetensors file with a JSON header, atomically and without pickles.

        The file holds the items and the reference as they are searched, float32 or float64, and is made in memory.
        overwrite: replace a file of that name. Raises InputError if there is such a file, or if the criterion is not
        one of vsehub's own.
        """
        require(
            overwrite is True or not os.path.lexists(path),
            f"{path} is there already; give another name, or overwrite=True to replace it",
        )
        settings = {"criterion": criterion_settings(self.criterion_), "k": int(self.k), "normalize": self.normalize}
        text = json.dumps(settings)
        require(json.loads(text) == settings, f"criterion: settings of {self.criterion_!r} cannot be stored as JSON")
        tensors = {f"terms.{number}": term for number, term in enumerate(self.item_terms_ or ())}
        for name, vectors in (("items", self.items_), ("reference", self.reference_)):
            if vectors is not None:
                tensors[name] = vectors.rows(0, len(vectors))
        if self.calibration_ is not None:
            tensors |= vars(self.calibration_)
        arrays = {name: np.ascontiguousarray(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}
        if self.ids_ is not None:
            arrays["ids"] = np.frombuffer(json.dumps(self.ids_).encode(), np.uint8)
        with atomic(Path(path)) as handle:
            handle.write(save(arrays, {"format": FORMAT, "settings": text}))

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> Self:
        """The fitted search that `save` wrote; its items are mapped, not read.

        Nothing in the file runs: it names a criterion of vsehub and plain settings, which are checked as those of the
        command line. Raises InputError if the file is missing, damaged, of another version or of something else.
        """
        path = existing("search", path, "Give the file that `CorrectedSearch.save` wrote")
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                require(metadata.get("format") == FORMAT, f"its format is not {FORMAT!r}")
                small = {name: file.get_tensor(name) for name in {*file.keys()} - {"items", "reference"}}
                inductive = "reference" in file.keys()  # noqa: SIM118 (it is not a mapping)
            settings = json.loads(metadata["settings"])
            criterion = Components([conf_folder()]).build(GROUP, settings["criterion"])
            items, reference = as_vectors("items", read_safetensors(path, "items")[0]), None
            terms = item_terms(criterion, items, None)
            if inductive:
                torch_device = None if device is None else usable_device(device)
                reference = as_vectors(
                    "reference", read_safetensors(path, "reference")[0], items.shape[1], torch_device
                )
                ordered = sorted(name for name in small if name.startswith("terms."))
                terms = finite_terms(tuple(torch.from_numpy(small[name]) for name in ordered))
            search = cls(criterion, settings["k"], settings["normalize"], None, device)
            ids = json.loads(small["ids"].tobytes()) if "ids" in small else None
            search._set_fitted(criterion, CachedItems(items), reference, terms, ids)
            if "null_scores" in small:
                null_scores, best_scores = small["null_scores"], small["best_scores"]
                search.calibration_ = Calibration(torch.from_numpy(null_scores), torch.from_numpy(best_scores))
        except (SafetensorError, KeyError, TypeError, AttributeError, *DAMAGE) as error:  # type: ignore[misc]
            raise InputError(f"search: {path} is not a fitted search: {error}") from error
        return search

    def _set_fitted(
        self,
        criterion: Criterion,
        items: VectorSource,
        reference: VectorSource | None,
        terms: Terms | None,
        ids: list[str] | None,
    ) -> Self:
        """Take a fitted state. Raises InputError for ids that repeat or are not as many as the items."""
        sizes = [len(items) if ids is None else len(ids), *map(len, terms or ())]
        require(set(sizes) == {len(items)}, f"ids, terms: expected one for each of {len(items)} items")
        require_distinct_ids("ids", ids or ())
        self.criterion_, self.items_, self.reference_ = criterion, items, reference
        self.item_terms_, self.ids_ = terms, ids
        self.tried_ = self.calibration_ = None
        return self

    def _open(
        self,
        name: str,
        vectors: Any,
        columns: int | None = None,
        device: str | torch.device | None = None,
        ids: Sequence[Any] | None = None,
    ) -> tuple[VectorSource, list[str] | None]:
        """Checked vectors, read in blocks, and their ids: `ids` as texts, else those of their file, or None.

        columns: the required dimension. Arrays and tensors that are not normalised are neither copied nor converted.
        """
        if not isinstance(vectors, str | Path | Tensor):
            array = np.asanyarray(vectors)
            # Arrays of these types are opened as they are, all others become float32.
            is_readable = array is vectors and (array.dtype.kind == "f" or array.dtype in (np.int8, np.uint8))
            vectors = array if is_readable else array.astype(np.float32)
        file = open_vectors(vectors, name, normalize=self.normalize)
        uncopied = not self.normalize and not isinstance(vectors, str | Path) and file.dtype.is_floating_point
        torch_device = None if device is None else usable_device(device)
        source = as_vectors(name, vectors if uncopied else file, columns, torch_device)
        check_vectors(file)
        require(
            ids is None or not any(value is None or value != value for value in ids),  # NaN differs from itself
            "ids: some are null; give all",
        )
        return source, file.ids if ids is None else [str(value) for value in ids]

    def _open_answered(self, queries: Any, truth: Any) -> tuple[VectorSource, Positives]:
        """The opened and checked queries, and the items that answer each."""
        vectors, query_ids = self._open("queries", queries, self.items_.shape[1], self.device)
        items = len(self.items_)
        if isinstance(truth, str | Path):
            pairs = read_truth(truth, len(vectors), items, query_ids, self.ids_)
            return vectors, Positives.from_pairs(*pairs, len(vectors), items, complete=False)
        answers = truth.detach().cpu() if isinstance(truth, Tensor) else torch.from_numpy(np.array(truth))
        require(
            tuple(answers.shape) in ((len(vectors),), (len(answers), 2)),
            f"truth has shape {tuple(answers.shape)}; expected the position of each query's item ({len(vectors)},), or "
            "pairs of positions of queries and items (P, 2)",
        )
        query, item = (torch.arange(len(vectors)), answers) if answers.ndim == 1 else answers.unbind(dim=1)
        return vectors, Positives.from_pairs(query, item, len(vectors), items, complete=False)

    def _terms_for(self, queries: VectorSource) -> Terms:
        """The terms of the items, on the queries' device."""
        return tuple(term.to(queries.rows(0, 0).device) for term in self.item_terms_ or ())


class NotFittedError(ValueError, AttributeError):
    """Raised for a search that is not fitted; if scikit-learn is installed, its exception of this name is raised."""


def not_fitted() -> type[Exception]:
    """The class of the exception for a search that is not fitted."""
    try:
        from sklearn import exceptions
    except ImportError:
        return NotFittedError
    return exceptions.NotFittedError


@cache
def warn_once(warning: str | None) -> None:
    """Log a warning, if there is one, the first time."""
    if warning:
        log.warning("%s. Give `fit` a larger reference, or search many queries in one call", warning)


def item_terms(criterion: Criterion, items: VectorSource, reference: VectorSource | None) -> Terms | None:
    """The terms of the items; None if they depend on the queries of each search."""
    if reference is not None:
        return fit_all([criterion.correction], items, reference)[0]
    return () if isinstance(criterion, Correction) and not criterion.needs_reference else None


def criterion_settings(criterion: Criterion) -> dict[str, Any]:
    """The class of a criterion of vsehub and its settings. Raises InputError for any other class."""
    settings: dict[str, Any] = {TARGET: f"vsehub.criteria.{type(criterion).__name__}"}
    require(
        Components([conf_folder()]).find(GROUP, settings) is type(criterion),
        f"criterion: {criterion!r} is not of vsehub, and a file names no other code",
    )
    steps = [criterion_settings(step) for step in criterion.steps] if isinstance(criterion, Chain) else []
    return settings | ({"steps": steps} if steps else criterion.parameters())

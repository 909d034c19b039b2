"""Corrected search as an estimator in the manner of scikit-learn: fit, tune, calibrate, search, add, save."""

import inspect
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from vsehub.checks import boolean, fail, require, whole
from vsehub.components import Components, conf_folder
from vsehub.criteria.auto import Auto
from vsehub.criteria.base import Correction, Criterion, ItemBias, joined
from vsehub.criteria.choose import choose
from vsehub.neighbors.vectors import VectorSource, given_back
from vsehub.serving.calibration import Calibration
from vsehub.serving.fitted import (
    GROUP,
    Fitted,
    hold,
    item_terms,
    known_answers,
    open_matrix,
    read_fitted,
    write_fitted,
)


class CorrectedSearch:
    """Exact search whose ranking is corrected by a criterion: fit it on items, then search queries.

    criterion: a name of those that `vsehub rerank criterion=` takes ("csls", "is", "sinkhorn", "auto", ...), or a
    `Criterion`. k: number of items that `search` returns for a query by default. normalize: True divides every vector
    by its norm; None refuses vectors whose norm is not 1; False takes them as they are. parameters: settings of a
    criterion that is named, such as {"k": 5} of CSLS, whose k is the number of neighbours; None for those of its yaml
    file. device: where scores are computed, such as "cuda"; None for the device of the queries. As in scikit-learn the
    constructor only stores its arguments; `fit` checks them.

    **With a reference** (inductive) the correction is estimated once, from queries such as those of training captions,
    and applies to any query: the items' terms are stored, and a search costs about as much as without a correction.
    **Without one** (transductive) each `search` takes its own queries as the reference: the answer to a query then
    depends on those that are asked with it, a single query is its own reference, and every search estimates the
    correction anew.

    Queries, items and reference are (n, D) matrices: numpy arrays, memory maps, tensors, data frames, lists of lists,
    or paths of files (`open_vectors`). Arrays and tensors of float32 are not copied: leave those unchanged that the
    search was fitted on. Other items are held in memory as float32, up to 1 GB of them; more are read in blocks.

    **Threads** may search while one fits, tunes, adds or removes: a search sees all of a change or nothing of it.
    Changes wait for each other. After `fit` the attributes of `serving.fitted.Fitted` can be read: `criterion_`,
    `items_`, `reference_`, `item_terms_`, `ids_`, `n_features_in_`, `tried_` (after `tune`), `calibration_`.

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
    >>> search.add(unit(60)).search(queries)[1].tolist()
    [[0], [3]]
    """

    def __init__(
        self,
        criterion: str | Criterion = "csls",
        k: int = 10,
        normalize: bool | None = None,
        parameters: Mapping[str, Any] | None = None,
        device: str | torch.device | None = None,
    ):
        self.criterion = criterion
        self.k = k
        self.normalize = normalize
        self.parameters = parameters
        self.device = device
        self._fitted: Fitted | None = None
        self._changing = threading.RLock()

    def __getattr__(self, name: str) -> Any:
        """An attribute of the `Fitted` state, which is None before `fit`."""
        return getattr(vars(self).get("_fitted"), name)

    def __getstate__(self) -> dict[str, Any]:
        """The state of a copy: all but the lock."""
        return {name: value for name, value in vars(self).items() if name != "_changing"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the state of a copy, with a new lock."""
        vars(self).update(state, _changing=threading.RLock())

    def __sklearn_is_fitted__(self) -> bool:
        """Return True if `fit` was called; for scikit-learn."""
        return self._fitted is not None

    def __sklearn_tags__(self) -> Any:
        """The tags that scikit-learn's model selection asks for; needs scikit-learn."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments and their values. deep: without effect; for scikit-learn."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments. Raises InputError for other names.

        criterion, parameters and normalize count from the next `fit` on, the others from the next call.
        """
        require(params.keys() <= self.get_params().keys(), f"expected parameters of {self!r}; got {', '.join(params)}")
        vars(self).update(params)
        return self

    def __repr__(self) -> str:
        """The constructor's arguments."""
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"

    @torch.no_grad()
    def fit(self, items: Any, y: Any = None, *, reference: Any = None, ids: Sequence[Any] | None = None) -> Self:
        """Take the items (M, D) and estimate the correction on reference queries (R, D).

        y: not used; it is there for scikit-learn. reference: None if each search is to take its own queries
        (transductive). ids: of the items, all different as texts; None: those of the items' file, if it has any. Raises
        InputError for arguments of the constructor that are not possible, for vectors that do not fit or that
        `normalize` refuses, and for a reference where the criterion takes none.
        """
        with self._changing:
            criterion = named_criterion(self.criterion, self.parameters or {})
            opened, names = open_matrix("items", items, self.normalize, ids=ids)
            require(
                tuple(getattr(y, "shape", ()))[1:] != opened.shape[1:],
                "y: reference queries are given by name: fit(items, reference=queries)",
            )
            require(
                reference is None or criterion.inductive,
                f"reference: {criterion!r} takes none, since it matches the queries of a search with the items",
            )
            how = self.normalize, opened.shape[1], self.device
            seen = None if reference is None else open_matrix("reference", reference, *how)[0]
            criterion = criterion.correction if isinstance(criterion, Auto) else criterion  # until `tune` chooses
            held = hold(opened)
            terms = item_terms(criterion, held, seen)
            self._fitted = Fitted(criterion, held, seen, terms, names, self.normalize)
        return self

    @torch.no_grad()
    def tune(self, queries: Any, truth: Any) -> Self:
        """Choose the criterion's settings on queries (Q, D) with known answers, and fit it with them.

        All settings of the criterion's GRID are tried. Those that it has are kept unless others rank the answers higher
        by more than one standard error (`criteria.auto.chosen`). With criterion="auto" the criterion is chosen too, by
        the same rule; before `tune` it is CSLS. With a reference, queries that are in it, bit for bit, are left out of
        it, fold by fold, while they are searched. Of very many queries, references or items a sample is looked at.
        Measure on other queries than these.

        truth: the position of each query's item (Q,), pairs of positions of queries and items (P, 2), a boolean matrix
        (Q, M), or the path of a table with the columns query and item. Raises InputError if truth does not fit, has
        answers of too few queries, or the criterion has nothing to tune.
        """
        with self._changing:
            now = self._require_fitted()
            if not isinstance(now.criterion_, Correction):
                fail(f"criterion: {now.criterion_!r} matches queries and items; tune takes one that corrects scores")
            asked, names = self._opened(now, queries)
            positives = known_answers(truth, len(asked), len(now.items_), names, now.ids_)
            own = named_criterion(self.criterion, self.parameters or {})
            among = own if isinstance(own, Auto) else now.criterion_
            choice = choose(among, asked, positives, now.items_, now.reference_)
            self._fitted = replace(
                now,
                criterion_=choice.criterion,
                item_terms_=item_terms(choice.criterion, now.items_, now.reference_),
                tried_=choice.tried,
                calibration_=None,
            )
        return self

    @torch.no_grad()
    def calibrate(self, queries: Any, truth: Any, seed: int = 0) -> Self:
        """Calibrate the best scores of queries without an answer, from queries (Q, D) with known answers.

        `search` can then give p values and accept results at a rate of false accepts; see `serving.calibration` for
        what is guaranteed. Give other queries than to `tune`. Of queries that share answers one is drawn by seed, and
        those in the reference are left out. `fit`, `tune`, `add` and `remove` make the calibration void. truth: that of
        `tune`. Raises InputError if this is not fitted, if truth does not fit or leaves no query or no item, and if a
        score depends on the other queries of its search (no reference, or a matching).
        """
        with self._changing:
            now = self._require_fitted()
            if not isinstance(now.criterion_, Correction) or now.item_terms_ is None:
                fail(f"criterion: without reference queries a score under {now.criterion_!r} depends on other queries")
            asked, names = self._opened(now, queries)
            positives = known_answers(truth, len(asked), len(now.items_), names, now.ids_)
            terms = now.terms_on(asked.rows(0, 0).device)
            found = Calibration.of(now.criterion_, asked, now.items_, terms, positives, now.reference_, seed)
            self._fitted = replace(now, calibration_=found)
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
        """Values and positions (Q, k) of the k best items of each query (Q, D), best first.

        Equal to `Criterion.search` with the items and the reference of `fit`, bit for bit; with a reference, their
        scores are not computed again. k: None for the constructor's. return_ids: return ids, Q lists of k texts,
        instead of positions, which change when items are removed. p_values: also return those of the queries' first
        items (Q,), float64 on the CPU, after `calibrate`. accept: a share of the queries without an answer; lists whose
        p value is larger are cut: their values are -inf, their positions -1, their ids none. Returns tensors if queries
        are a tensor or a path, else numpy arrays. Raises InputError if this is not fitted, if the vectors do not fit or
        `normalize` refuses them, if k exceeds the items, if ids are asked of items that have none, without a
        calibration, and for a rate that it does not allow.
        """
        now = self._require_fitted()
        require(not return_ids or now.ids_ is not None, "return_ids: the items have no ids; fit(items, ids=...)")
        calibration: Any = now.calibration_
        if calibration is None and (p_values or accept is not None):
            fail("p_values, accept: not calibrated, or changed since; call calibrate(queries, truth)")
        values, positions = now.search(self._opened(now, queries)[0], whole("k", self.k if k is None else k))
        p = [calibration.p_values(values[:, 0])] if p_values else []
        if accept is not None:
            cut = values[:, :1].double() <= calibration.threshold(accept)
            values, positions = values.masked_fill(cut, -torch.inf), positions.masked_fill(cut, -1)
        like = queries if isinstance(queries, str | Path | torch.Tensor) else np.empty(0)
        found = given_back(like, values, positions, *p)
        if not return_ids or now.ids_ is None:
            return found
        return found[0], [[now.ids_[row] for row in rows if row >= 0] for rows in positions.tolist()], *found[2:]

    @torch.no_grad()
    def kneighbors(
        self, X: Any, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Distances and positions (Q, k) of the k best items of queries (Q, D), as scikit-learn's neighbours give them.

        n_neighbors: None for the constructor's k. A distance is u - score, where u is the largest score that unit
        vectors can have under the correction; without `normalize` or reference it is the largest score of the call.
        return_distance: False for the positions only. Raises InputError as `search`.
        """
        now = self._require_fitted()
        k = whole("n_neighbors", self.k if n_neighbors is None else n_neighbors)
        values, positions = (side.cpu().numpy() for side in now.search(self._opened(now, X)[0], k))
        most = values.max()
        if isinstance(now.criterion_, ItemBias) and now.normalize_ and now.item_terms_ is not None:
            most = now.criterion_.scale - (float(now.item_terms_[0].min()) if now.item_terms_ else 0.0)
        return (np.maximum(most - values, 0.0), positions) if return_distance else positions

    @torch.no_grad()
    def add(self, items: Any, ids: Sequence[Any] | None = None) -> Self:
        """Add items (m, D), whose positions follow the others; equal to `fit` on all at once, but for rounding.

        Their terms are computed from the stored reference, and all items are then held in memory. ids: required if the
        items have them, and refused if they have none. Raises InputError if this is not fitted, for vectors or ids that
        do not fit, and if it has a reference and an item's terms depend on the other items (as with Sinkhorn).
        """
        with self._changing:
            now = self._require_fitted()
            new, names = open_matrix("items", items, now.normalize_, now.n_features_in_, ids=ids)
            require(
                ids is None if now.ids_ is None else names is not None,
                "ids: required if the items have ids, refused if they have none",
            )
            names = now.ids_ and [*now.ids_, *(names or ())]
            terms = item_terms(now.criterion_, new, now.reference_)
            terms = joined([now.item_terms_, terms]) if terms and now.item_terms_ else terms
            rows = now.items_.rows(0, len(now.items_))
            together = torch.cat([rows, new.rows(0, len(new)).to(rows)])
            self._fitted = now.with_items(together, terms, names)
        return self

    @torch.no_grad()
    def remove(self, ids: Sequence[Any]) -> Self:
        """Remove items; those that follow move up. Equal to `fit` on the others, but for rounding.

        ids: of the items to remove; their positions if the items have no ids. Raises InputError if this is not fitted,
        if an item is not there, if none would be left, and as `add` where terms depend on other items.
        """
        with self._changing:
            now = self._require_fitted()
            known = range(len(now.items_)) if now.ids_ is None else now.ids_
            gone = {one if now.ids_ is None else str(one) for one in np.atleast_1d(ids).tolist()}
            left = torch.tensor([row for row, one in enumerate(known) if one not in gone], dtype=torch.int64)
            require(len(left) == len(known) - len(gone), "ids: some are not among the items")
            terms = now.item_terms_ and tuple(term[left.to(term.device)] for term in now.item_terms_)
            names = now.ids_ and [now.ids_[row] for row in left.tolist()]
            self._fitted = now.with_items(now.items_.rows(0, len(known))[left], terms, names)
        return self

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the fitted search to one safetensors file with a JSON header, atomically and without pickles.

        The file holds the items and the reference as they are searched, float32 or float64, and is made in memory.
        overwrite: replace a file of that name. Raises InputError if this is not fitted, if there is such a file, or if
        the criterion is not one of vsehub's own.
        """
        now = self._require_fitted()
        boolean("overwrite", overwrite)
        require(
            overwrite or not os.path.lexists(path),
            f"{path} is there already; give another name, or overwrite=True to replace it",
        )
        write_fitted(Path(path), now, int(self.k))

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> Self:
        """The fitted search that `save` wrote; its items are mapped, not read.

        Nothing in the file runs: it names a criterion of vsehub and plain settings, which are checked as those of the
        command line. Raises InputError if the file is missing, damaged, of another version or of something else.
        """
        fitted, k = read_fitted(path, device)
        found = cls(fitted.criterion_, k, fitted.normalize_, None, device)
        found._fitted = fitted
        return found

    def _opened(self, now: Fitted, queries: Any) -> tuple[VectorSource, list[str] | None]:
        """Checked queries, and the ids of their file."""
        return open_matrix("queries", queries, now.normalize_, now.n_features_in_, self.device)

    def _require_fitted(self) -> Fitted:
        if self._fitted is None:
            fail(f"this {type(self).__name__} is not fitted yet; call fit(items, reference=...)")
        return self._fitted


def named_criterion(name: str | Criterion, parameters: Mapping[str, Any]) -> Criterion:
    """The criterion of a yaml file, or the given one, with some settings changed.

    Raises InputError for other names and settings.
    """
    if isinstance(name, Criterion):
        return name.with_parameters(**parameters)
    components = Components([conf_folder()])
    criterion: Criterion = components.build(GROUP, {**components.node(GROUP, name), **parameters})
    return criterion

"""Corrected search as an estimator in the manner of scikit-learn: fit, tune, calibrate, search, add, save, export."""

import inspect
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, boolean, fail, nearest, require, whole, whole_seed
from vsehub.components import TARGET, Components, conf_folder
from vsehub.criteria.auto import Auto
from vsehub.criteria.base import Correction, Criterion, ItemBias, Terms, fit_all
from vsehub.criteria.choose import OwnSettings, Tried, choose
from vsehub.data.vectors.embeddings import VectorFile, few_checked, look_through, open_vectors
from vsehub.io.outputs import require_new_file
from vsehub.neighbors.screened import FEW_QUERIES
from vsehub.neighbors.vectors import VectorSource, as_vectors, given_back, row_digests, usable_device
from vsehub.serving.calibration import RATES, Calibration, needed
from vsehub.serving.index import build_index
from vsehub.serving.estimator_file import read_search, write_search
from vsehub.serving.fitted import Fitted
from vsehub.serving.given import as_array, checked_ids, hold_items, known_answers
from vsehub.serving.kneighbors import kneighbors, kneighbors_graph

log = logging.getLogger(__name__)

GROUP = "criterion"
SAVED, EXPORTED = (".safetensors",), (".faiss", ".index", ".idx", ".bin")  # suffixes of files


class CorrectedSearch:
    """Exact search whose ranking is corrected by a criterion: fit it on items, then search queries.

    criterion: a name of those that `vsehub rerank criterion=` takes ("csls", "is", "sinkhorn", "auto", ...), or a
    `Criterion`. k: how many items `search` returns for a query if it is not told. normalize: True divides every vector
    by its norm; None refuses vectors whose norm is not 1; False takes them as they are. parameters: settings of a
    criterion that is given by name, such as {"k": 5} of CSLS, whose k is the number of neighbours; None for those of
    its yaml file. device: where scores are computed, such as "cuda"; None for the device of the queries. As in
    scikit-learn the constructor only stores its arguments; `fit` checks them.

    **With a reference** (inductive) the correction is estimated once, from queries such as those of training captions,
    and applies to any query: the items' terms are stored, and a search costs about as much as without a correction.
    **Without one** (transductive) each `search` takes its own queries as the reference: the answer to a query then
    depends on those that are asked with it, a single query is its own reference, and every search estimates the
    correction anew.

    Queries, items and reference are (n, D) matrices: numpy arrays, memory maps, tensors, data frames, lists of lists,
    or paths of files (`open_vectors`). Arrays and tensors of float32 are not copied: leave those unchanged that the
    search was fitted on. Items that would have to be read or converted for every search are held as float32, up to
    1 GB of them; more are read in blocks.

    **Threads** may search while one fits, tunes, adds or removes: a search sees all of a change or nothing of it.
    Changes wait for each other.

    Attributes after `fit`, to be read: `criterion_`, the `Criterion`, after `tune` with the settings chosen; `items_`
    and `reference_` (None if transductive), read block by block; `item_terms_`, the criterion's terms (M,) of the
    items, None if transductive; `ids_`, the items' ids or None; `n_features_in_`, the dimension D; after `tune`,
    `tried_`, all candidates with their mean reciprocal rank and R@1; after `calibrate`, `calibration_`.

    >>> import numpy as np
    >>> from vsehub import CorrectedSearch
    >>> def unit(*degrees):
    ...     return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)
    >>> items, training, queries = unit(0, 29, 90), unit(10, 25, 30, 35), unit(8, 50)
    >>> CorrectedSearch("nns", k=1).fit(items).search(queries)[1].tolist()
    [[0], [1]]
    >>> search = CorrectedSearch("csls", k=1, parameters={"k": 2}).fit(items, reference=training)
    >>> search
    CorrectedSearch(k=1, parameters={'k': 2})
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

    def __getstate__(self) -> dict[str, Any]:
        """What a copy takes along: all but the lock."""
        return {name: value for name, value in vars(self).items() if name != "_changing"}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Take over the state of another search, with a lock of its own."""
        vars(self).update(state, _changing=threading.RLock())

    def __sklearn_is_fitted__(self) -> bool:
        """Whether `fit` was called; for scikit-learn."""
        return self._fitted is not None

    def __sklearn_tags__(self) -> Any:
        """The tags that scikit-learn's model selection asks for; needs scikit-learn."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            None,
            TargetTags(required=False),
            TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(two_d_array=True),
        )

    @property
    def criterion_(self) -> Criterion:
        """The criterion in use."""
        return self._attributes("criterion_").criterion

    @property
    def items_(self) -> VectorSource:
        """The items (M, D)."""
        return self._attributes("items_").items

    @property
    def reference_(self) -> VectorSource | None:
        """The reference (R, D), None if transductive."""
        return self._attributes("reference_").reference

    @property
    def item_terms_(self) -> Terms | None:
        """The criterion's terms of the items (M,), None if transductive."""
        return self._attributes("item_terms_").terms

    @property
    def ids_(self) -> list[str] | None:
        """The ids of the items, or None."""
        return self._attributes("ids_").ids

    @property
    def n_features_in_(self) -> int:
        """The dimension D."""
        return self._attributes("n_features_in_").items.shape[1]

    @property
    def tried_(self) -> Sequence[Tried]:
        """The candidates of `tune`."""
        tried = self._attributes("tried_").tried
        if tried is None:
            raise AttributeError("tried_ is there after tune")
        return tried

    @property
    def calibration_(self) -> Calibration:
        """The null scores of `calibrate`."""
        calibration = self._attributes("calibration_").calibration
        if calibration is None:
            raise AttributeError("calibration_ is there after calibrate, until fit, tune, add or remove")
        return calibration

    def _attributes(self, name: str) -> Fitted:
        if self._fitted is None:
            raise AttributeError(f"{name} is there after fit")
        return self._fitted

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments and their values. deep: there is nothing below them; for scikit-learn."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments. Raises InputError for a name that is none of them.

        criterion and parameters count from the next `fit` on, the others from the next call. Another `normalize` makes
        a calibration void.
        """
        known = self.get_params()
        for name in params:
            require(
                name in known,
                f"{type(self).__name__} has no parameter {name!r}{nearest(name, known)}; its parameters: "
                f"{', '.join(known)}",
            )
        with self._changing:
            if params.get("normalize", self.normalize) is not self.normalize and self._fitted is not None:
                self._fitted = replace(self._fitted, calibration=None)  # it is of the scores of other vectors
            for name, value in params.items():
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The arguments that are not the constructor's defaults, as scikit-learn shows an estimator."""
        defaults = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @torch.no_grad()
    def fit(
        self,
        items: Any,
        y: Any = None,
        *,
        reference: Any = None,
        ids: Sequence[str] | None = None,
    ) -> Self:
        """Take the items (M, D) and estimate the correction on reference queries (R, D).

        y: not used; it is there for scikit-learn. reference: None if each search is to take its own queries
        (transductive). ids: of the items, one text each, all different; None: those of the items' file, if it has any.
        Raises InputError for arguments of the constructor that are not possible, for vectors that do not fit or that
        `normalize` refuses, and for a reference where the criterion takes none.
        """
        with self._changing:
            criterion = self._checked()
            among, own = self._opened("items", items)
            require(
                tuple(getattr(y, "shape", ()))[1:] != among.shape[1:],
                "y is a matrix of the items' dimension; reference queries are given by name: fit(items, "
                "reference=queries)",
            )
            ids = checked_ids(ids, len(among)) if ids is not None else own
            seen = None if reference is None else self._opened("reference", reference, among.shape[1])[0]
            require(
                seen is None or criterion.inductive,
                f"{criterion!r} matches the queries of a search with each other, so it has no form that takes "
                "reference queries: leave the reference out, or take a criterion that corrects scores, e.g. csls",
            )
            if isinstance(criterion, Auto):
                criterion = criterion.correction  # until `tune` chooses
            terms = None if seen is None else fit_all([criterion.correction], among, seen)[0]
            names = None if ids is None else list(ids)
            self._fitted = Fitted(criterion, among, seen, terms, names)
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
            require(now.criterion.tunable, f"{type(now.criterion).__name__} has no settings to tune; leave tune out")
            require(
                isinstance(now.criterion, Correction),
                f"{now.criterion!r} matches queries and items; tune chooses settings of criteria that correct scores, "
                "e.g. csls. Choose those of a matching with `vsehub evaluate tune=true`",
            )
            asked, own = self._opened("queries", queries, now.items.shape[1])
            positives = known_answers(truth, len(asked), len(now.items), own, now.ids)
            given = self._checked()
            name = self.criterion if isinstance(self.criterion, str) else type(self.criterion).__name__
            among = given if isinstance(given, Auto) else OwnSettings(name, now.criterion.correction)
            choice = choose(among, asked, positives, now.items, now.reference)
            self._fitted = now.tuned(choice, row_digests(asked)[positives.counts.cpu().numpy() > 0])
        return self

    @torch.no_grad()
    def calibrate(self, queries: Any, truth: Any, seed: int = 0) -> Self:
        """Learn from queries (Q, D) with known answers what a search finds that has no answer among the items.

        `search` can then give p values and accept results at a rate of false accepts; see `serving.calibration` for
        what is guaranteed. Of queries that share answers one is drawn by seed, and those in the reference are left out.
        `fit`, `tune`, `add` and `remove` make the calibration void. truth: as that of `tune`. Logs a warning if queries
        were given to `tune` since `fit`, and for rates of `RATES` at which queries with answers are accepted no more
        often than others. Raises InputError if this is not fitted, if truth does not fit or leaves no query or no item,
        if the criterion is estimated anew from the queries of each search (no reference), and for a criterion that
        matches queries and items.
        """
        whole_seed("seed", seed)
        with self._changing:
            now = self._require_fitted()
            require(
                isinstance(now.criterion, Correction),
                f"{now.criterion!r} matches the queries of a search with each other, so a score says nothing alone; "
                "calibrate a criterion that corrects scores, e.g. csls",
            )
            require(
                now.terms is not None or not now.criterion.needs_reference,
                f"{now.criterion!r} was fitted without reference queries, so a score depends on the queries of its "
                "search; calibrate after fit(items, reference=...)",
            )
            asked, own = self._opened("queries", queries, now.items.shape[1])
            positives = known_answers(truth, len(asked), len(now.items), own, now.ids)
            terms = tuple(term.to(asked.rows(0, 0).device) for term in now.terms or ())
            correction = now.criterion.correction
            found = Calibration.of(correction, asked, now.items, terms, positives, now.reference, seed)
            tuned = 0 if now.tuned_by is None else int(np.isin(row_digests(asked), now.tuned_by).sum())
            if tuned:
                log.warning(
                    "calibration: %d of %d queries, bit for bit, were given to tune, which chose what ranks their "
                    "answers high: they are not like new queries; calibrate with others",
                    *(tuned, len(asked)),
                )
            for sentence in found.no_better([rate for rate in RATES if needed(rate) <= len(found)]):
                log.warning("calibration: %s", sentence)
            self._fitted = replace(now, calibration=found)
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
        calibration, and for a rate that it cannot hold.
        """
        now = self._require_fitted()
        k = whole("k", self.k if k is None else k)
        require(k <= len(now.items), f"k is {k}; expected at most {len(now.items)}, the number of items")
        require(not return_ids or now.ids is not None, "return_ids: the items have no ids; fit(items, ids=...)")
        if p_values or accept is not None:
            require(
                now.calibration is not None,
                f"{'p_values' if p_values else 'accept'}: this search is not calibrated, or fit, tune, add, remove "
                "or another normalize have changed it since; call calibrate(queries, truth)",
            )
        if accept is not None and now.calibration is not None:
            now.calibration.require_rate(accept)
        asked = self._few(queries, now.items.shape[1])
        if asked is None:
            queries = as_array("queries", queries)
            asked = self._opened("queries", queries, now.items.shape[1])[0]
        values, places = now.ranked(asked, k)
        found: list[Tensor] = []
        if now.calibration is not None and (p_values or accept is not None):
            found.append(now.calibration.p_values(values[:, 0]))
        if accept is not None:
            cut = (found[0] > accept)[:, None].to(values.device)
            values, places = values.masked_fill(cut, -torch.inf), places.masked_fill(cut, -1)
        answer = given_back(queries, values, places, *found[: int(p_values)])
        if not return_ids or now.ids is None:
            return answer
        ids = [[now.ids[place] for place in row if place >= 0] for row in answer[1].tolist()]
        return answer[0], ids, *answer[2:]

    @torch.no_grad()
    def _among_items(self, k: int) -> tuple[Tensor, Tensor]:
        """Values and positions (M, k) where each item asks, as it is held."""
        now = self._require_fitted()
        asked = as_vectors("queries", now.items.rows(0, len(now.items)), device=_usable(self.device))
        return now.ranked(asked, k)

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
        """Distances and positions (Q, k) of the k best items, as scikit-learn's neighbours give them.

        X: queries (Q, D); None: the items, each without itself. n_neighbors: None for the constructor's k. A distance
        is u - score, where u is the largest score that unit vectors can have under the correction; without `normalize`
        or reference it is the largest score of the call. return_distance: False for the positions alone. Raises
        InputError as `search`.
        """
        self._require_fitted()
        return kneighbors(self, X, self.k if n_neighbors is None else n_neighbors, return_distance)

    def kneighbors_graph(self, X: Any = None, n_neighbors: int | None = None, mode: str = "connectivity") -> Any:
        """A sparse matrix (Q, M) with an entry for each of the k best items: 1, or in mode "distance" its distance.

        Other arguments and errors: see `kneighbors`.
        """
        self._require_fitted()
        return kneighbors_graph(self, X, self.k if n_neighbors is None else n_neighbors, mode)

    def transform(self, X: Any) -> Any:
        """The sparse distances (Q, M) of queries (Q, D) to their k best items, for metric="precomputed"."""
        return self.kneighbors_graph(X, mode="distance")

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """`fit`, then `transform` of the items."""
        return self.fit(X, y, **fit_params).transform(X)

    @torch.no_grad()
    def add(self, items: Any, ids: Sequence[str] | None = None) -> Self:
        """Add items (m, D), whose positions follow those there are; equal to `fit` on all at once, but for rounding.

        Their terms are computed from the stored reference. ids: required if the items have them, and refused if they
        have none. Raises InputError if this is not fitted, for vectors or ids that do not fit, and if it has a
        reference and an item's terms depend on the other items (as with Sinkhorn): fit anew.
        """
        with self._changing:
            now = self._require_fitted()
            new, own = self._opened("items", items, now.items.shape[1])
            ids = own if ids is None and now.ids is not None else ids
            self._fitted = now.with_more(new, ids)
        return self

    @torch.no_grad()
    def remove(self, ids: Sequence[str] | Sequence[int]) -> Self:
        """Remove items; those that follow move up. Equal to `fit` on the others, but for rounding.

        ids: of the items to remove; their positions if the items have no ids. Raises InputError if this is not fitted,
        if an item is not there or named twice, if none would be left, and as `add` where terms depend on other items.
        """
        with self._changing:
            self._fitted = self._require_fitted().without(ids)
        return self

    def save(self, path: str | Path, overwrite: bool = False) -> None:
        """Write the fitted search to one safetensors file with a JSON header, atomically and without pickles.

        The file holds the items and the reference as they are searched, float32 or float64. path: a name that ends in
        .safetensors or has no suffix. overwrite: replace a file of that name. Raises InputError if this is not fitted,
        if the name has another suffix or is taken, or if the criterion is not one of vsehub's own.
        """
        now = self._require_fitted()
        path = require_new_file(path, "a fitted search, a safetensors file,", SAVED, overwrite)
        settings = {
            "criterion": self._name(now.criterion),
            "parameters": now.criterion.parameters(),
            "k": int(self.k),
            "normalize": self.normalize,
        }
        write_search(path, settings, now)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> Self:
        """The fitted search that `save` wrote; its items are mapped, not read.

        Nothing in the file runs: it names a criterion of vsehub and plain settings, which are checked as those of the
        command line. Raises InputError if the file is missing, cut short, damaged, of another version or of something
        else, and if it names another criterion or settings that the criterion refuses.
        """
        saved = read_search(path)
        try:
            found = cls(saved.criterion, saved.k, saved.normalize, plain_settings(saved.parameters), device)
            criterion = found._checked()
            items, seen = as_vectors("items", saved.items), None
            if saved.reference is not None and saved.terms is not None:
                seen = as_vectors("reference", saved.reference, device=_usable(device))
                _require_terms(criterion, items, seen, saved.terms)
            found._fitted = Fitted(
                criterion,
                items,
                seen,
                saved.terms,
                saved.ids,
                calibration=saved.calibration,
            )
        except InputError as error:
            raise InputError(f"search: {path}: {error}") from error
        return found

    @torch.no_grad()
    def export(self, path: str | Path, kind: str = "flat", overwrite: bool = False) -> None:
        """Write a FAISS index whose ordinary inner-product search returns the corrected ranking.

        path: a name that ends in .faiss, .index, .idx or .bin, or has no suffix; databases are filled by the command
        `vsehub rerank index=`. kind: "flat" is exact, "ivf" and "hnsw" are approximate. overwrite: replace files of
        that name. `vsehub.serving.load_index` reads the file, and `usage_note` says how
        FAISS searches it without vsehub. Raises InputError without a reference or FAISS, if the name has another suffix
        or is taken, and if the criterion is not one number an item.
        """
        now = self._require_fitted()
        path = require_new_file(path, "a FAISS index", EXPORTED, overwrite)
        require(
            now.terms is not None or not now.criterion.needs_reference,
            "export needs a correction that applies to any query, and this one was fitted without reference queries: "
            "fit(items, reference=...) with queries such as training captions",
        )
        criterion = now.criterion
        if not isinstance(criterion, ItemBias):
            fail(
                f"{criterion!r} does not subtract one number from an item's scores, which is all that an index can "
                "hold: take csls, is, nnn, dn or sinkhorn, or search with CorrectedSearch"
            )
        bias = now.terms[0] if now.terms else torch.zeros(len(now.items))
        index = build_index(now.items, bias, criterion.scale, kind)
        index.save(path)

    def _checked(self) -> Criterion:
        """The criterion. Raises InputError for arguments of the constructor that are not possible."""
        whole("k", self.k)
        boolean("normalize", self.normalize, or_none=True)
        _usable(self.device)
        if isinstance(self.criterion, Criterion):
            require(
                self.parameters is None,
                f"parameters are those of a criterion given by name, but criterion is {self.criterion!r}; give them to "
                "the criterion itself",
            )
            return self.criterion
        require(
            isinstance(self.criterion, str),
            f"criterion is {self.criterion!r}; expected a name, such as 'csls', or an object, such as CSLS(k=10)",
        )
        require(
            self.parameters is None or isinstance(self.parameters, Mapping),
            f"parameters is {self.parameters!r}; expected settings of the criterion by name, such as {{'k': 5}}",
        )
        return named_criterion(self.criterion, self.parameters or {})

    def _opened(self, name: str, vectors: Any, columns: int | None = None) -> tuple[VectorSource, list[str] | None]:
        """Vectors that were looked through, and the ids that their file has."""
        device = None if name == "items" else _usable(self.device)
        if isinstance(vectors, VectorSource):
            return as_vectors(name, vectors, columns, device), vectors.ids if isinstance(vectors, VectorFile) else None
        vectors = as_array(name, vectors)
        file = open_vectors(vectors, name, normalize=self.normalize)
        source = as_vectors(name, file, columns, device)
        look_through(file)
        if not isinstance(vectors, str | Path) and not self.normalize:
            source = as_vectors(name, vectors, columns, device)  # not copied, and float64 stays float64
        return hold_items(source) if name == "items" else source, file.ids

    def _few(self, queries: Any, columns: int) -> VectorSource | None:
        """A few queries (b, D) of the usual form, checked in microseconds; None: `_opened` says what is amiss."""
        plain = isinstance(queries, np.ndarray | Tensor) and self.device is None
        if not plain or queries.ndim != 2 or not 0 < len(queries) <= FEW_QUERIES or queries.shape[1] != columns:
            return None
        rows = few_checked(queries, self.normalize)
        return None if rows is None else as_vectors("queries", rows)

    def _require_fitted(self) -> Fitted:
        if self._fitted is None:
            fail(f"this {type(self).__name__} is not fitted yet; call fit(items, reference=...)")
        return self._fitted

    def _name(self, criterion: Criterion) -> str:
        """The name under which a criterion is built again. Raises InputError if it is not one of vsehub's."""
        settings = criterion.parameters()
        names = _components().choices(GROUP)
        for name in sorted(names, key=lambda one: one != self.criterion):
            built = named_criterion(name, {})
            if _kinds(built) == _kinds(criterion) and built.parameters().keys() == settings.keys():
                return name
        fail(
            f"{criterion!r} is no criterion of vsehub, and a file may not name other code: export an index, or "
            f"take one of {', '.join(names)}"
        )


def _components() -> Components:
    return Components([conf_folder()])


def named_criterion(name: str, parameters: Mapping[str, Any]) -> Criterion:
    """The criterion of a yaml file with some settings changed; in a chain those of the step that has them.

    Raises InputError for a name without a file and for settings that the criterion does not take.
    """
    components = _components()
    node = components.node(GROUP, name)
    known: dict[str, None] = {}

    def changed(one: Mapping[str, Any]) -> dict[str, Any]:
        if "steps" in one:
            return {TARGET: one[TARGET], "steps": [changed(step) for step in one["steps"]]}
        own = inspect.signature(components.find(GROUP, one)).parameters
        known.update(dict.fromkeys(own))
        return {**one, **{key: value for key, value in parameters.items() if key in own}}

    built = changed(node)
    for key in parameters:
        require(
            key in known,
            f"parameters: {name} has no setting {key!r}{nearest(str(key), known)}; its settings: "
            f"{', '.join(known) or 'none'}",
        )
    criterion: Criterion = components.build(GROUP, built)
    return criterion


def _kinds(criterion: Criterion) -> tuple[type, ...]:
    return type(criterion), type(criterion.correction), type(criterion.matching)


def plain_settings(parameters: dict[str, Any]) -> dict[str, Any]:
    """Settings as they were before they were JSON, whose keys are texts: a value for each k has whole numbers."""

    def whole_keys(values: dict[str, Any]) -> dict[str | int, Any]:
        return {int(key) if key.isdecimal() and len(key) < 10 else key: value for key, value in values.items()}

    return {name: whole_keys(value) if isinstance(value, dict) else value for name, value in parameters.items()}


def _require_terms(criterion: Criterion, items: VectorSource, reference: VectorSource, terms: Terms) -> None:
    """Raise InputError unless terms are as many and of the kind that the criterion makes, of one item here."""
    require(criterion.inductive, f"{criterion!r} takes no reference, but the file has one")
    wanted = fit_all([criterion.correction], as_vectors("items", items.rows(0, 1)), reference)[0]
    require(
        [term.is_floating_point() for term in terms] == [term.is_floating_point() for term in wanted],
        f"the file has {len(terms)} terms of an item; {criterion!r} makes {len(wanted)}, of other kinds",
    )


def _usable(device: Any) -> torch.device | None:
    return None if device is None else usable_device(device)

"""Corrected search as an estimator in the manner of scikit-learn: fit, tune, search, add, save, load, export."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, boolean, fail, nearest, require, whole
from vsehub.components import TARGET, Components, conf_folder
from vsehub.criteria.auto import Auto
from vsehub.criteria.base import Correction, Criterion, ItemBias, Terms, fit_all, joined
from vsehub.criteria.choose import OwnSettings, Tried, choose
from vsehub.data.truth import distinct_ids, read_truth
from vsehub.data.vectors.embeddings import look_through, open_vectors
from vsehub.metrics.positives import Positives
from vsehub.neighbors.vectors import Concatenated, VectorSource, as_vectors, given_back, usable_device
from vsehub.serving.corrected import build_index
from vsehub.serving.estimator_file import read_search, write_search

GROUP = "criterion"


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

    Queries, items and reference are (n, D) matrices: numpy arrays, memory maps, tensors, or paths of files
    (`open_vectors`: .npy, .npz, .safetensors, .parquet). They are read in blocks and not copied: leave arrays unchanged
    that the search was fitted on.

    Attributes after `fit`: `criterion_`, the `Criterion`, after `tune` with the settings chosen; `items_` and
    `reference_` (None if transductive), read block by block; `item_terms_`, the criterion's terms (M,) of the items,
    None if transductive; `ids_`, the items' ids or None; `n_features_in_`, the dimension D; after `tune`, `tried_`, all
    candidates with their mean reciprocal rank and R@1.

    >>> import numpy as np
    >>> from vsehub import CorrectedSearch
    >>> def unit(*degrees):
    ...     return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], axis=1)
    >>> items, training, queries = unit(0, 29, 90), unit(10, 25, 30, 35), unit(8, 50)
    >>> CorrectedSearch("nns", k=1).fit(items).search(queries)[1].tolist()
    [[0], [1]]
    >>> search = CorrectedSearch("csls", k=1, parameters={"k": 2}).fit(items, training)
    >>> search
    CorrectedSearch(k=1, parameters={'k': 2})
    >>> search.search(queries)[1].tolist()  # item 1 is near most of the training queries
    [[0], [2]]
    >>> search.add(unit(60)).search(queries)[1].tolist()
    [[0], [3]]
    """

    criterion_: Criterion
    items_: VectorSource
    reference_: VectorSource | None
    item_terms_: Terms | None
    ids_: list[str] | None
    n_features_in_: int
    tried_: Sequence[Tried]

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

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments and their values. deep: there is nothing below them; for scikit-learn."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> Self:
        """Change some of the constructor's arguments. Raises InputError for a name that is none of them.

        criterion and parameters count from the next `fit` on, the others from the next call.
        """
        known = self.get_params()
        for name in params:
            require(
                name in known,
                f"{type(self).__name__} has no parameter {name!r}{nearest(name, known)}; its parameters: "
                f"{', '.join(known)}",
            )
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """The arguments that are not the constructor's defaults, as scikit-learn shows an estimator."""
        defaults = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value != defaults[name].default}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    @torch.no_grad()
    def fit(self, items: Any, reference: Any = None, *, ids: Sequence[str] | None = None) -> Self:
        """Take the items (M, D) and estimate the correction on reference queries (R, D).

        reference: None if each search is to take its own queries (transductive). ids: of the items, one text each, all
        different; None: those of the items' file, if it has any. Raises InputError for arguments of the constructor
        that are not possible, for vectors that do not fit or that `normalize` refuses, and for a reference where the
        criterion takes none.
        """
        criterion = self._checked()
        among, own = self._opened("items", items)
        ids = _distinct(ids, len(among)) if ids is not None else own
        seen = None if reference is None else self._opened("reference", reference, among.shape[1])[0]
        require(
            seen is None or criterion.inductive,
            f"{criterion!r} matches the queries of a search with each other, so it has no form that takes reference "
            "queries: leave the reference out, or take a criterion that corrects scores, e.g. csls",
        )
        if isinstance(criterion, Auto):
            criterion = criterion.correction  # until `tune` chooses
        terms = None if seen is None else fit_all([criterion.correction], among, seen)[0]
        self._set(criterion, among, seen, terms, None if ids is None else list(ids))
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
        self._require_fitted()
        require(
            isinstance(self.criterion_, Correction),
            f"{self.criterion_!r} matches queries and items; tune chooses settings of criteria that correct scores, "
            "e.g. csls. Choose those of a matching with `vsehub evaluate tune=true`",
        )
        asked, own = self._opened("queries", queries, self.n_features_in_)
        positives = _known(truth, len(asked), len(self.items_), own, self.ids_)
        given = self._checked()
        name = self.criterion if isinstance(self.criterion, str) else type(self.criterion).__name__
        among = given if isinstance(given, Auto) else OwnSettings(name, self.criterion_.correction)
        choice = choose(among, asked, positives, self.items_, self.reference_)
        tuned = choice.criterion
        terms = None if self.reference_ is None else fit_all([tuned], self.items_, self.reference_)[0]
        self.criterion_, self.item_terms_, self.tried_ = tuned, terms, choice.tried
        return self

    @torch.no_grad()
    def search(self, queries: Any, k: int | None = None) -> tuple[Any, Any]:
        """Values and positions (Q, k) of the k best items of each query (Q, D), best first.

        Equal to `Criterion.search` with the items and the reference of `fit`, bit for bit; with a reference, their
        scores are not computed again. k: None for the constructor's. Returns numpy arrays if queries are one, else
        tensors. Raises InputError if this is not fitted, if the vectors do not fit or `normalize` refuses them, and if
        k exceeds the items.
        """
        self._require_fitted()
        k = self.k if k is None else k
        whole("k", k)
        require(k <= len(self.items_), f"k is {k}; expected at most {len(self.items_)}, the number of items")
        asked = self._opened("queries", queries, self.n_features_in_)[0]
        if self.item_terms_ is None:
            return given_back(queries, *self.criterion_.search(asked, self.items_, None, k))
        terms = tuple(term.to(asked.rows(0, 0).device) for term in self.item_terms_)
        return given_back(queries, *self.criterion_.correction.search_fitted(asked, self.items_, terms, k))

    @torch.no_grad()
    def add(self, items: Any, ids: Sequence[str] | None = None) -> Self:
        """Add items (m, D), whose positions follow those there are; equal to `fit` on all at once, but for rounding.

        Their terms are computed from the stored reference. Where an item's terms depend on the other items too (as with
        Sinkhorn), the terms of all items are computed again. ids: required if the items have ids, and refused if they
        have none. Raises InputError if this is not fitted, and for vectors or ids that do not fit.
        """
        self._require_fitted()
        new, own = self._opened("items", items, self.n_features_in_)
        everyone = self._with_ids(own if ids is None and self.ids_ is not None else ids, len(new))
        before = self.items_.parts if isinstance(self.items_, Concatenated) else (self.items_,)
        together = Concatenated((*before, new))
        terms = None
        if self.item_terms_ is not None and self.reference_ is not None:
            correction = self.criterion_.correction
            if correction.columnwise and correction.reference_items_as is None:
                terms = joined([self.item_terms_, *fit_all([correction], new, self.reference_)])
            else:
                terms = fit_all([correction], together, self.reference_)[0]
        self.items_, self.item_terms_, self.ids_ = together, terms, everyone
        return self

    def save(self, path: str | Path) -> None:
        """Write the fitted search to one safetensors file with a JSON header, atomically and without pickles.

        The file holds the items and the reference as they are searched, float32 or float64. Raises InputError if this
        is not fitted, or if the criterion is not one of vsehub's own.
        """
        self._require_fitted()
        settings = {
            "criterion": self._name(),
            "parameters": self.criterion_.parameters(),
            "k": self.k,
            "normalize": self.normalize,
        }
        write_search(path, settings, self.items_, self.reference_, self.item_terms_, self.ids_)

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
            found._set(criterion, items, seen, saved.terms, saved.ids)
        except InputError as error:
            raise InputError(f"search: {path}: {error}") from error
        return found

    @torch.no_grad()
    def export(self, path: str | Path, kind: str = "flat") -> None:
        """Write a FAISS index whose ordinary inner-product search returns the corrected ranking.

        kind: "flat" is exact, "ivf" and "hnsw" are approximate. `vsehub.serving.load_index` reads the file, and
        `usage_note` says how FAISS searches it without vsehub. Raises InputError without a reference or FAISS, and if
        the criterion is not one number an item.
        """
        self._require_fitted()
        require(
            self.item_terms_ is not None,
            "export needs a correction that applies to any query, and this one was fitted without reference queries: "
            "fit(items, reference) with queries such as training captions",
        )
        criterion = self.criterion_
        if not isinstance(criterion, ItemBias):
            fail(
                f"{criterion!r} does not subtract one number from an item's scores, which is all that an index can "
                "hold: take csls, is, nnn, dn or sinkhorn, or search with CorrectedSearch"
            )
        bias = self.item_terms_[0] if self.item_terms_ else torch.zeros(len(self.items_))
        build_index(self.items_, bias, criterion.scale, kind).save(path)

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
            return as_vectors(name, vectors, columns, device), getattr(vectors, "ids", None)
        require(
            isinstance(vectors, str | Path | np.ndarray | Tensor),
            f"{name} is {type(vectors).__name__}; expected a tensor, a numpy array (N, D) or the path of a file",
        )
        file = open_vectors(vectors, name, normalize=self.normalize)
        source = as_vectors(name, file, columns, device)
        look_through(file)
        if not isinstance(vectors, str | Path) and not self.normalize:
            source = as_vectors(name, vectors, columns, device)  # not copied, and float64 stays float64
        return source, file.ids

    def _set(
        self,
        criterion: Criterion,
        items: VectorSource,
        reference: VectorSource | None,
        terms: Terms | None,
        ids: list[str] | None,
    ) -> None:
        self.criterion_, self.items_, self.reference_, self.item_terms_ = criterion, items, reference, terms
        self.ids_, self.n_features_in_ = ids, items.shape[1]
        vars(self).pop("tried_", None)

    def _require_fitted(self) -> None:
        require(hasattr(self, "items_"), f"this {type(self).__name__} is not fitted yet; call fit(items, reference)")

    def _with_ids(self, ids: Sequence[str] | None, rows: int) -> list[str] | None:
        """The ids of all items when these are added."""
        require(
            (ids is None) == (self.ids_ is None),
            "ids: the items that are there have "
            + ("none; leave ids out, or fit with ids" if self.ids_ is None else "ids; give one for each new item too"),
        )
        if ids is None or self.ids_ is None:
            return None
        together = [*self.ids_, *_distinct(ids, rows)]
        distinct_ids("ids", together)
        return together

    def _name(self) -> str:
        """The name under which the criterion is built again. Raises InputError if it is not one of vsehub's."""
        settings = self.criterion_.parameters()
        names = _components().choices(GROUP)
        for name in sorted(names, key=lambda one: one != self.criterion):
            built = named_criterion(name, {})
            if _kinds(built) == _kinds(self.criterion_) and built.parameters().keys() == settings.keys():
                return name
        fail(
            f"{self.criterion_!r} is no criterion of vsehub, and a file may not name other code: export an index, or "
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
    return {name: _whole_keys(value) if isinstance(value, dict) else value for name, value in parameters.items()}


def _whole_keys(values: dict[str, Any]) -> dict[str | int, Any]:
    return {int(key) if key.isdecimal() and len(key) < 10 else key: value for key, value in values.items()}


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


def _distinct(ids: Sequence[str], rows: int) -> list[str]:
    """The ids, or InputError if they are not one text a row, all different."""
    found = list(ids)
    require(
        not isinstance(ids, str) and len(found) == rows and all(isinstance(one, str) for one in found),
        f"ids are {len(found)} for {rows} items; expected one text for each item",
    )
    found = [str(one) for one in found]
    distinct_ids("ids", found)
    return found


def _known(
    truth: Any, queries: int, items: int, query_ids: Sequence[str] | None, item_ids: Sequence[str] | None
) -> Positives:
    """Which items answer which queries, from positions, pairs, a mask or a table."""
    if isinstance(truth, str | Path):
        pairs = read_truth(truth, queries, items, query_ids, item_ids)
        return Positives.from_pairs(*pairs, queries, items, complete=False)
    try:
        given = truth.detach().cpu() if isinstance(truth, Tensor) else torch.as_tensor(np.asarray(truth))
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

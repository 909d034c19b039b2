"""Corrected search as an index backend of MTEB and MIEB, the benchmarks of embedding models (mteb 2).

MTEB encodes documents and queries; the backend finds the documents. It is given to `mteb.models.SearchEncoderWrapper`
and needs nothing of mteb itself.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, require
from vsehub.criteria.base import Criterion
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.estimator import CorrectedSearch

SCORES_HELD = 4_000_000
COMPARED = 8  # queries and documents whose scores are compared with the model's
TOLERANCE = 1e-2  # of these scores, by the largest of them: models compute them in half precision too


class MTEBBackend:
    """An index backend that corrects each task's ranking by a criterion.

    criterion, parameters, device: those of `CorrectedSearch`. reference: (R, D) embeddings of queries that the model
    made with its query prompt, an array or the path of a file, for one task's kind of queries; None takes the queries
    of the task themselves (transductive): what is found for one then depends on all. The model's similarity must be the
    cosine or the inner product; which of them it is, is found out by its scores.

    Give `mteb.evaluate` the argument cache=None, or a cache of its own: MTEB keeps results by the model's name, and
    would take those without a correction for those with one.

    >>> backend = MTEBBackend("csls", parameters={"k": 5})
    >>> model = mteb.models.SearchEncoderWrapper(mteb.get_model(name), index_backend=backend)  # doctest: +SKIP
    >>> mteb.evaluate(model, mteb.get_tasks(tasks=[task]), cache=None)  # doctest: +SKIP
    """

    def __init__(
        self,
        criterion: str | Criterion = "csls",
        reference: Any = None,
        parameters: Mapping[str, Any] | None = None,
        device: str | torch.device | None = None,
    ):
        self.criterion = criterion
        self.reference = reference
        self.parameters = parameters
        self.device = device
        self.clear()

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add embeddings (m, D) of documents and their ids. Raises InputError where they do not fit each other."""
        found = _matrix("embeddings", embeddings)
        ids = [str(one) for one in idxs]
        require(len(found) == len(ids), f"{len(found)} embeddings came with {len(ids)} ids; expected one id for each")
        require(
            not self._blocks or found.shape[1] == self._blocks[0].shape[1],
            f"embeddings have {found.shape[1]} dimensions; expected as many as those that were added before",
        )
        self._blocks.append(found)
        self._ids += ids

    @torch.no_grad()
    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Corrected scores and positions of each query's best documents, at most `top_k`, best first.

        embeddings: (Q, D) of the queries. similarity_fn: the model's. top_ranked: ids of the documents to be ranked
        for a query by its id, which `query_idx_to_id` has by its row; positions are then those in these ids. Raises
        InputError where nothing was added, for another similarity, and for ids that are not known.
        """
        require(bool(self._blocks), "no documents were added; expected add_documents before search")
        queries, documents = _matrix("embeddings", embeddings), torch.cat(self._blocks)
        normalize = _normalize(queries, documents, similarity_fn)
        search = CorrectedSearch(self.criterion, 1, normalize, self.parameters, self.device)
        if top_ranked is None:
            search.fit(documents, reference=self.reference)
            values, positions = search.search(queries, min(top_k, len(documents)))
            return values.tolist(), positions.tolist()
        if query_idx_to_id is None:
            fail("top_ranked came without query_idx_to_id; expected the queries' ids")
        search.fit(documents, reference=queries if self.reference is None else self.reference)
        candidates = [top_ranked.get(query_idx_to_id[row], ()) for row in range(len(queries))]
        return self._reranked(search, queries, top_k, candidates)

    def clear(self) -> None:
        """Forget the documents."""
        self._blocks: list[Tensor] = []
        self._ids: list[str] = []

    def _reranked(
        self, search: CorrectedSearch, queries: Tensor, top_k: int, candidates: Sequence[Sequence[str]]
    ) -> tuple[list[list[float]], list[list[int]]]:
        """The best of each query's candidates, by scores that are corrected over all documents."""
        place = {name: row for row, name in enumerate(self._ids)}
        for name in {name for own in candidates for name in own} - place.keys():
            fail(f"top_ranked names the document {name!r}, which was not added")
        values: list[list[float]] = []
        positions: list[list[int]] = []
        height = max(1, SCORES_HELD // len(place))
        for start in range(0, len(queries), height):
            found, rows = search.search(queries[start : start + height], len(self._ids))
            scores = torch.empty_like(found).scatter_(1, rows, found)
            for line, own in zip(scores, candidates[start : start + height], strict=True):
                of_own = line[[place[name] for name in own]]
                best, order = of_own.sort(descending=True, stable=True)
                values.append(best[:top_k].tolist())
                positions.append(order[:top_k].tolist())
        return values, positions


def _matrix(name: str, vectors: Any) -> Tensor:
    """Embeddings (n, D) on the CPU, as float32 at least."""
    found = torch.as_tensor(np.asarray(vectors)) if not isinstance(vectors, Tensor) else vectors
    return as_vectors(name, found.detach().cpu()).rows(0, len(found))


def _normalize(queries: Tensor, documents: Tensor, similarity_fn: Callable[[Any, Any], Any]) -> bool:
    """Whether vectors are divided by their norms, so that their inner products are the model's similarities."""
    some = queries[:COMPARED], documents[:COMPARED]
    wanted = torch.as_tensor(similarity_fn(*some)).float().cpu()
    deviations = []
    for sides in (some, [torch.nn.functional.normalize(one, dim=1) for one in some]):
        products = (sides[0] @ sides[1].T).float()
        fits = wanted.shape == products.shape
        deviations.append(float((wanted - products).abs().max() / products.abs().max()) if fits else math.inf)
    require(
        min(deviations) <= TOLERANCE,
        "the model's similarity is neither the inner product nor the cosine of its embeddings, and only these are "
        "corrected; measure this model without vsehub's backend",
    )
    return deviations[1] < deviations[0]

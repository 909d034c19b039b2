"""Corrected search as an index backend of MTEB and MIEB, the benchmarks of embedding models (mteb 2).

MTEB encodes documents and queries; the backend finds the documents. It is given to `mteb.models.SearchEncoderWrapper`
and needs nothing of mteb itself.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion
from vsehub.serving.estimator import CorrectedSearch

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

    def clear(self) -> None:
        """Forget the documents."""
        self._blocks: list[Tensor] = []
        self._ids: list[str] = []

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add embeddings (m, D) of documents and their ids."""
        self._blocks.append(_tensor(embeddings))
        self._ids += map(str, idxs)

    @torch.no_grad()
    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any],
        top_ranked: Any = None,
        query_idx_to_id: Any = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Corrected scores and positions of each query's best documents, at most `top_k`, best first.

        embeddings: (Q, D) of the queries. similarity_fn: the model's. top_ranked, query_idx_to_id: of tasks that rerank
        candidates. Raises InputError where nothing was added, for another similarity, and for candidates.
        """
        require(bool(self._blocks), "no documents were added; expected add_documents before search")
        require(top_ranked is None, "top_ranked: candidates of a query are not reranked; give a task that retrieves")
        queries, documents = _tensor(embeddings), torch.cat(self._blocks)
        normalize, k = _is_cosine(queries, documents, similarity_fn), min(top_k, len(documents))
        search = CorrectedSearch(self.criterion, k, normalize, self.parameters, self.device)
        values, positions = search.fit(documents, reference=self.reference, ids=self._ids).search(queries)
        return values.tolist(), positions.tolist()


def _tensor(vectors: Any) -> Tensor:
    """Embeddings (n, D) on the CPU, as float32."""
    return torch.as_tensor(vectors if isinstance(vectors, Tensor) else np.asarray(vectors)).detach().cpu().float()


def _is_cosine(queries: Tensor, documents: Tensor, similarity_fn: Callable[[Any, Any], Any]) -> bool:
    """Return True if the model's similarity is the cosine, False for the inner product. Raises InputError otherwise."""
    some = queries[:COMPARED], documents[:COMPARED]
    wanted = torch.as_tensor(similarity_fn(*some)).float().cpu()
    deviations = []
    for one, other in (some, tuple(torch.nn.functional.normalize(side, dim=1) for side in some)):
        products = one @ other.T
        deviations.append(float((wanted - products).abs().max() / products.abs().max()))
    require(min(deviations) <= TOLERANCE, "similarity_fn: only the inner product and the cosine are corrected")
    return deviations[1] < deviations[0]

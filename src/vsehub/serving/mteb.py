"""A search backend for MTEB (2.3 or later), which measures its models under a correction; MTEB is not imported here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from vsehub.checks import require
from vsehub.criteria import Criterion
from vsehub.serving.estimator import CorrectedSearch


class CorrectedIndex:
    """Corrected search as MTEB's `IndexEncoderSearchProtocol`.

    criterion, parameters: as of `CorrectedSearch`. reference: vectors (R, D) of other queries by the same model, such
    as a task's training queries; None: the queries of each search themselves (transductive). normalize: True for a
    model that is scored by cosine, False by inner product.

    `mteb.evaluate(SearchEncoderWrapper(model, index_backend=CorrectedIndex("csls")), tasks)`
    """

    def __init__(
        self,
        criterion: str | Criterion = "csls",
        reference: Any = None,
        normalize: bool = True,
        parameters: Mapping[str, Any] | None = None,
    ):
        self.reference = reference
        self._search = CorrectedSearch(criterion, normalize=normalize, parameters=parameters)
        self.clear()

    def clear(self) -> None:
        """Remove all documents."""
        self._vectors, self._ids = list[np.ndarray](), list[str]()

    def add_documents(self, embeddings: Any, idxs: Sequence[str]) -> None:
        """Add vectors (m, D), an array or tensor, and their ids."""
        self._vectors.append(_rows(embeddings))
        self._ids.extend(idxs)

    def search(
        self,
        embeddings: Any,
        top_k: int,
        similarity_fn: Callable[[Any, Any], Any],
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        query_idx_to_id: Mapping[int, str] | None = None,
    ) -> tuple[list[list[float]], list[list[int]]]:
        """Values and positions of the best `top_k` documents of each query (Q, D), best first.

        top_ranked: query id -> ids of the documents to rank; positions are then those in its list, and
        `query_idx_to_id` is needed. Raises InputError if `similarity_fn` is not the similarity that `normalize` says,
        and as `CorrectedSearch`.
        """
        queries, items = _rows(embeddings), np.concatenate(self._vectors)
        search = self._search.fit(items, reference=queries if self.reference is None else _rows(self.reference))
        plain = CorrectedSearch("nns", normalize=self._search.normalize).fit(items[:1]).search(queries[:1], 1)[0]
        score = _rows(similarity_fn(torch.from_numpy(queries[:1]), torch.from_numpy(items[:1])))
        require(
            np.allclose(score, plain, rtol=1e-2, atol=1e-3),
            f"normalize is {self._search.normalize}; the model scores by another similarity. Give True for cosine, "
            "False for inner products",
        )
        if top_ranked is None or query_idx_to_id is None:
            values, positions = search.search(queries, min(top_k, len(items)))
            return values.tolist(), positions.tolist()
        row_of = {name: row for row, name in enumerate(self._ids)}
        lists = []
        for number, query in enumerate(queries):
            values, positions = search.search(query, len(items))
            rows = [row_of[name] for name in top_ranked.get(query_idx_to_id[number], ())]
            scores = values[positions.argsort()][rows]  # in the order of the documents; then only those to rank
            order = (-scores).argsort(kind="stable")[:top_k]
            lists.append((scores[order].tolist(), order.tolist()))
        return [values for values, _ in lists], [order for _, order in lists]


def _rows(vectors: Any) -> np.ndarray:
    """An array or a tensor as float32 (n, D) in memory."""
    return torch.as_tensor(vectors).detach().float().cpu().numpy()

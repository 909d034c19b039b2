"""Querybank normalisation with the dynamic inverted softmax (Bogolin 2022, eq. 4 and 5)."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.criteria.base import Columns, Correction, Terms, finite_terms, in_one_block
from vsehub.neighbors.topk import top_k_of_blocks


class QBNorm(Correction):
    """The inverted softmax for active queries, those whose nearest item is a hub of the query bank; s for all others.

    A query is active where its nearest item is among the k nearest of some reference query; it is then ranked by
    s - log(Σ_r e^{βs(r, item)}) / β, the order of e^{βs} / Σ_r e^{βs(r, item)}. Where the queries are their own
    reference every query is active, so that the ranking is that of `InvertedSoftmax` at the same beta, for any k.
    Raises InputError for a beta or a k that is not positive.
    """

    columnwise = False
    query_terms_affect_order = True
    GRID: ClassVar = {"beta": (5.0, 10.0, 20.0, 50.0), "k": (1, 3, 5)}

    def __init__(self, beta: float = 20.0, k: int = 1):
        positive("beta", beta)
        whole("k", k)
        self.beta, self.k = beta, k

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """The bias (M,) and which items are hubs of the bank (M,), from the whole matrix (R, M)."""
        return self.fit(in_one_block(reference_scores))

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """The bias (M,) and which items are among the k nearest of some reference query (M,)."""
        biases: list[Tensor] = []

        # Passes the blocks on, so that one pass over the scores gives both terms.
        def blocks_after_bias() -> Iterator[Tensor]:
            for block in columns():
                biases.append((self.beta * block).logsumexp(dim=0) / self.beta)
                yield block

        nearest = top_k_of_blocks(blocks_after_bias(), self.k)[1]
        bias = torch.cat(biases)
        hubs = torch.zeros(len(bias), dtype=torch.bool, device=bias.device)
        hubs[nearest.flatten()] = True
        return finite_terms((bias, hubs))

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """The score (b, 1) of each query's nearest item, the first among ties, and whether it is a hub (b, 1)."""
        values, places = top_k_of_blocks(blocks, 1)
        return values, item_terms[1][places]

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """s minus the bias in the active rows."""
        return scores - query_terms[1] * item_terms[0]

"""Querybank normalisation with the dynamic inverted softmax (Bogolin 2022, eq. 4 and 5)."""

from collections.abc import Iterable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import fail, positive, whole
from vsehub.criteria.base import Columns, Correction, Terms
from vsehub.criteria.inverted_softmax import InvertedSoftmax
from vsehub.metrics.topk import Best, merged, top_k_of_blocks, with_block


class QBNorm(Correction):
    """The inverted softmax for active queries, those whose nearest item is a hub of the query bank; s for all others.

    A query is active where its nearest item is among the k nearest of some reference query; it is then ranked by
    s - log(Σ_r e^{βs(r, item)}) / β, the order of e^{βs} / Σ_r e^{βs(r, item)}. Where the queries are their own
    reference every query is active, so that the ranking is that of `InvertedSoftmax` at the same beta, for any k.
    Raises InputError for a beta or a k that is not positive.
    """

    tried_by_auto = True
    columnwise = False
    query_terms_rank = True
    transductive_equal = InvertedSoftmax
    GRID: ClassVar = {"beta": (5.0, 10.0, 20.0, 50.0), "k": (1, 3, 5)}

    def __init__(self, beta: float = 20.0, k: int = 1):
        positive("beta", beta)
        whole("k", k)
        self.beta, self.k = beta, k

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """The bias (M,) and which items are hubs of the bank (M,), from the whole matrix (R, M)."""
        return self.fit(lambda: iter((reference_scores,)))

    def part(self, columns: Columns, number: int, shared: Terms, own: Terms) -> Terms:
        """The bias (m,), and values and places (R, k) of the items that are the k nearest of each reference query."""
        biases: list[Tensor] = []
        best: Best | None = None
        first = 0
        for block in columns():
            biases.append((self.beta * block).logsumexp(dim=0) / self.beta)
            best = with_block(best, block, first, self.k)
            first += block.shape[1]
        if best is None:
            fail("the reference scores have no columns; expected at least one item")
        return torch.cat(biases), *best

    def merged_terms(self, parts: Iterable[Terms], bank: Terms | None = None) -> Terms:
        """The bias (M,) and which items are among the k nearest of some reference query (M,)."""
        biases: list[Tensor] = []
        best: Best | None = None
        first = 0
        for own, values, places in parts:
            biases.append(own)
            best = merged(best, (values, places + first), self.k)
            first += len(own)
        assert best is not None  # there is at least one part
        bias = torch.cat(biases)
        hubs = torch.zeros(first, dtype=torch.bool, device=bias.device)
        hubs[best[1].flatten()] = True
        return bias, hubs

    def query_part(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """The score (b, 1) of each query's nearest item, of equal ones the first, and whether it is a hub (b, 1)."""
        values, places = top_k_of_blocks(blocks, 1)
        return values, item_terms[1][places]

    def merged_query_terms(self, parts: Sequence[Terms]) -> Terms:
        """Whether each query is active: its nearest item, of equal ones the first, is a hub of the bank."""
        places = top_k_of_blocks((values for values, _ in parts), 1)[1]
        return (torch.cat([hub for _, hub in parts], dim=1).gather(1, places),)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """s minus the bias in the active rows."""
        return scores - query_terms[0] * item_terms[0]

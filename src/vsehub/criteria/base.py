"""The criteria that rank by a·s - b(item)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from vsehub.checks import matrix, require

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time


class ItemBias(ABC):
    """A criterion whose ranking is that of a·s - b(item): it takes from each item what makes it a hub.

    Only the item's term changes a query's ranking, so it needs one number an item and folds into an inner-product
    index as one more dimension. A subclass sets `scale` (a) and writes `bias`; `needs_reference` is false where the
    term is nothing.
    """

    scale: float = 1.0
    needs_reference: bool = True

    @abstractmethod
    def bias(self, reference_scores: Tensor) -> Tensor:
        """The term b (m,) of some items from all reference queries' scores against them, (R, m)."""

    def rescore(self, scores: Tensor, reference_scores: Tensor | None = None) -> Tensor:
        """Corrected scores (Q, M) of scores (Q, M).

        reference_scores: (R, M) scores of the reference queries against the same items; None takes the queries
        themselves (transductive). Raises InputError where the items differ in number or the reference is empty.
        """
        scores, reference_scores = checked_scores(scores, reference_scores)
        return self.scale * scores - self.bias(scores if reference_scores is None else reference_scores)

    def item_bias(self, score_columns: Iterator[Tensor]) -> Tensor:
        """The term b (M,) from blocks (R, m) of reference scores that cover the items in order."""
        return torch.cat([self.bias(block) for block in score_columns])

    def search(self, queries: Tensor, items: Tensor, reference: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The k best items of each query by inner product and bias, in bounded memory.

        queries (Q, D), items (M, D), reference (R, D) queries. Returns values a·s - b and positions, both (Q, k),
        best first. The ranking is that of `rescore` with the reference's scores. Raises InputError where dimensions
        differ, the reference is empty or k exceeds the items.
        """
        matrix("queries", queries)
        matrix("items", items, columns=queries.shape[1])
        matrix("reference", reference, columns=queries.shape[1])
        require(len(reference) > 0, "reference is empty; expected at least one reference query")
        require(0 < k <= len(items), f"k is {k}; expected 1 to {len(items)}, the number of items")
        columns = max(1, BLOCK_ELEMENTS // len(reference))
        bias = self.item_bias(reference @ block.T for block in items.split(columns))
        found = [
            (self.scale * (block @ items.T) - bias).topk(k, dim=1)
            for block in queries.split(max(1, BLOCK_ELEMENTS // len(items)))
        ]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])


def checked_scores(scores: Tensor, reference_scores: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Both matrices in float32 at least, or InputError where they do not fit each other."""
    matrix("scores", scores)
    if reference_scores is not None:
        matrix("reference_scores", reference_scores, columns=scores.shape[1])
        require(len(reference_scores) > 0, "reference_scores is empty; expected at least one reference query")
    widened = [
        values.float() if values is not None and values.dtype in (torch.float16, torch.bfloat16) else values
        for values in (scores, reference_scores)
    ]
    return widened[0], widened[1]

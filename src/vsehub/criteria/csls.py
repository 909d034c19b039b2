"""Cross-domain similarity local scaling (Conneau 2018; ACL eq. 6)."""

from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import ItemBias, checked_scores


class CSLS(ItemBias):
    """2s - mean of the query's k nearest items - mean of the item's k nearest reference queries.

    k: neighbours on either side, at most what there are. Raises InputError for a k that is not positive.
    """

    scale = 2.0

    def __init__(self, k: int = 10):
        require(isinstance(k, int) and k > 0, f"k is {k!r}; expected a whole number above 0")
        self.k = k

    def bias(self, reference_scores: Tensor) -> Tensor:
        """Mean similarity of each item to its k nearest reference queries: (R, m) -> (m,)."""
        return reference_scores.topk(min(self.k, len(reference_scores)), dim=0).values.mean(dim=0)

    def rescore(self, scores: Tensor, reference_scores: Tensor | None = None) -> Tensor:
        """ACL eq. 6 with both terms, (Q, M); the query's own term changes no ranking. See `ItemBias.rescore`."""
        scores, reference_scores = checked_scores(scores, reference_scores)
        own = scores.topk(min(self.k, scores.shape[1]), dim=1).values.mean(dim=1, keepdim=True)
        return 2 * scores - own - self.bias(scores if reference_scores is None else reference_scores)

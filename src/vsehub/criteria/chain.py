"""A correction of scores, followed by a matching of queries and items on the corrected scores."""

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from vsehub.checks import fail
from vsehub.criteria.base import Correction, Criterion, as_reference_items, as_sides, fit_all
from vsehub.criteria.matching.base import Matching


class Chain(Criterion):
    """A correction, and a matching on the corrected scores, e.g. CSLS and RGM (EMNLP, table 4).

    steps: a `Correction`, then a `Matching`. Matching compares scores of different queries, so that the correction's
    terms of queries count too. Raises InputError for other steps.
    """

    inductive = False

    def __init__(self, steps: Sequence[Criterion]):
        correction, matching = steps if len(steps) == 2 else (None, None)
        if not isinstance(correction, Correction) or not isinstance(matching, Matching):
            fail(
                f"steps is {', '.join(type(step).__name__ for step in steps) or 'empty'}; expected a criterion that "
                "corrects scores and, after it, one that matches, e.g. CSLS and RelaxedGreedyMatching"
            )
        self.steps = (correction, matching)

    @property
    def correction(self) -> Correction:
        """The first step."""
        return self.steps[0]

    @property
    def matching(self) -> Matching:
        """The second step."""
        return self.steps[1]

    def parameters(self) -> dict[str, Any]:
        """The arguments of both steps and their values."""
        return self.correction.parameters() | self.matching.parameters()

    def with_parameters(self, **changes: Any) -> Self:
        """A chain like this one with some arguments of its steps changed."""
        changed = [{name: changes[name] for name in step.parameters() if name in changes} for step in self.steps]
        return type(self)([step.with_parameters(**part) for step, part in zip(self.steps, changed, strict=True)])

    def match(self, scores: Tensor, k: int, *, reference_item_scores: Tensor | None = None) -> Tensor:
        """The matching's pairs (n, 2) on the corrected scores of (Q, M); see `Matching.match`."""
        return self.matching.match(self.correction.rescore(scores, reference_item_scores=reference_item_scores), k)

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        k: int = 10,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """Scores (Q, M) whose order is that of the matching on the corrected scores; see `Matching.rescore`."""
        self.matching.refuse_reference(reference_scores)
        corrected = self.correction.rescore(scores, reference_item_scores=reference_item_scores)
        return self.matching.rescore(corrected, k=k)

    def search(
        self, queries: Any, items: Any, reference: Any = None, k: int = 10, *, reference_items: Any = None
    ) -> tuple[Any, Any]:
        """The k best items of each query; see `Matching.search`."""
        self.matching.refuse_reference(reference)
        sides = as_sides(queries, items)
        bank = as_reference_items(self.correction, reference_items, sides[1])
        terms = fit_all([self.correction], sides[1], sides[0], bank)[0]
        return self.matching.search(queries, items, k=k, correct=lambda scores: self.correction.apply(scores, terms))

"""A correction of scores, followed by a matching of queries and items on the corrected scores."""

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor

from vsehub.checks import fail
from vsehub.criteria.base import Correction, Criterion, RowsOf
from vsehub.criteria.matching.base import Matching


class Chain(Matching):
    """A correction, and a matching on the corrected scores, e.g. CSLS and RGM (EMNLP, table 4).

    steps: a `Correction`, then a `Matching`. Matching compares scores of different queries, so that the correction's
    terms of queries count too. Raises InputError for other steps.
    """

    needs_reference = True

    def __init__(self, steps: Sequence[Criterion]):
        if (
            len(steps) != 2
            or not isinstance(steps[0], Correction)
            or not isinstance(steps[1], Matching)
            or isinstance(steps[1], Chain)
        ):
            fail(
                f"steps is {', '.join(type(step).__name__ for step in steps) or 'empty'}; expected a criterion that "
                "corrects scores and, after it, one that matches, e.g. CSLS and RelaxedGreedyMatching"
            )
        self.steps = (steps[0], steps[1])

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
        steps: list[Criterion] = []
        for step in self.steps:
            names = changes.keys() & step.parameters()
            steps.append(step.with_parameters(**{name: changes[name] for name in names}))
        return type(self)(steps)

    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """The pairs that the second step accepts."""
        return self.matching.accepted(rows, queries, items, k)

    def matched_scores(self, scores: Tensor, reference_item_scores: Tensor | None) -> Tensor:
        """The corrected scores (Q, M)."""
        return self.correction.rescore(scores, reference_item_scores=reference_item_scores)

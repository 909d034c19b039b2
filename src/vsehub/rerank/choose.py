"""`criterion=auto`: choosing the criterion by queries whose answers are known."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch

from vsehub.checks import fail, require
from vsehub.criteria.auto import Auto
from vsehub.criteria.choose import LEAST, Choice, choose
from vsehub.data.vectors.embeddings import look_through, open_vectors, same_space
from vsehub.metrics.positives import Positives
from vsehub.rerank.inputs import ALLOWED, Inputs, shared_rows
from vsehub.rerank.names import Names, read_positives


@dataclass(frozen=True)
class Tuning:
    """The queries by which a criterion is chosen.

    queries, truth: files of these queries and of their answers, both or neither; None: a `share` of the ranked queries
    that have an answer.
    """

    queries: str | None = None
    truth: str | None = None
    share: float = 0.5

    def __post_init__(self) -> None:
        require(
            (self.queries is None) == (self.truth is None),
            "tune_queries and tune_truth belong together: the queries to choose a criterion by, and their answers; "
            f"{'tune_truth' if self.truth is None else 'tune_queries'} is missing",
        )
        require(
            isinstance(self.share, int | float) and 0 < self.share < 1,
            f"tune_share is {self.share!r}; expected a share between 0 and 1, e.g. 0.5",
        )


def choose_for(auto: Auto, inputs: Inputs, tuning: Tuning, seed: int = 0) -> tuple[Choice | None, Inputs]:
    """The choice for opened inputs, None if no answers are known; and the inputs without the answers used for choosing.

    Raises InputError if there are too few queries to choose by, or if they are also measured.
    """
    if tuning.queries is not None and tuning.truth is not None:
        return _by_files(auto, inputs, tuning.queries, tuning.truth, seed), inputs
    if inputs.sides.positives is None:
        return None, inputs
    first, second = halves(inputs.sides.positives, tuning.share, seed)
    sides = inputs.sides
    choice = choose(auto, sides.queries, first, sides.items, sides.reference, seed)
    return replace(choice, set_aside=int((first.counts > 0).sum())), replace(
        inputs, sides=replace(inputs.sides, positives=second)
    )


def _by_files(auto: Auto, inputs: Inputs, queries: str, truth: str, seed: int) -> Choice:
    """The choice by the queries of a separate file."""
    asked = open_vectors(queries, "tune_queries", normalize=inputs.files["queries"].normalize)
    same_space(asked, inputs.files["items"])
    look_through(asked)
    ranked = inputs.files["queries"]
    shared = shared_rows(ranked, asked)
    require(
        shared <= ALLOWED * len(ranked),
        f"tune_queries: {shared} of the {len(ranked)} queries that are ranked are in {asked} bit for bit: they would "
        "be measured by what was chosen for them. Leave them out of either, or leave out tune_queries: a part of the "
        "queries with truth is then kept for choosing",
    )
    positives = read_positives(truth, Names("tune_queries", len(asked), asked.ids), inputs.item_names)
    return choose(auto, asked, positives, inputs.sides.items, inputs.sides.reference, seed)


def halves(positives: Positives, share: float, seed: int) -> tuple[Positives, Positives]:
    """Two sets of true pairs: those of a random share of the queries with a positive, and those of the other queries.

    share: of the first set, drawn by seed. Raises InputError where either part has fewer than `LEAST` queries.
    """
    known = positives.counts.nonzero().flatten()
    count = round(share * len(known))
    if min(count, len(known) - count) < LEAST:
        fail(
            f"truth knows the answers of {len(known)} queries, of which {count} would be chosen by and "
            f"{len(known) - count} measured; criterion=auto needs at least {LEAST} of each. Give more, or tune_queries "
            "and tune_truth, name a criterion, or leave truth out: then the default is taken"
        )
    drawn = known[torch.from_numpy(np.random.default_rng(seed).permutation(len(known))[:count])]
    first = torch.zeros(positives.queries, dtype=torch.bool)
    first[drawn] = True
    kept = first[positives.query]
    both = [
        Positives.from_pairs(positives.query[one], positives.item[one], positives.queries, positives.items, False)
        for one in (kept, ~kept)
    ]
    return both[0], both[1]


def choice_record(auto: Auto, choice: Choice | None, gain: dict[str, float] | None) -> dict[str, Any]:
    """The choice in plain values; without a choice, the criterion that was used instead.

    gain: of the criterion over plain search.
    """
    if choice is None:
        name, criterion = auto.untuned
        return {"criterion": name, "parameters": criterion.parameters(), "queries": 0, "gain": gain}
    told = {"criterion": choice.name, "parameters": choice.criterion.parameters()}
    counts = {name: getattr(choice, name) for name in ("queries", "folds", "items", "reference", "set_aside")}
    return told | counts | {"tried": [asdict(one) for one in choice.tried], "gain": gain}

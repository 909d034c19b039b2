"""`criterion=auto`: choosing the criterion by queries whose answers are known."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch

from vsehub.checks import fail, require
from vsehub.criteria.auto import Auto
from vsehub.criteria.choose import LEAST, Choice, choose
from vsehub.data.vectors.embeddings import look_through
from vsehub.metrics.positives import Positives
from vsehub.rerank.inputs import ALLOWED, Inputs, shared_rows


def choose_for(auto: Auto, inputs: Inputs, seed: int = 0) -> tuple[Choice | None, Inputs]:
    """The choice for opened inputs, None if no answers are known; and the inputs without the answers used for choosing.

    Raises InputError if there are too few queries to choose by, or if they are also measured.
    """
    sides = inputs.sides
    if inputs.tuning is not None:
        asked, positives = inputs.tuning
        look_through(asked)
        shared = shared_rows(sides.queries, asked)
        require(
            shared <= ALLOWED * len(sides.queries),
            f"tune_queries: {shared} of the {len(sides.queries)} queries that are ranked are in {asked} bit for bit: "
            "they would be measured by what was chosen for them. Leave them out of either, or leave out tune_queries: "
            "a part of the queries with truth is then kept for choosing",
        )
        return choose(auto, asked, positives, sides.items, sides.reference, seed), inputs
    if sides.positives is None:
        return None, inputs
    first, second = halves(sides.positives, auto.share, seed)
    choice = choose(auto, sides.queries, first, sides.items, sides.reference, seed)
    known = int((first.counts > 0).sum())
    return replace(choice, set_aside=known), replace(inputs, sides=replace(sides, positives=second))


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

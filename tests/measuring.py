"""`rerank.measure.measure` of plain arrays, as tests call it."""

from vsehub.rerank.engines import Local
from vsehub.rerank.measure import measure as measure_sides
from vsehub.rerank.sides import Sides


def measure(
    queries,
    items,
    criteria=None,
    reference=None,
    k=10,
    positives=None,
    *,
    reference_items=None,
    rounded=False,
    seed=0,
    engine=None,
):
    engine = engine or Local(rounded=rounded)
    sides = Sides.of(queries, items, reference, reference_items, positives)
    return measure_sides(sides, criteria, k, engine, seed)

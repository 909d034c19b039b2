"""`ranking.measure.measure` of plain arrays, as tests call it."""

from vsehub.ranking.inputs import Sides
from vsehub.ranking.measure import measure as measure_sides


def measure(queries, items, criteria=None, reference=None, k=10, positives=None, *, reference_items=None, engine=None):
    return measure_sides(Sides.from_arrays(queries, items, reference, reference_items, positives), criteria, k, engine)

"""Which items the record shows, and what it says of a criterion's reference."""

import json

import numpy as np
import pytest
import torch
from measuring import measure

from vsehub.criteria import CSLS
from vsehub.metrics.positives import Positives
from vsehub.ranking.compare import below_chance, shifted
from vsehub.ranking.inputs import Inputs, Names, Sides
from vsehub.ranking.record import EXAMPLES, values


def inputs(queries, items, **named):
    return Inputs(Sides.of(queries, items), Names("queries", len(queries)), Names("items", len(items), **named))


def told(queries=80, items=200, seed=0, **settings):
    generator = np.random.default_rng(0)
    asked, among = generator.normal(size=(queries, 5)), generator.normal(size=(items, 5)) + 0.8
    criteria = {"csls": CSLS(k=3)}
    measured = measure(asked, among, criteria, **settings)
    return measured, values(measured, criteria, inputs(asked, among), seed)


def test_the_worst_hubs_and_some_antihubs():
    measured, record = told()
    plain, csls = (one.occurrences.dense().tolist() for one in measured.rankings)
    order = sorted(range(200), key=lambda item: (-plain[item], item))
    assert [hub["item"] for hub in record["hubs"]] == order[:EXAMPLES]
    for hub in record["hubs"]:
        assert hub["occurrences"] == [plain[hub["item"]], csls[hub["item"]]]
        lists = measured.rankings[0].positions.tolist()
        asking = [query for query, row in enumerate(lists) if hub["item"] in row]
        assert [one["query"] for one in hub["queries"]] == asking[:3]
    never = {item for item in range(200) if plain[item] == 0}
    shown = [one["item"] for one in record["antihubs"]["examples"]]
    assert record["antihubs"]["count"] == [len(never), csls.count(0)]
    assert len(never) > EXAMPLES
    assert len(set(shown)) == EXAMPLES
    assert set(shown) <= never
    assert shown == sorted(shown)
    assert told()[1] == record
    assert [one["item"] for one in told(seed=1)[1]["antihubs"]["examples"]] != shown
    assert json.loads(json.dumps(record, allow_nan=False)) == record


@pytest.mark.parametrize(("queries", "items"), [(1, 1), (1, 30), (30, 2)])
def test_fewer_items_than_are_shown(queries, items):
    measured, record = told(queries, items, k=1)
    hit = len(measured.rankings[0].occurrences.positions)
    assert len(record["hubs"]) == min(EXAMPLES, hit)
    assert len(record["antihubs"]["examples"]) == min(EXAMPLES, items - hit)


@pytest.mark.parametrize(("step", "word"), [(0, ""), (1, "before"), (-1, "after"), (4, "swapped")])
def test_answers_that_are_off_by_a_row_or_swapped_are_suspected(step, word):
    """Query i finds item i, or in the last case item i - 4 where the table says i + 4."""
    rows = torch.arange(1, 9)
    found = torch.arange(10) - (4 if word == "swapped" else 0)
    said = shifted(Positives.from_pairs(rows, rows + step, 10, 13, False), found[:, None])
    assert (word in said) if word else said is None


@pytest.mark.parametrize("scrambled", [False, True])
def test_fewer_answers_than_by_chance_are_suspected(scrambled):
    """Ids in another order than their rows: no query finds what the table says, where 5 of 50 would by chance."""
    order = np.random.default_rng(0).permutation(50) if scrambled else np.arange(50)
    answers = Positives.from_pairs(torch.arange(50), torch.from_numpy(order), 50, 50, False)
    near = (torch.arange(50)[:, None] + torch.arange(5)) % 50
    near[answers.hits(near).any(dim=1) & scrambled] = torch.arange(5) + 45
    said = below_chance(answers, near)
    assert ("shifted" in said) if scrambled else said is None

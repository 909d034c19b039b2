"""Which items the record shows, and what it says of a criterion's reference."""

import json

import numpy as np
import pytest
import torch
from measuring import measure

from vsehub.criteria import CSLS, GreedyMatching
from vsehub.positives import Positives
from vsehub.ranking.compare import near_chance
from vsehub.ranking.inputs import Inputs, Names, Sides
from vsehub.ranking.record import EXAMPLES, measurements


def inputs(queries, items, **named):
    return Inputs(
        Sides.from_arrays(queries, items), Names("queries", len(queries)), Names("items", len(items), **named)
    )


def recorded(queries=80, items=200, seed=0, **settings):
    generator = np.random.default_rng(0)
    query_rows, among = generator.normal(size=(queries, 5)), generator.normal(size=(items, 5)) + 0.8
    criteria = {"csls": CSLS(k=3)}
    measured = measure(query_rows, among, criteria, **settings)
    return measured, measurements(measured, criteria, inputs(query_rows, among), seed)


def test_the_worst_hubs_and_some_antihubs():
    measured, record = recorded()
    plain, csls = (ranking.occurrences.dense().tolist() for ranking in measured.rankings)
    order = sorted(range(200), key=lambda item: (-plain[item], item))
    assert [hub["item"] for hub in record["hubs"]] == order[:EXAMPLES]
    for hub in record["hubs"]:
        assert hub["occurrences"] == [plain[hub["item"]], csls[hub["item"]]]
        lists = measured.rankings[0].positions.tolist()
        asking = [query for query, row in enumerate(lists) if hub["item"] in row]
        assert [query["query"] for query in hub["queries"]] == asking[:3]
    never = {item for item in range(200) if plain[item] == 0}
    shown = [item["item"] for item in record["antihubs"]["examples"]]
    assert record["antihubs"]["count"] == [len(never), csls.count(0)]
    assert len(never) > EXAMPLES
    assert len(set(shown)) == EXAMPLES
    assert set(shown) <= never
    assert shown == sorted(shown)
    assert recorded()[1] == record
    assert [item["item"] for item in recorded(seed=1)[1]["antihubs"]["examples"]] != shown
    assert json.loads(json.dumps(record, allow_nan=False)) == record


def test_the_gain_of_a_matching_is_that_of_its_r1():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, 4)) + 0.5
    among = rows + 0.7 * generator.normal(size=(60, 4))
    aligned = Positives.from_pairs(torch.arange(60), torch.arange(60), 60, 60, False)
    measured = measure(rows, among, {"gm": GreedyMatching()}, positives=aligned)
    sides = Sides.from_arrays(rows, among, positives=aligned)
    gm = measurements(measured, {}, Inputs(sides, Names("queries", 60), Names("items", 60)))["rankings"][1]
    plain, matched = (ranking.truth["r1"] for ranking in measured.rankings)
    assert gm["gain"]["r1"] == pytest.approx(matched - plain)
    written = aligned.hits(measured.rankings[1].positions[:, :1]).double().mean() * 100
    assert gm["gain"]["r1"] != pytest.approx(written.item() - plain)


@pytest.mark.parametrize(("queries", "items"), [(1, 1), (1, 30), (30, 2)])
def test_fewer_items_than_are_shown(queries, items):
    measured, record = recorded(queries, items, k=1)
    hit = len(measured.rankings[0].occurrences.positions)
    assert len(record["hubs"]) == min(EXAMPLES, hit)
    assert len(record["antihubs"]["examples"]) == min(EXAMPLES, items - hit)


@pytest.mark.parametrize("moved", ["no", "a row", "swapped", "scrambled"])
def test_answers_that_are_hardly_above_chance_are_suspected(moved):
    """Query i finds items i + 20 to i + 24 of 100, while the table says i + 20 in the first case only."""
    rows = torch.arange(50)
    wanted = {
        "no": rows + 20,
        "a row": rows + 19,
        "swapped": (rows + 80) % 100,
        "scrambled": torch.from_numpy(np.random.default_rng(0).permutation(100)[:50]),
    }[moved]
    near = rows[:, None] + 20 + torch.arange(5)
    said = near_chance(Positives.from_pairs(rows, wanted, 50, 100, False), near)
    assert said is None if moved == "no" else "shifted" in said

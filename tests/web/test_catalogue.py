"""N_k, hubs, finders and answers of a catalogue, and lists that come as they are asked, against naive oracles."""

import pytest
import torch
from collections_served import CRITERIA, ITEMS, QUERIES, catalogue, contents

from vsehub.checks import InputError
from vsehub.criteria import DualSoftmax
from vsehub.ranking.verdict import hub_level
from vsehub.web.catalogue import PLAIN, Catalogue


@pytest.fixture(scope="module")
def found():
    return catalogue()


def lists(catalogue, name):
    """All items for each query, best first; equal scores in the order of the rows."""
    queries, items = catalogue.queries.rows(0, QUERIES).double(), catalogue.vectors.double()
    correction = catalogue.rankings[name].correction
    scores = queries @ items.T
    if correction is not None:
        scores = CRITERIA[name].scale * scores - correction.bias.double()
    return scores.argsort(dim=1, descending=True, stable=True)


@pytest.mark.parametrize("name", [PLAIN, *CRITERIA])
def test_counts_and_answers_are_those_of_sorting_everything(found, name):
    everything, ranking = lists(found, name), found.rankings[name]
    assert torch.equal(ranking.positions, everything[:, : ranking.positions.shape[1]])
    counts = [int((everything[:, :10] == row).sum()) for row in range(ITEMS)]
    assert ranking.counts.tolist() == counts
    pairs = list(zip(found.positives.query.tolist(), found.positives.item.tolist(), strict=True))
    judged = {query for query, _ in pairs}
    wrong = [
        sum((query, row) not in pairs for query in judged if row in everything[query, :10].tolist())
        for row in range(ITEMS)
    ]
    assert ranking.wrong.tolist() == wrong
    for query in range(QUERIES):
        ranks = [everything[query].tolist().index(item) + 1 for asked, item in pairs if asked == query]
        assert ranking.answered[query] == min(ranks, default=0)
    first = sum(everything[query, 0].item() in found.answers(query) for query in judged)
    assert ranking.recalls["R@1"] == pytest.approx(100 * first / len(judged))


def test_finders_begin_with_those_whose_answer_is_displaced(found):
    hub = found.hubs[0]
    finders = found.finders(hub, "csls")
    assert len(finders) == int(found.rankings[PLAIN].counts[hub]) == int(found.rankings[PLAIN].counts.max())
    everything, corrected = (lists(found, name).tolist() for name in (PLAIN, "csls"))
    displaces = []
    for one in finders:
        query, answers = one["query"], found.answers(one["query"])
        assert everything[query].index(hub) + 1 == one["rank"]
        ranks = [everything[query].index(item) + 1 for item in answers]
        displaces.append(bool(ranks) and min(ranks) > one["rank"])
        if one["answer"] is not None:
            assert one["answer"]["plain_rank"] == min(ranks)
            assert one["answer"]["corrected_rank"] == min(corrected[query].index(item) + 1 for item in answers)
    assert displaces == sorted(displaces, reverse=True)
    assert any(displaces)


def test_a_sample_of_the_queries_keeps_their_answers():
    few = Catalogue(contents(), CRITERIA, sample=20)
    everything = catalogue()
    assert len(few.queries) == 20
    for query, row in enumerate(few.rows.tolist()):
        assert few.answers(query) == everything.answers(row)
        assert few.query_name(query) == everything.query_name(row)


def test_what_is_no_term_of_the_item_is_refused():
    with pytest.raises(InputError, match="criteria: dual_softmax does not rank by the score minus a term of the item"):
        Catalogue(contents(), {"dual_softmax": DualSoftmax()})


def test_a_bias_that_is_stored_is_taken():
    bias = torch.linspace(0, 1, ITEMS)
    stored = catalogue(stored={"csls": (2.0, bias)})
    assert torch.equal(stored.rankings["csls"].correction.bias, bias)
    assert not torch.equal(stored.rankings["is"].correction.bias, bias)


def test_a_search_is_sorting_everything(found):
    for name in found.rankings:
        expected = lists(found, name)
        for query in range(0, QUERIES, 7):
            told = found.search(found.queries.rows(query, query + 1), 1 + query % 40, name)
            for side, rows in (("plain", lists(found, PLAIN)), ("corrected", expected)):
                assert [found.row_of[one["id"]] for one in told[side]] == rows[query, : 1 + query % 40].tolist()
    assert found.search(found.vectors[50:51], 1, PLAIN)["plain"][0]["id"] == found.id_of(3), "of the copies the first"


@pytest.mark.parametrize(
    ("k", "queries", "items", "level"),
    [
        (10, 1000, 1000, 27),  # by chance: binomial with mean 10, exceeded by one of 1,000 items with probability 1 %
        (10, 100_000, 1000, 2000),  # twice the mean
        (10, 10, 1_000_000, 2),  # few queries: one find is chance
        (5, 20, 5, 40),  # each list holds all items: none is a hub
    ],
)
def test_a_hub_is_twice_the_mean_and_beyond_chance(k, queries, items, level):
    assert hub_level(k, queries, items) == level

"""N_k, hubs, finders and answers of a catalogue, and lists that come as they are asked, against naive oracles."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from collections_served import CRITERIA, ITEMS, QUERIES, catalogue, contents

from vsehub.checks import InputError
from vsehub.criteria import DualSoftmax, NearestNeighbor
from vsehub.data import CaptionedImages
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.models import EncodedSplit
from vsehub.ranking.verdict import hub_level
from vsehub.similarities import Cosine
from vsehub.web.catalogue import PLAIN, Catalogue, split_contents


@pytest.fixture(scope="module")
def known():
    return catalogue()


def lists(catalogue, name):
    """All items for each query, best first; equal scores in the order of the rows."""
    queries, items = catalogue.queries.rows(0, QUERIES).double(), catalogue.vectors.double()
    correction = catalogue.rankings[name].correction
    scores = queries @ items.T
    if correction is not None:
        scores = CRITERIA[name].scale * scores - correction.bias.double()
    return scores.argsort(dim=1, descending=True, stable=True)


def test_answers_of_a_split_are_those_of_its_evaluation(tmp_path):
    """Caption 1 belongs to both images and is nearest to the second, caption 2 is nearest to a wrong one."""
    split = CaptionedImages(np.eye(2, dtype=np.float32), ["a", "b", "c"], np.array([[0, 0], [0, 1], [1, 1], [1, 2]]))
    texts = torch.tensor([[1.0, 0.1], [0.1, 1.0], [1.0, 0.2]])
    encoded = EncodedSplit.from_encodings(split, torch.from_numpy(split.images), texts)
    model = SimpleNamespace(
        similarity=Cosine(),
        source=SimpleNamespace(name="x"),
        name="made up",
        vocabulary=None,
        split=lambda _: split,
        encode=lambda _: encoded,
    )
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n")
    served = split_contents(model, "test", "test", str(tmp_path / "list.txt"))
    assert served.picture(1) == str(tmp_path / "b.jpg")
    assert served.inputs.item_names.labels == ["a", "b"]
    rsums = evaluate(encoded, Cosine(), NearestNeighbor(), Protocol("single")).metrics
    ranking = Catalogue(served, {}).rankings[PLAIN]
    assert ranking.recalls["R@1"] == pytest.approx(rsums["t2i/r1"]) == pytest.approx(200 / 3)


@pytest.mark.parametrize("name", [PLAIN, *CRITERIA])
def test_counts_answers_and_searches_are_those_of_sorting_everything(known, name):
    everything, ranking = lists(known, name), known.rankings[name]
    assert torch.equal(ranking.positions, everything[:, : ranking.positions.shape[1]])
    assert torch.equal(ranking.counts, torch.bincount(everything[:, :10].flatten(), minlength=ITEMS))
    pairs = torch.zeros(QUERIES, ITEMS, dtype=torch.bool)
    pairs[known.positives.query, known.positives.item] = True
    judged, right = pairs.any(dim=1), pairs.gather(1, everything)
    wrong = everything[:, :10][~right[:, :10] & judged[:, None]]
    assert torch.equal(ranking.wrong, torch.bincount(wrong, minlength=ITEMS))
    assert torch.equal(ranking.answer_ranks, (right.int().argmax(dim=1) + 1) * judged)
    assert ranking.recalls["R@1"] == pytest.approx(100 * right[judged, 0].double().mean().item())
    whole = {listed: lists(known, listed) for listed in known.rankings}
    for query in range(0, QUERIES, 7):
        k = 1 + query % 40
        result = known.search(known.queries.rows(query, query + 1), k, name)
        for listed, items in result["lists"].items():
            assert [known.row_of[item["id"]] for item in items] == whole[listed][query, :k].tolist()


def test_finders_begin_with_those_whose_answer_is_displaced(known):
    hub, displaces = known.hubs[0], []
    finders = known.finders(hub, "csls")
    assert len(finders) == int(known.rankings[PLAIN].counts.max())
    plain, corrected = (lists(known, name).tolist() for name in (PLAIN, "csls"))
    for finder in finders:
        query, answers = finder["query"], known.answers(finder["query"])
        before, after = (
            min((ranks[query].index(item) + 1 for item in answers), default=0) for ranks in (plain, corrected)
        )
        assert plain[query].index(hub) + 1 == finder["rank"]
        assert finder["answer"] is None or (finder["answer"]["plain_rank"], finder["answer"]["corrected_rank"]) == (
            before,
            after,
        )
        displaces.append(before > finder["rank"])
    assert displaces == sorted(displaces, reverse=True)
    assert any(displaces)


def test_pictures_of_some_items_only():
    served = catalogue(picture=lambda row: None if row < 80 else "a.jpg")
    assert [served.item(row)["picture"] for row in (0, 85)] == [None, "/pictures/85"]


def test_a_sample_of_the_queries_keeps_their_answers(known):
    few = Catalogue(contents(), CRITERIA, sample=20)
    assert len(few.queries) == 20
    for query, row in enumerate(few.query_rows.tolist()):
        assert (few.answers(query), few.query_name(query)) == (known.answers(row), known.query_name(row))


def test_a_bias_that_is_stored_is_taken_and_what_is_no_bias_is_refused(known):
    bias = torch.linspace(0, 1, ITEMS)
    rankings = catalogue(stored={"csls": (2.0, bias)}).rankings
    assert torch.equal(rankings["csls"].correction.bias, bias)
    assert torch.equal(rankings["is"].correction.bias, known.rankings["is"].correction.bias)
    with pytest.raises(InputError, match="dual_softmax"):
        Catalogue(contents(), {"dual_softmax": DualSoftmax()})


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

from typing import ClassVar

import numpy as np
import pytest
import torch
from evaluation.test_evaluate import COSINE, split

from vsehub.checks import InputError
from vsehub.criteria import CSLS, Auto, Chain, RelaxedGreedyMatching
from vsehub.criteria.choose import choose_row
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate, rank
from vsehub.evaluation.scores import both_directions
from vsehub.evaluation.tune import choose, tune
from vsehub.metrics.occurrences import KS
from vsehub.models import EncodedSplit

SINGLE = Protocol("single")


class SmallGreedy(RelaxedGreedyMatching):
    GRID: ClassVar = {"relaxation": (1.0, 2.0, 5.0)}


@pytest.mark.parametrize("reference", [None, split(25, seed=4)], ids=["transductive", "inductive"])
def test_the_best_on_validation_is_chosen(reference, caplog):
    encoded = split(40, seed=3)
    tuned = tune(CSLS(10), encoded, COSINE, SINGLE, reference)
    assert bool(caplog.records) == (reference is not None), "inductive, plain search is better here"
    rsums = [evaluate(encoded, COSINE, CSLS(k), SINGLE, reference).metrics["rsum"] for k in CSLS.GRID["k"]]
    assert [rsum for _, rsum in tuned.tried] == rsums
    assert tuned.rsum == max(rsums) > min(rsums)
    assert tuned.criterion.parameters()["k"] == CSLS.GRID["k"][rsums.index(max(rsums))]


def test_of_equal_settings_the_first_is_chosen():
    images = torch.eye(6, dtype=torch.float64)
    tuned = tune(CSLS(10), EncodedSplit(images, images, torch.arange(6)[:, None].expand(6, 2)), COSINE, SINGLE)
    assert {rsum for _, rsum in tuned.tried} == {600.0}
    assert tuned.criterion.parameters()["k"] == CSLS.GRID["k"][0]


def test_the_criterion_is_chosen_against_plain_search():
    encoded, auto = split(40, seed=2), Auto(["csls", "sinkhorn"])
    candidates, choice = auto.with_grids(40), choose(auto, encoded, COSINE, SINGLE)
    parts = np.array([evaluate(encoded, COSINE, criterion, SINGLE).contributions for _, criterion in candidates])
    name, criterion = candidates[choose_row(parts)]
    assert choice.parameters == {"criterion": name, **criterion.parameters()}
    assert repr(choice.criterion) == repr(criterion)
    assert choice.rsum == evaluate(encoded, COSINE, criterion, SINGLE).metrics["rsum"]


def test_a_matching_gets_one_relaxation_for_each_k():
    encoded = split(30, seed=4)
    tuned = tune(SmallGreedy(), encoded, COSINE, SINGLE)
    by_relaxation = {
        value: evaluate(encoded, COSINE, SmallGreedy(value), SINGLE).metrics for value in SmallGreedy.GRID["relaxation"]
    }
    best = [max(by_relaxation.values(), key=lambda m, k=k: m[f"i2t/r{k}"] + m[f"t2i/r{k}"]) for k in KS]
    relaxation = tuned.criterion.parameters()["relaxation"]
    assert [by_relaxation[relaxation[k]] for k in KS] == best
    assert tuned.rsum == pytest.approx(
        sum(m[f"{d}/r{k}"] for k, m in zip(KS, best, strict=True) for d in ("i2t", "t2i"))
    )
    assert evaluate(encoded, COSINE, tuned.criterion, SINGLE).metrics["rsum"] == pytest.approx(tuned.rsum)
    with pytest.raises(InputError, match="SmallGreedy"):  # it has no inductive form
        evaluate(encoded, COSINE, SmallGreedy(), SINGLE, encoded)


def test_a_chain_can_keep_its_corrections_settings():
    encoded = split(30, seed=4)
    tuned = tune(Chain([CSLS(5), SmallGreedy()]), encoded, COSINE, SINGLE, only_matching=True)
    assert tuned.parameters["k"] == 5
    assert tuned.parameters["relaxation"].keys() == set(KS)
    with pytest.raises(InputError, match="CSLS"):
        tune(CSLS(5), encoded, COSINE, SINGLE, only_matching=True)


@pytest.mark.parametrize("criterion", [SmallGreedy(1.0), Chain([CSLS(4), SmallGreedy(2.0)])], ids=["rgm", "csls+rgm"])
@pytest.mark.parametrize("direction", ["i2t", "t2i"])
def test_matched_rankings_equal_the_dense_ones(criterion, direction):
    """R@k is that of the matching made with k, its lists completed from the plain order."""
    encoded, changed = split(23, shuffled=True), 0
    scores = both_directions(encoded, COSINE, encoded)[direction]
    matrix, rankings = scores.rows(slice(None)), rank(scores, criterion)
    for k in KS:
        lists = criterion.rescore(matrix, k=k).argsort(dim=1, descending=True, stable=True)
        answers = torch.zeros_like(matrix, dtype=torch.bool)
        answers[scores.positives.query, scores.positives.item] = True
        first = answers.gather(1, lists).byte().argmax(dim=1) + 1
        assert torch.equal(rankings[k].ranks, first)
        assert torch.equal(
            rankings[k].occurrences[k], torch.bincount(lists[:, :k].flatten(), minlength=matrix.shape[1])
        )
        changed += (lists != matrix.argsort(dim=1, descending=True)).any().item()
    assert changed > 0

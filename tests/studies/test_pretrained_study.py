"""experiments/pretrained on generated sets: its terms are the library's, and its references do not overlap."""

import numpy as np
import torch

from experiments.pretrained import study
from vsehub.criteria import CSLS, InvertedSoftmax, Sinkhorn


def pairs(count: int, seed: int = 0) -> torch.Tensor:
    """Scores (count, count) of noisy copies of unit vectors."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, 8))
    return study.unit(vectors + random.normal(size=vectors.shape)) @ study.unit(vectors).T


def test_thirds_keep_the_answers_of_the_reference_outside_or_inside():
    scores = pairs(330)
    cases = list(study.both("set", ("text", "image"), scores))
    assert {(case.reference, len(case.reference_scores)) for case in cases} == {
        ("inside", 100), ("inside", 110), ("outside", 100), ("outside", 110)
    }  # fmt: skip
    for case in cases[:4]:
        assert case.answers.sum(dim=1).eq(1).all()
        assert torch.equal(case.scores[case.answers], scores.diagonal()[torch.from_numpy(case.numbers)])
        inside = torch.isin(scores.diagonal(), case.reference_scores).sum()
        assert inside == (len(case.reference_scores) if case.reference == "inside" else 0)
        if case.known is not None:
            query_rows, answers = case.known
            assert torch.isin(query_rows[answers], scores.diagonal()).all()


def test_a_popular_reference_has_four_fifths_of_its_queries_in_the_head():
    index = np.repeat(np.arange(200), 5)
    scores = torch.nn.functional.one_hot(torch.from_numpy(index), 200).float()
    cases = [case for case in study.shared("set", scores, index) if len(case.reference_scores) == 100]
    assert len(cases) == 2 * len(study.SPLITS)
    for case in cases:
        head = np.unique(case.scores.argmax(dim=1).numpy()[case.head])
        in_head = np.isin(case.reference_scores.argmax(dim=1).numpy(), head).sum()
        assert len(head) == 40
        assert in_head == 80 if case.reference == "popular" else in_head < 60


def test_terms_are_those_of_the_criteria():
    scores, reference = pairs(60), pairs(60, 1)
    rankings = {f"{name} {settings}": rescore for name, settings, rescore in study.criteria()}
    for shown, criterion in (
        ("is β 30", InvertedSoftmax(beta=30.0)),
        ("csls k 10", CSLS(k=10)),
        (f"sinkhorn {study.DECIDED}", Sinkhorn(temperature=0.5, rounds=1, weight=0.75, relative=True)),
        ("sinkhorn τ 0.02, 10 rounds", Sinkhorn(temperature=0.02, rounds=10, weight=1.0, relative=False)),
    ):
        measured = rankings[shown](scores, reference).argsort(dim=1)
        assert torch.equal(measured, criterion.rescore(scores, reference).argsort(dim=1)), shown


def test_gains_are_means_over_the_splits_and_ties_count_as_wrong():
    rows = list(study.gains(iter([study.world(1.0, 8, 60, 80, 0)]), False))
    assert {row["queries"] for row in rows} == {2000}
    assert all(row["least"] == row["gain"] for row in rows)
    case = study.world(1.0, 8, 60, 80, 0)
    assert study.right(case, torch.zeros_like(case.scores)).sum() == 0

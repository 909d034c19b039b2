"""Given scores against the vectors that they come from: the same rankings, figures and choice; and what is refused."""

import numpy as np
import pytest
import torch
from looped import looped
from measuring import measure

from vsehub.checks import InputError
from vsehub.cli.nodes import build, components
from vsehub.criteria import Auto, Chain, DualInvertedSoftmax, NearestNeighbor, RelaxedGreedyMatching
from vsehub.criteria.choose import choose
from vsehub.data.vectors.embeddings import open_vectors
from vsehub.neighbors import tiles
from vsehub.neighbors.vectors import UnitVectors, as_vectors
from vsehub.positives import Positives
from vsehub.ranking import inputs as module
from vsehub.ranking.inputs import ScoreFile, look_through_scores, open_inputs

DIM = 8


def sides(queries=21, items=13, reference=16):
    """Sides of dyadic numbers, of which every product is exact, in any order of its sums; which item each wants."""
    random = np.random.default_rng(0)
    item = random.integers(-16, 17, (items, DIM))
    wanted = random.integers(0, items, queries)
    query = item[wanted] + random.integers(-9, 10, (queries, DIM))
    other = item[random.integers(0, items, reference)] + random.integers(-9, 10, (reference, DIM))
    return *(torch.from_numpy(matrix).float() / 64 for matrix in (query, item, other)), torch.from_numpy(wanted)


def score_file(scores):
    return ScoreFile(**vars(open_vectors(scores, "scores", normalize=False)))


def known():
    """All criteria of the configuration that need no vectors, at its settings."""
    criteria = {}
    for name in components().choices("criterion"):
        criterion = build("criterion", components().node("criterion", name))
        if not isinstance(criterion, Auto | NearestNeighbor) and criterion.correction.reference_items_as != "rows":
            criteria[name] = criterion.with_parameters(**{"k": 3} if "k" in criterion.parameters() else {})
    return criteria


@pytest.fixture(params=[False, True], ids=["whole", "tiles"])
def sizes(request, monkeypatch):
    if request.param:
        for name, value in (("TILE_QUERIES", 5), ("TILE_ITEMS", 4), ("QUERY_ELEMENTS", 200), ("NARROW", 2)):
            monkeypatch.setattr(tiles, name, value)
        monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 100)
        monkeypatch.setattr(module, "ROWS", 7)


@looped("inductive", [False, True])
def test_rankings_and_figures_are_those_of_the_vectors(inductive, sizes):
    query, item, other, wanted = sides()
    criteria = {name: criterion for name, criterion in known().items() if criterion.inductive or not inductive}
    assert {"sinkhorn", "qb_norm", "mutual_proximity", "dbsn"} < set(criteria)
    assert ("csls+rgm" in criteria) != inductive
    positives = Positives.from_pairs(torch.arange(21), wanted, 21, 13)
    vectors = measure(query, item, criteria, other if inductive else None, 5, positives)
    reference = score_file(other @ item.T) if inductive else None
    scores = measure(score_file((query @ item.T).numpy()), UnitVectors(13), criteria, reference, 5, positives)
    for ranking, scored in zip(vectors.rankings, scores.rankings, strict=True):
        assert ranking.name == scored.name
        assert torch.equal(ranking.positions, scored.positions), ranking.name
        torch.testing.assert_close(ranking.values, scored.values, rtol=1e-6, atol=1e-6)
        assert (ranking.hubness, ranking.histograms, ranking.truth) == (
            scored.hubness,
            scored.histograms,
            scored.truth,
        ), ranking.name
        assert ranking.changed == pytest.approx(scored.changed), ranking.name  # sums of blocks of other sizes


LIMITS = {"MOST_SCORES": 4000, "MOST_QUERIES": 60, "MOST_REFERENCE": 50}


@looped(("inductive", "limits"), [(False, {}), (True, LIMITS)])
def test_the_same_criterion_is_chosen(inductive, limits):
    query, item, other, wanted = sides(150, 40, 70)
    positives = Positives.from_pairs(torch.arange(150), wanted, 150, 40)
    query_rows, among, reference_rows = (as_vectors("vectors", matrix) for matrix in (query, item, other))
    reference = score_file(other @ item.T) if inductive else None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(f"vsehub.criteria.choose.{name}", value)
        patch.setattr("vsehub.neighbors.vectors.BLOCK", 7)
        expected = choose(Auto(), query_rows, positives, among, reference_rows if inductive else None, seed=3)
        choice = choose(Auto(), score_file(query @ item.T), positives, UnitVectors(40), reference, seed=3)
    assert (choice.items < 40) == bool(limits)
    assert choice.tried == expected.tried


def test_criteria_that_compare_items():
    query, item, _, _ = sides()
    for criterion in (DualInvertedSoftmax(), Chain([DualInvertedSoftmax(), RelaxedGreedyMatching()])):
        with pytest.raises(InputError, match="give vectors"):
            measure(score_file(query @ item.T), UnitVectors(13), {"dual": criterion})


def test_scores_that_are_no_numbers():
    scores = np.random.default_rng(0).normal(size=(9, 4))
    scores[0] = 0  # as good as any other
    spread = look_through_scores(open_vectors(scores, "scores"))
    assert spread == {"least": np.float32(scores.min()), "most": np.float32(scores.max())}
    scores[[2, 5], [1, 3]], scores[7, 0] = np.nan, -1e300
    with pytest.raises(InputError, match=r"rows 2, 5 hold NaN; row 7 holds infinite values"):
        look_through_scores(open_vectors(scores, "scores"))


def test_scores_that_do_not_fit(tmp_path):
    random = np.random.default_rng(0)
    for name, shape in (("s", (6, 4)), ("narrow", (9, 3)), ("turned", (4, 9))):
        np.save(tmp_path / f"{name}.npy", random.random(shape, np.float32))
    (tmp_path / "six.txt").write_text("a\nb\nc\nd\ne\nf\n")
    (tmp_path / "beyond.csv").write_text("query,item\n0,5\n5,1\n")
    for settings, message in (
        ({"reference_scores": "narrow.npy"}, "narrow.npy"),
        ({"reference_scores": "turned.npy"}, "turned.npy"),
        ({"item_ids": "six.txt"}, "items has 4 rows, .* 6 ids"),
        ({"truth": "beyond.csv"}, "beyond.csv: item"),
    ):
        files = {name: str(tmp_path / file) for name, file in settings.items()}
        with pytest.raises(InputError, match=message):
            open_inputs({"scores": str(tmp_path / "s.npy"), **files})


def test_ids_of_the_file_are_the_queries(tmp_path):
    np.savez(tmp_path / "s.npz", scores=np.eye(3, 2, dtype=np.float32), ids=np.array(["a", "b", "c"]))
    inputs = open_inputs({"scores": f"{tmp_path}/s.npz::scores"})
    assert (inputs.query_names.ids, inputs.item_names.ids) == (["a", "b", "c"], None)
    assert (len(inputs.sides.queries), len(inputs.sides.items), inputs.sides.reference) == (3, 2, None)
    assert inputs.check()["scores"]["most"] == 1

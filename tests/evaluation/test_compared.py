"""Two rankings compared: hubs and turned queries are those of whole matrices sorted by plain loops."""

import pytest
import torch

from vsehub.checks import InputError
from vsehub.criteria import CSLS, Chain, NearestNeighbor, RelaxedGreedyMatching
from vsehub.evaluation import EncodedSplit
from vsehub.evaluation.compare import compare
from vsehub.evaluation.evaluate import rank
from vsehub.evaluation.scores import DIRECTIONS, DirectedScores
from vsehub.similarities import Cosine

K = 5


@pytest.fixture(scope="module")
def split():
    """12 images, 40 texts on a coarse grid of values, so that scores tie; one image is a hub, one shares a text."""
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(12, 4, generator=generator).round() + 1
    index = torch.randint(11, (40,), generator=generator)
    index[:11] = torch.arange(11)
    texts = images[index] + torch.randn(40, 4, generator=generator).round()
    images[5] = images.mean(dim=0).round()
    texts[texts.norm(dim=1) == 0] = 1.0
    images[images.norm(dim=1) == 0] = 1.0
    texts[11:20] = texts[20:29]  # the same words for other images
    pairs = torch.stack([index, torch.arange(40)], dim=1)
    return EncodedSplit(images, texts, index, torch.cat([pairs, torch.tensor([[11, 0]])]))


def corrected(scores, criterion, k):
    """The criterion's scores of every query, as lists."""
    matrix = scores.rows(slice(None))
    return (criterion.rescore(matrix, k=k) if criterion.matching is not None else criterion.rescore(matrix)).tolist()


def by_loops(scores, criteria):
    answers = [set() for _ in range(scores.positives.queries)]
    for query, item in zip(scores.positives.query.tolist(), scores.positives.item.tolist(), strict=True):
        answers[query].add(item)
    counts, wrong, firsts = [], [], []
    for criterion in criteria:
        lists = [
            sorted(range(len(row)), key=lambda item, row=row: (-row[item], item))[:K]
            for row in corrected(scores, criterion, K)
        ]
        counts.append([sum(item in some for some in lists) for item in range(scores.positives.items)])
        pairs = list(zip(lists, answers, strict=True))
        wrong.append(
            [sum(n in some and n not in right for some, right in pairs) for n in range(scores.positives.items)]
        )
        firsts.append(
            [
                sorted(range(len(row)), key=lambda item, row=row, some=some: (-row[item], item in some, item))
                for row, some in zip(corrected(scores, criterion, 1), answers, strict=True)
            ]
        )
    right = [[items[0] in some for items, some in zip(first, answers, strict=True)] for first in firsts]
    return answers, counts, wrong, firsts, right


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    "criterion", [CSLS(k=3), Chain([CSLS(k=3), RelaxedGreedyMatching()])], ids=["csls", "csls+rgm"]
)
def test_equals_loops(split, direction, criterion):
    scores = DirectedScores(split, direction, Cosine(), split)
    criteria = NearestNeighbor(), criterion
    answers, counts, wrong, firsts, right = by_loops(scores, criteria)
    found = compare(*((scores, one) for one in criteria), k=K, hubs=5, examples=100, shown=3)
    order = sorted(range(len(counts[0])), key=lambda item: (-counts[0][item], item))[:5]
    assert [hub.item for hub in found.hubs] == order
    assert [hub.occurrences for hub in found.hubs] == [(counts[0][n], counts[1][n]) for n in order]
    assert [hub.wrong for hub in found.hubs] == [(wrong[0][n], wrong[1][n]) for n in order]
    assert found.largest == (max(counts[0]), max(counts[1]))
    assert found.never == (counts[0].count(0), counts[1].count(0))
    assert found.answered == (sum(right[0]), sum(right[1]))
    for turned, number, way in ((found.some_gained, found.gained, 1), (found.some_lost, found.lost, 0)):
        queries = [q for q in range(len(answers)) if right[way][q] and not right[1 - way][q]]
        assert sorted(one.query for one in turned) == queries
        assert number == len(queries)
        for one in turned:
            for items, listed in zip(firsts, (one.before, one.after), strict=True):
                assert listed == [(item, item in answers[one.query]) for item in items[one.query][:3]]
    assert found.gained + found.lost > 0
    rankings = [rank(scores, one)[1].ranks for one in criteria]
    assert found.answered == tuple(int((ranks == 1).sum()) for ranks in rankings), "it is not what R@1 counts"


def test_an_equal_score_of_a_wrong_item_is_no_answer():
    images = torch.eye(2)
    split = EncodedSplit(images, images[[0, 0]], torch.tensor([0, 1]))
    scores = DirectedScores(split, "i2t", Cosine(), split)
    found = compare((scores, NearestNeighbor()), (scores, CSLS(k=1)))
    assert found.answered == (0, 0)
    assert found.gained == found.lost == 0


def test_examples_are_drawn_by_the_seed_alone(split):
    scores = DirectedScores(split, "t2i", Cosine(), split)
    sides = (scores, NearestNeighbor()), (scores, Chain([CSLS(k=3), RelaxedGreedyMatching()]))

    def drawn(seed):
        return [one.query for one in compare(*sides, k=K, examples=1, seed=seed).some_gained]

    several = [drawn(seed) for seed in range(8)]
    assert [drawn(seed) for seed in range(8)] == several
    assert len(set(map(tuple, several))) > 1


def test_a_ranking_of_other_items_is_refused(split):
    other = EncodedSplit(split.images, split.texts, split.image_index, split.pairs.clone())
    other.pairs[:, 1] = other.pairs[:, 1].flip(0)
    sides = [(DirectedScores(one, "i2t", Cosine(), one), NearestNeighbor()) for one in (split, other)]
    with pytest.raises(InputError, match="compare rankings of one split"):
        compare(*sides)

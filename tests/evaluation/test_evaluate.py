import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import (
    CSLS,
    DualBankSinkhorn,
    DualInvertedSoftmax,
    InvertedSoftmax,
    NearestNeighbor,
)
from vsehub.data import pairs_by_caption
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate, rank
from vsehub.evaluation.scores import both_directions
from vsehub.metrics import recall_metrics
from vsehub.metrics.occurrences import KS, hubness, k_occurrences
from vsehub.models import EncodedSplit
from vsehub.similarities import Cosine, Order

CRITERIA = [
    NearestNeighbor(),
    InvertedSoftmax(20.0),
    CSLS(4),
    DualInvertedSoftmax(20.0, 3.0),
    DualBankSinkhorn(0.05, 4),
]
COSINE = Cosine()


def split(images, seed=0, shuffled=False):
    """Random embeddings in float64, captions near their image, unequal numbers of them for each."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(images, 6, generator=generator, dtype=torch.float64)
    index = torch.arange(images).repeat_interleave(torch.arange(images) % 3 + 1)
    if shuffled:
        index = index[torch.randperm(len(index), generator=generator)]
    text = image[index] + 0.8 * torch.randn(len(index), 6, generator=generator, dtype=torch.float64)
    return EncodedSplit(image, text, torch.from_numpy(pairs_by_caption(index)))


def dense(encoded, criterion, reference=None):
    """The same figures from whole matrices; each direction is rescored on its own."""
    scores = COSINE(encoded.images, encoded.texts)
    references = None, None
    if reference is not None and criterion.needs_reference:
        references = COSINE(reference.images, encoded.texts), COSINE(encoded.images, reference.texts).T
    mask = torch.arange(len(encoded.images))[:, None] == encoded.pairs[:, 0]
    further = [further_scores(side, encoded, criterion, reference) for side in ("texts", "images")]
    i2t = criterion.rescore(scores, references[0], reference_item_scores=further[0])
    t2i = criterion.rescore(scores.T, references[1], reference_item_scores=further[1])
    metrics = {}
    for direction, matrix, positives in (("i2t", i2t, mask), ("t2i", t2i.T, mask)):
        figures = recall_metrics(matrix, positives) | {
            f"hubness/{name}": value for name, value in hubness(matrix, positives=positives).items()
        }
        metrics |= {name: value for name, value in figures.items() if f"{direction}/" in name}
    metrics["rsum"] = sum(value for name, value in metrics.items() if name.split("/")[-1] in ("r1", "r5", "r10"))
    metrics["hubness/hs_sum"] = sum(value for name, value in metrics.items() if "/skew_" in name)
    return metrics, {"i2t": k_occurrences(i2t), "t2i": k_occurrences(t2i)}


def further_scores(side, encoded, criterion, reference):
    """What a criterion that takes reference items is given: the reference's texts where texts are the items."""
    items, bank = COSINE.vectors(getattr(encoded, side)), COSINE.vectors(getattr(reference or encoded, side))
    if criterion.reference_items_as == "rows":
        return bank @ items.T
    if criterion.reference_items_as == "columns" and reference is not None:
        asking = COSINE.vectors(reference.images if side == "texts" else reference.texts)
        return asking @ bank.T
    return None


WAYS = {"one-block": {}, "small-blocks": {"BLOCK_ELEMENTS": 100}}
WAYS["no-whole-matrix"] = {"BLOCK_ELEMENTS": 100, "MATRIX_ELEMENTS": 1}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def blocks(request, monkeypatch):
    for name, elements in request.param.items():
        monkeypatch.setattr(f"vsehub.evaluation.scores.{name}", elements)


@looped("criterion", CRITERIA)
@looped("reference", [None, split(9, seed=5)])
def test_equals_the_dense_computation(criterion, reference, blocks):
    encoded = split(23, shuffled=True)
    result = evaluate(encoded, COSINE, criterion, Protocol("single"), reference)
    metrics, occurrences = dense(encoded, criterion, reference)
    assert result.metrics == pytest.approx(metrics, rel=1e-9)
    for direction, by_k in occurrences.items():
        for k in KS:
            histogram = result.histograms[direction][str(k)]
            counts = [
                n for n, items in zip(histogram["occurrences"], histogram["items"], strict=True) for _ in range(items)
            ]
            assert counts == sorted(by_k[k].tolist())


def ties(images, per_image, dim, seed):
    """Float32 vectors of which many are copies, some at the end, and others that differ in the last bit of a number."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randn(images, dim, generator=generator)
    image[torch.randint(images, (images // 2,), generator=generator)] = image[0].clone()
    image[-1] = image[0]
    image[images // 2] = image[0] * (1 + 2**-23)
    index = torch.arange(images).repeat_interleave(per_image)
    text = image[index] + 0.5 * torch.randn(len(index), dim, generator=generator)
    text[torch.randint(len(text), (len(text) // 3,), generator=generator)] = text[1].clone()
    text[-1] = text[1]
    return EncodedSplit(image, text, torch.from_numpy(pairs_by_caption(index)))


@looped(("images", "dim"), [(2, 1), (17, 300), (70, 33)])
def test_equal_items_are_tied_and_ranks_are_those_of_plain_loops(images, dim, blocks):
    encoded = ties(images, 3, dim, seed=images + dim)
    for direction, scores in both_directions(encoded, COSINE, encoded).items():
        matrix = torch.cat([block for _, block in scores.blocks()])
        items = encoded.texts if direction == "i2t" else encoded.images
        for item in range(len(items)):
            same = (items == items[item]).all(dim=1)
            assert (matrix[:, same] == matrix[:, item, None]).all()
        rankings = rank(scores, NearestNeighbor())
        positive = torch.zeros_like(matrix, dtype=torch.bool)
        positive[scores.positives.query, scores.positives.item] = True
        for query, (row, hits) in enumerate(zip(matrix.tolist(), positive.tolist(), strict=True)):
            best = max(score for score, hit in zip(row, hits, strict=True) if hit)
            worse = sum(score >= best and not hit for score, hit in zip(row, hits, strict=True))
            assert rankings[10].ranks[query] == 1 + worse
        order = matrix.argsort(dim=1, descending=True, stable=True)
        for k in KS:
            assert torch.equal(rankings[k].occurrences[k], order[:, :k].flatten().bincount(minlength=len(items)))


def test_items_that_cannot_be_scored_with_items(blocks):
    """A similarity that is not an inner product has scores of images with texts only, which is all that DBSN takes."""
    encoded, reference = (
        EncodedSplit(part.images.abs(), part.texts.abs(), part.pairs) for part in (split(9), split(5, seed=5))
    )
    with pytest.raises(InputError, match=r"DualInvertedSoftmax .* Order"):
        evaluate(encoded, Order(), DualInvertedSoftmax(), Protocol("single"))
    metrics = [
        evaluate(encoded, Order(), DualBankSinkhorn(0.5), Protocol("single"), bank).metrics
        for bank in (None, reference)
    ]
    assert metrics[0]["hubness/hs_sum"] != metrics[1]["hubness/hs_sum"]


@pytest.mark.parametrize("blocks", [WAYS["no-whole-matrix"]], ids=["no-whole-matrix"], indirect=True)
@looped("criterion", CRITERIA)
def test_folds_are_ranked_alone_and_averaged(criterion, blocks):
    """As c2: consecutive folds, the criterion fitted in each, images beyond the last fold left out."""
    encoded = split(25, shuffled=True)
    result = evaluate(encoded, COSINE, criterion, Protocol("mine", fold_images=8, folds=3))
    figures = []
    for fold in range(3):
        inside = (encoded.pairs[:, 0] // 8) == fold
        pairs = torch.from_numpy(pairs_by_caption(encoded.pairs[inside, 0] - 8 * fold))
        part = EncodedSplit(encoded.images[8 * fold : 8 * fold + 8], encoded.texts[inside], pairs)
        figures.append(dense(part, criterion)[0])
    means = {name: sum(figure[name] for figure in figures) / 3 for name in figures[0]}
    assert result.metrics == pytest.approx(means, rel=1e-9)
    assert result.metrics["rsum"] != pytest.approx(dense(encoded, criterion)[0]["rsum"])
    assert sum(result.histograms["t2i"]["1"]["items"]) == 24


def test_too_few_images():
    with pytest.raises(InputError, match=r"protocol c2 needs 5000 images .* has 23; use protocol"):
        evaluate(split(23), COSINE, CRITERIA[0], Protocol("c2", 1000, 5))

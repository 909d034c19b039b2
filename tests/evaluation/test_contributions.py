"""Each image's part of rsum, against plain loops over the ranks of a dense computation."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.criteria import CSLS, NearestNeighbor, RelaxedGreedyMatching
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.models import EncodedSplit
from vsehub.similarities import Cosine

KS = (1, 5, 10)


def split(images, even=False, seed=0, pairs=False):
    """Noisy encodings of few values, so that scores tie; captions in a random order, 1 to 3 an image or 2 each."""
    generator = torch.Generator().manual_seed(seed)
    image = torch.randint(-2, 3, (images, 5), generator=generator).double()
    each = torch.full((images,), 2) if even else torch.arange(images) % 3 + 1
    index = torch.arange(images).repeat_interleave(each)
    index = index[torch.randperm(len(index), generator=generator)]
    text = image[index] + torch.randint(-2, 3, (len(index), 5), generator=generator)
    both = torch.stack([index, torch.arange(len(index))], dim=1)
    second = torch.stack([(index[::4] + 1) % images, both[::4, 1]], dim=1)  # of every fourth text
    return EncodedSplit(image, text, torch.cat([both, second]) if pairs else both)


def rank_by_counting(scores, positives):
    """1-based rank of the best positive, equal-scored negatives ahead of it."""
    best = max(scores[n] for n in positives)
    return 1 + sum(score >= best for n, score in enumerate(scores) if n not in positives)


def by_loops(encoded, correct):
    """correct: (scores (Q, M), k) -> corrected."""
    plain = Cosine()(encoded.images, encoded.texts)
    pairs, (images, texts) = encoded.pairs.tolist(), plain.shape
    parts = [0.0] * images
    for k in KS:
        i2t, t2i = correct(plain, k).tolist(), correct(plain.T, k).tolist()
        for n in range(images):
            parts[n] += 100 * (rank_by_counting(i2t[n], {t for image, t in pairs if image == n}) <= k)
        for t in range(texts):
            owners = {n for n, image in pairs if image == t}
            for n in owners:
                parts[n] += 100 * images / texts * (rank_by_counting(t2i[t], owners) <= k) / len(owners)
    return parts


@looped(
    ("criterion", "correct"),
    [
        (NearestNeighbor(), lambda scores, k: scores),
        (CSLS(3), lambda scores, k: CSLS(3).rescore(scores)),
        (RelaxedGreedyMatching(1.0), lambda scores, k: RelaxedGreedyMatching(1.0).rescore(scores, k=k)),
    ],
)
@looped("kind", [{}, {"even": True}, {"pairs": True}])
def test_equal_loops_and_have_rsum_as_mean(criterion, correct, kind):
    encoded = split(14, **kind)
    evaluation = evaluate(encoded, Cosine(), criterion, Protocol("single"))
    assert evaluation.contributions == pytest.approx(by_loops(encoded, correct), rel=1e-12)
    assert np.mean(evaluation.contributions) == pytest.approx(evaluation.metrics["rsum"], rel=1e-12)


def test_respect_folds():
    """An image is ranked among its fold's; folds whose images have unlike numbers of texts weigh the same in rsum."""
    encoded, folds = split(21), Protocol("three", 7, 3)
    evaluation = evaluate(encoded, Cosine(), CSLS(3), folds)
    parts = [by_loops(encoded.fold(images), lambda scores, k: CSLS(3).rescore(scores)) for images in folds.slices(21)]
    assert evaluation.contributions == pytest.approx([*parts[0], *parts[1], *parts[2]], rel=1e-12)
    assert np.mean(evaluation.contributions) == pytest.approx(evaluation.metrics["rsum"], rel=1e-12)

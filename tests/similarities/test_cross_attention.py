import pytest
import torch
from attention_oracle import NORMALISATIONS, POOLINGS, oracle
from golden_arrays import CASES, golden
from looped import looped

from vsehub.checks import InputError
from vsehub.sets import Sets
from vsehub.similarities import CrossAttention
from vsehub.similarities.scan import cross_attention
from vsehub.similarities.scan import tiles as attention_panel

EXACT = {"rtol": 1e-9, "atol": 1e-12}
SCALES = {"t2i": (9.0, 6.0), "i2t": (4.0, 5.0)}
# Every normalisation and every pooling; all pairs of them are in the golden arrays.
KINDS = [
    *((how, "lse") for how in NORMALISATIONS),
    *(("clipped_l2norm", pooling) for pooling in POOLINGS if pooling != "lse"),
]
GOLDEN_POOLINGS = {"mean": "Mean", "lse": "LogSumExp", "max": "Max", "sum": "Sum"}


def sets(lengths, seed, dim=5):
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(sum(lengths), dim, generator=generator, dtype=torch.float64)
    return Sets(vectors, torch.tensor(lengths))


def nasty(equal_within=True):
    """Unequal and repeated lengths, one region, one word, equal vectors in a set, equal sets, zero vectors."""
    images, texts = sets([3, 1, 4, 3, 2], 0), sets([2, 1, 5, 2, 3, 1, 4], 1)
    if equal_within:
        images.vectors[1] = images.vectors[0]
        texts.vectors[3:5] = texts.vectors[5]
    images.vectors[4 : 5 + equal_within] = 0
    images.vectors[8:11] = images.vectors[:3]
    texts.vectors[8:10] = texts.vectors[:2]
    texts.vectors[13] = 0
    return images, texts


@pytest.fixture
def small_pieces(monkeypatch):
    """Tiles of two query sets and few scores, panels of some sets: every loop turns more than once."""
    monkeypatch.setattr(attention_panel, "ON_CPU", (16, 2))
    monkeypatch.setattr(cross_attention, "PANEL_ON_CPU", 80)


def with_gradient(function, images, texts, upstream):
    images, texts = (Sets(side.vectors.clone().requires_grad_(), side.lengths) for side in (images, texts))
    scores = function(images, texts)
    return scores, *torch.autograd.grad(scores, (images.vectors, texts.vectors), upstream)


@looped("case", CASES)
@looped("direction", SCALES)
@looped("pooling", POOLINGS)
def test_golden(case, direction, pooling):
    arrays = golden(case)
    regions = arrays["scan_image"]
    images = Sets(regions.flatten(0, 1), torch.full((len(regions),), regions.shape[1]))
    texts = Sets.from_padded(arrays["scan_caption"], arrays["scan_lengths"])
    prefix = f"scan_{direction}_{GOLDEN_POOLINGS[pooling]}_"
    keys = [key for key in arrays if key.startswith(prefix)]
    assert len(keys) == 5
    for key in keys:
        similarity = CrossAttention(direction, key.removeprefix(prefix), pooling, *SCALES[direction])
        torch.testing.assert_close(similarity(images, texts), arrays[key], **EXACT)


@pytest.mark.usefixtures("small_pieces")
@looped("direction", SCALES)
@looped(("how", "pooling"), KINDS)
def test_scores_and_gradients_equal_loops(direction, pooling, how):
    images, texts = nasty(equal_within=pooling != "max")  # of equal maxima, rounding chooses whose gradient it is
    settings = direction, how, pooling, *SCALES[direction]
    upstream = torch.randn(5, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    results = with_gradient(CrossAttention(*settings), images, texts, upstream)
    expected = with_gradient(lambda first, other: oracle(first, other, *settings), images, texts, upstream)
    for ours, theirs in zip(results, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-11)


@looped("direction", SCALES)
@looped("how", NORMALISATIONS)
def test_float32_gradients_stay_finite(direction, how):
    """Equal vectors everywhere, sets that cancel, zero sets, and large λ."""
    equal, zero = torch.ones(36, 8), torch.zeros(36, 8)
    opposed = torch.randn(18, 8, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    opposed[18:] *= -1
    for scale in (9.0, 1000.0):
        similarity = CrossAttention(direction, how, "lse", scale, 100.0)
        for sets in (equal, zero, opposed):
            for other in (equal, zero, opposed):
                images, texts = Sets(sets, torch.tensor([36])), Sets(other[:30], torch.tensor([15, 1, 14]))
                for part in with_gradient(similarity, images, texts, torch.ones(1, 3)):
                    assert part.isfinite().all()


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_no_score_is_above_the_largest(pooling):
    vectors = torch.nn.functional.normalize(torch.ones(30, 7), dim=1)
    same = Sets(vectors, torch.tensor([10, 1, 19]))
    similarity = CrossAttention(pooling=pooling)
    assert similarity.largest == 1.0
    torch.testing.assert_close(similarity(same, same), torch.ones(3, 3), rtol=0, atol=1e-5)
    assert CrossAttention(pooling="sum").largest is None


@looped("direction", SCALES)
@looped(("how", "pooling"), KINDS)
def test_scores_of_candidates_are_those_of_all(direction, pooling, how, monkeypatch):
    monkeypatch.setattr(cross_attention, "COPIED", 150)  # two or three queries at a time
    images, texts = nasty()
    for softmax_scale in (SCALES[direction][0], 60.0):  # 60: the exponents are shifted
        similarity = CrossAttention(direction, how, pooling, softmax_scale, SCALES[direction][1])
        whole = similarity(images, texts)
        for queries, entries, side, scores in ((images, texts, "texts", whole), (texts, images, "images", whole.T)):
            chosen = torch.stack([torch.arange(len(entries)).roll(row)[:4] for row in range(len(queries))])
            candidates = similarity.candidate_scores_at_once(queries, entries, chosen, side)
            torch.testing.assert_close(candidates, scores.gather(1, chosen), **EXACT)


def test_no_images_or_no_texts():
    some = sets([2, 3], 0)
    for direction in SCALES:
        similarity = CrossAttention(direction)
        assert similarity(some[:0], some).shape == (0, 2)
        assert similarity(some, some[:0]).shape == (2, 0)


def test_unknown_choices():
    for choice in ("direction", "normalisation", "pooling"):
        with pytest.raises(InputError, match=f"{choice} is 'x'"):
            CrossAttention(**{choice: "x"})

"""Nasty batches, and a loss held against an oracle that walks over single entries."""

import torch

EXACT = {"rtol": 1e-9, "atol": 1e-12}
KINDS = ("distinct", "ties", "negative", "pairs")
SIZES = (1, 2, 11)


def batch(n, kind, seed=0):
    """Scores in [-1, 1] in float64 and the mask of positives; three pairs an image, but for `pairs` one.

    ties: multiples of a quarter. negative: all below 0.
    """
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(n, n, generator=generator, dtype=torch.float64) * 2 - 1
    scores = {"ties": (scores * 4).round() / 4, "negative": (scores - 1.01) / 2}.get(kind, scores)
    ids = torch.arange(n) if kind == "pairs" or n == 2 else torch.arange(n) // 3
    ids = ids[torch.randperm(n, generator=generator)]
    return scores, ids[:, None] == ids[None, :]


def equals_loops(loss, oracle, n, kind, within=EXACT):
    """The loss is the oracle's, and so is its gradient wherever no tie leaves it open.

    oracle: (scores, positives) -> a 0-d tensor made of single entries scores[i, j], of which autograd runs through.
    """
    for seed in range(2 if n < max(SIZES) else 1):  # the loops of the largest batch take most of the time
        scores, positives = batch(n, kind, seed)
        scores.requires_grad_()
        value, expected = loss(scores, positives)["loss"], oracle(scores, positives)
        torch.testing.assert_close(value, expected, **within)
        if kind != "ties":
            ours, theirs = (torch.autograd.grad(loss, scores, allow_unused=True)[0] for loss in (value, expected))
            torch.testing.assert_close(ours, torch.zeros_like(scores) if theirs is None else theirs, **within)


def sides(n, positives):
    """For each pair, as a row and as a column: its index and the entries of its negatives."""
    for i in range(n):
        others = [m for m in range(n) if m != i]
        yield i, [(i, m) for m in others if not positives[i, m]]
        yield i, [(m, i) for m in others if not positives[m, i]]

"""The first table of README.md is what the example of experiments/embeddings.py gives today."""

from pathlib import Path

import numpy as np
import torch

from experiments.embeddings import draw
from vsehub.criteria import CSLS, DistributionNormalization, InvertedSoftmax, NearestNeighbor, Sinkhorn
from vsehub.positives import Positives
from vsehub.ranking.inputs import Sides
from vsehub.ranking.measure import measure

README = (Path(__file__).parents[2] / "README.md").read_text()
ROWS = {
    "none (nearest neighbour)": ("nns", NearestNeighbor()),
    "mean-centring": ("dn", DistributionNormalization(weight=1.0)),
    "CSLS": ("csls", CSLS()),
    "inverted softmax": ("is", InvertedSoftmax()),
    "Sinkhorn": ("sinkhorn", Sinkhorn()),
}


def measured(seed):
    """Row of the table -> R@1, R@10, largest N_10 and share of items that no query finds, of one drawn split."""
    example = draw(seed)
    sides = (torch.from_numpy(vectors) for vectors, _ in example)
    queries, items, reference = sides
    rows = torch.arange(len(queries))
    positives = Positives.from_pairs(rows, rows, len(queries), len(items))
    rankings = measure(Sides.from_arrays(queries, items, reference, None, positives), dict(ROWS.values())).rankings
    of = {ranking.name: ranking for ranking in rankings}
    return [
        [of[name].truth["r1"], of[name].truth["r10"], of[name].hubness["largest_hub_10"]] for name, _ in ROWS.values()
    ]


def test_the_first_table_of_the_readme():
    splits = np.array([measured(seed) for seed in range(6)])  # (splits, rows, figures)
    lines = []
    for label, figures in zip(ROWS, splits.swapaxes(0, 1), strict=True):
        first, ten, hub = figures.mean(axis=0)
        gains = figures[:, 0] - splits[:, 0, 0]
        gain = f"{gains.mean():+.1f} [{gains.min():+.1f}, {gains.max():+.1f}]" if gains.any() else ""
        lines.append(f"| {label} | {first:.1f} | {gain} | {ten:.1f} | {hub:.0f} |")
    table = "\n".join(lines)
    assert table in README, f"README.md should have:\n{table}"

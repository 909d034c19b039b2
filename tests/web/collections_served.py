"""Small contents to serve, with hubs, copies, and names that are hard to write in an address or a page."""

import numpy as np
import torch
from torch.nn.functional import normalize

from vsehub.criteria import CSLS, InvertedSoftmax
from vsehub.positives import Positives
from vsehub.ranking.inputs import Inputs, Names, Sides
from vsehub.web.catalogue import Catalogue, Contents

ITEMS, QUERIES, DIM = 90, 150, 6
NASTY = ["a/b", "..", 'it\'s "one"', "<script>alert(1)</script>", "ü ?&#=100%", " "]
CRITERIA = {"csls": CSLS(k=3), "is": InvertedSoftmax()}


def contents(**changes):
    """Items of which one is a hub and two are copies; each query has one or two right answers, some none."""
    random = torch.Generator().manual_seed(1)
    items = normalize(torch.randn(ITEMS, DIM, generator=random) + 0.3, dim=1)
    items[7] = normalize(items.mean(0, keepdim=True))  # a hub
    items[50] = items[3]
    queries = items[torch.arange(QUERIES) % ITEMS] + 0.8 * items[7] + 0.3 * torch.randn(QUERIES, DIM, generator=random)
    pairs = [(query, query % ITEMS) for query in range(0, QUERIES, 2)] + [(0, 11), (4, 3)]
    positives = Positives.from_pairs(*torch.tensor(pairs).T, QUERIES, ITEMS, complete=False)
    ids = [*NASTY, *(f"item {row}" for row in range(len(NASTY), ITEMS))]
    labels = [f"<b>caption</b> {row}" for row in range(ITEMS)]
    pixels = (np.arange(ITEMS * 3 * 8 * 8) % 255).astype(np.uint8).reshape(ITEMS, 3, 8, 8)
    values = {
        "title": "made up",
        "inputs": Inputs(
            Sides.from_arrays(normalize(queries, dim=1), items, positives=positives),
            Names("queries", QUERIES, labels=[f"question {row} & <i>" for row in range(QUERIES)]),
            Names("items", ITEMS, ids, labels),
        ),
        "picture": lambda row: None if row == 5 else pixels[row],
    }
    return Contents(**(values | changes))


def catalogue(**changes):
    """The catalogue of `contents`."""
    return Catalogue(contents(**changes), CRITERIA)

"""rsum taken apart into images, so that two measurements can be compared image by image."""

import torch
from torch import Tensor

from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import Ranking
from vsehub.metrics.recall import RECALLS


def image_contributions(rankings: dict[str, dict[int, Ranking]], texts: Positives) -> Tensor:
    """Each image's part of a fold's rsum, (I,) float64, whose mean is the rsum.

    rankings: of both directions, for each k the ranking that R@k is taken from. texts: the positives of "t2i", whose
    queries are the texts; at least one each. An image has 100 for each of R@1, R@5 and R@10 that it hits as a query,
    and the mean of what its texts hit; where images have unlike numbers of texts, their sum divided by T/I, the number
    on average. A text that belongs to several images is shared out among them.
    """
    own, found = (sum((side[k].ranks <= k).double() for k in RECALLS) for side in (rankings["i2t"], rankings["t2i"]))
    shares = (found / texts.counts)[texts.query]
    of_texts = torch.zeros_like(own).index_add_(0, texts.item, shares)
    return 100.0 * (own + of_texts * len(own) / len(found))

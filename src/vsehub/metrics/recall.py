"""R@K, median and mean rank (VSE++, AAAI table 2), mAP@R and R-Precision of both directions."""

from torch import Tensor

from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import Ranking, rank_blocks
from vsehub.metrics.relevance import RECALLS


def recall_metrics(scores: Tensor, positives: Tensor) -> dict[str, float]:
    """Both directions' metrics of images x texts.

    scores: (I, T), higher is closer. positives: (I, T) boolean, at least one in every row and column. Returns
    "i2t/r1", "i2t/r5", "i2t/r10" in %, "i2t/medr", "i2t/meanr", "i2t/map_r" and "i2t/r_precision" in %, the same for
    "t2i", and "rsum". Raises InputError for shapes that differ, NaN scores, or a row or column without a positive.
    """
    both: dict[str, float] = {}
    for direction, matrix, mask in (("i2t", scores, positives), ("t2i", scores.T, positives.T)):
        ranking = rank_blocks([(0, matrix)], Positives.from_mask(mask))
        both |= {f"{direction}/{name}": value for name, value in rank_metrics(ranking).items()}
    return both | {"rsum": rsum(both)}


def rank_metrics(ranking: Ranking) -> dict[str, float]:
    """The metrics of one direction, over the queries that have a positive.

    "r1", "r5", "r10" in %, "medr" (floor of the median of the 0-based ranks, + 1), "meanr", and "map_r" and
    "r_precision" (mAP@R and R-Precision, Musgrave 2020) in %.
    """
    ranks = ranking.ranks[ranking.measured].cpu()  # a GPU divides otherwise: 85.00000000000001 %
    metrics = {f"r{k}": 100.0 * (ranks <= k).double().mean().item() for k in RECALLS}
    zero_based = ranks.sort().values - 1
    median = (zero_based[(len(ranks) - 1) // 2] + zero_based[len(ranks) // 2]) // 2
    metrics |= {"medr": median.item() + 1.0, "meanr": ranks.double().mean().item()}
    for name, fractions in (("map_r", ranking.average_precision), ("r_precision", ranking.r_precision)):
        metrics[name] = 100.0 * fractions[ranking.measured].cpu().mean().item()
    return metrics


def rsum(metrics: dict[str, float]) -> float:
    """The sum of the six recalls of both directions, 0 to 600."""
    return sum(metrics[f"{direction}/r{k}"] for direction in ("i2t", "t2i") for k in RECALLS)

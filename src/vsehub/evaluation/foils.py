"""Whether a model scores a true caption above a false one of the same image (FOIL, Shekhar 2017)."""

from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import binomtest
from torch import Tensor, nn

from vsehub.checks import require
from vsehub.data.sources import ArrayLike
from vsehub.data.text.tokens import TokenTable
from vsehub.evaluation.encode import encode_images, encode_texts
from vsehub.io.progress import bar
from vsehub.types import Similarity


@torch.no_grad()
def foil_scores(
    encoders: tuple[nn.Module, nn.Module],
    similarity: Similarity,
    images: ArrayLike,
    rows: np.ndarray,
    table: TokenTable,
    batch_size: int = 256,
) -> Tensor:
    """Scores (P, 2) of the images `rows` (P,) with their captions, texts 0 to P - 1 of `table`, and foils, the next P.

    encoders: of images and of texts. Each image and each distinct text is encoded once, and an image is only scored
    with the texts of its own pairs. Texts with the same words for the model get the same score.
    """
    pairs = len(rows)
    require(len(table) == 2 * pairs, f"{pairs} images and {len(table)} texts; expected a caption and a foil an image")
    image_rows, image_of = np.unique(rows, return_inverse=True)
    text_rows, text_of = distinct(table)
    encoded = encode_images(encoders[0], images, image_rows, batch_size)
    texts = encode_texts(encoders[1], table, text_rows, batch_size)
    scores = torch.empty(pairs, 2, device=texts.device)
    order = np.argsort(image_of, kind="stable")
    own = np.split(order, np.cumsum(np.bincount(image_of))[:-1])  # the pairs of each image
    for image, mine in enumerate(bar("scoring", own)):
        columns, where = np.unique(np.stack([text_of[mine], text_of[pairs + mine]]), return_inverse=True)
        of_image = similarity(encoded[image : image + 1], texts[torch.from_numpy(columns)])[0]
        scores[torch.from_numpy(mine)] = of_image[torch.from_numpy(where.reshape(2, -1).T.copy())]
    return scores.cpu()


def distinct(table: TokenTable) -> tuple[np.ndarray, np.ndarray]:
    """The first row of each distinct text, in order, and for every text its place in that list."""
    found: dict[bytes, int] = {}
    firsts: list[int] = []
    where = np.empty(len(table), dtype=np.int64)
    for row, (start, stop) in enumerate(zip(table.offsets[:-1], table.offsets[1:], strict=True)):
        place = found.setdefault(table.tokens[start:stop].tobytes(), len(firsts))
        if place == len(firsts):
            firsts.append(row)
        where[row] = place
    return np.array(firsts), where


def foil_metrics(scores: Tensor, types: Sequence[str] | None = None) -> dict[str, dict[str, float]]:
    """Metrics of all pairs ("all") and of each type's, from scores (P, 2) of captions and foils.

    pairs: how many. right: those whose caption scores higher. ties: equal scores, counted as wrong. share: of right
    pairs, in percent. low, high: its 95 % interval (Wilson 1927), which unlike the normal interval stays in
    [0, 100] and has a width at both ends.
    """
    groups = {"all": torch.arange(len(scores))}
    for name in sorted(set(types or ())):
        groups[name] = torch.tensor([row for row, one in enumerate(types or ()) if one == name])
    metrics: dict[str, dict[str, float]] = {}
    for name, rows in groups.items():
        right = int((scores[rows, 0] > scores[rows, 1]).sum())
        interval = binomtest(right, len(rows)).proportion_ci(0.95, method="wilson")
        metrics[name] = {
            "pairs": len(rows),
            "right": right,
            "ties": int((scores[rows, 0] == scores[rows, 1]).sum()),
            "share": 100 * right / len(rows),
            "low": 100 * float(interval.low),
            "high": 100 * float(interval.high),
        }
    return metrics

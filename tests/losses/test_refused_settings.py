"""Settings and inputs that no loss takes, which would only show as NaN or a wrong loss after hours."""

import math

import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.losses import (
    HAL,
    NCA,
    RCSLS,
    InfoNCE,
    KNNMargin,
    MaxMargin,
    MultiSimilarity,
    NeighborRetr,
    NTXent,
    Rescaled,
    SigLIP,
    SumMargin,
    SumToMax,
)
from vsehub.types import NeighborStats

NOT_POSITIVE = (0, -1.0, math.nan, math.inf, "0.7", True)
NEGATIVE = (-0.1, math.nan, math.inf)
NOT_WHOLE = (0, 2.5, True)


@looped(
    ("loss", "name", "values"),
    [
        *((HAL, name, NOT_POSITIVE) for name in ("gamma", "alpha", "beta")),
        *((HAL, name, (math.nan, "0.7")) for name in ("epsilon", "epsilon1", "epsilon2")),
        *((MultiSimilarity, name, NOT_POSITIVE) for name in ("alpha", "beta")),
        *((NeighborRetr, name, NEGATIVE) for name in ("centrality_scale", "uniform_weight")),
        *((loss, "margin", NOT_POSITIVE) for loss in (SumMargin, MaxMargin, KNNMargin, SumToMax, Rescaled)),
        *((loss, "temperature", NOT_POSITIVE) for loss in (InfoNCE, NTXent, NeighborRetr)),
        *((loss, "k", NOT_WHOLE) for loss in (KNNMargin, RCSLS, Rescaled, NeighborRetr)),
        (HAL, "neighbors_k", NOT_WHOLE),
        (HAL, "variant", ("released",)),
        (HAL, "statistics", ("bach",)),
        (MultiSimilarity, "base", (math.nan,)),
        (MultiSimilarity, "epsilon", NEGATIVE),
        (NCA, "gamma", NOT_POSITIVE),
        (NTXent, "margin", NEGATIVE),
        (Rescaled, "aggregate", ("mean",)),
        (SigLIP, "bias", (math.nan,)),
        (SigLIP, "scale", NOT_POSITIVE),
        (SumToMax, "warmup_epochs", NOT_WHOLE),
        (NeighborRetr, "transport_rounds", NOT_WHOLE),
        (NeighborRetr, "transport_share", (1, math.nan)),
    ],
)
def test_settings(loss, name, values):
    for value in values:
        with pytest.raises(InputError, match=f"{name} is "):
            loss(**{name: value})


SCORES, EYE = torch.zeros(4, 4), torch.eye(4).bool()


@looped(
    ("call", "named"),
    [
        (lambda: SumMargin()(SCORES[:2], EYE[:2]), "scores"),
        (lambda: Rescaled().rescaled(SCORES[:2], EYE[:2]), "scores"),
        (lambda: SumMargin()(SCORES[:0, :0], EYE[:0, :0]), "scores"),
        (lambda: SumMargin()(SCORES, EYE.float()), "positives"),
        (lambda: SumMargin()(SCORES, EYE[:3, :3]), "positives"),
        (lambda: HAL(neighbors_k=3)(SCORES, EYE, NeighborStats(SCORES[:, :2], SCORES)), "image_to_text"),
        (lambda: HAL()(SCORES, EYE, NeighborStats(SCORES, SCORES[:3])), "text_to_image"),
        (lambda: HAL()(SCORES, EYE, NeighborStats(SCORES[:, :0], SCORES)), "image_to_text"),
        (lambda: NeighborRetr()(SCORES, EYE, NeighborStats(SCORES, SCORES)), "centralities"),
        (lambda: NeighborRetr()(SCORES, EYE, NeighborStats(SCORES, SCORES, *SCORES[:2, :3])), "centralities"),
    ],
)
def test_inputs(call, named):
    with pytest.raises(InputError, match=named):
        call()

"""Whether a reference set holds the very queries that are to be ranked: then nothing is inductive about it."""

import logging

import numpy as np
from torch import Tensor

from vsehub.checks import require
from vsehub.neighbors.vectors import VectorSource

log = logging.getLogger(__name__)

ALLOWED = 0.01  # share of the queries: a caption that people write twice is no leak
_BLOCK_BYTES = 16 << 20


def shared_rows(queries: VectorSource, reference: VectorSource) -> int:
    """How many queries (Q, D) stand in the reference (R, D) bit for bit, as they are read.

    Rows are told apart by 64-bit hashes, which are all that is held.
    """
    return int(np.isin(_hashes(queries), _hashes(reference)).sum())


def refuse_shared(queries: VectorSource, reference: VectorSource) -> int:
    """How many queries the reference holds; InputError where they are more than `ALLOWED` of them, else a warning."""
    count = shared_rows(queries, reference)
    said = f"reference: {count} of {len(queries)} queries ({count / len(queries):.1%}) stand in {reference} bit for bit"
    require(
        count <= ALLOWED * len(queries),
        f"{said}, more than {ALLOWED:.0%}: figures would be called inductive and be transductive. Give other queries, "
        "e.g. training queries, or leave reference out: the queries themselves are then taken, and the record says so",
    )
    if count:
        log.warning("%s; they were seen by the criterion", said)
    return count


def _hashes(vectors: VectorSource) -> np.ndarray:
    step = _rows(vectors)
    return np.concatenate(
        [_hashed(vectors.rows(first, min(first + step, len(vectors)))) for first in range(0, len(vectors), step)]
    )


def _hashed(rows: Tensor) -> np.ndarray:
    """A number (b,) for each row (b, D): its bits times fixed odd numbers, summed modulo 2^64.

    Widened half precision has 16 zero bits at the end: two rows of it that differ hash alike once in 2^47.
    """
    bits = rows.float().cpu().numpy().view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(0).integers(0, 2**63, bits.shape[1], dtype=np.uint64) * 2 + 1
    return bits @ factors


def _rows(vectors: VectorSource) -> int:
    return max(1, _BLOCK_BYTES // (8 * vectors.shape[1]))

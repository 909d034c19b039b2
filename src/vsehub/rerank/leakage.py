"""Whether reference queries include the queries that are to be ranked, which would make nothing inductive."""

import logging

import numpy as np

from vsehub.checks import require
from vsehub.io.rows import row_hashes
from vsehub.neighbors.vectors import VectorSource

log = logging.getLogger(__name__)

ALLOWED = 0.01  # share of the queries: a caption that two people write is no leak
_BLOCK_BYTES = 16 << 20


def shared_rows(queries: VectorSource, reference: VectorSource) -> int:
    """The number of queries (Q, D) that are also in the reference (R, D), bit for bit as they are read.

    Only 64-bit hashes of the rows are held.
    """
    return int(np.isin(_hashes(queries), _hashes(reference)).sum())


def refuse_shared(queries: VectorSource, reference: VectorSource) -> int:
    """The number of queries that the reference holds. Raises InputError if they are more than `ALLOWED` of them.

    Fewer are logged as a warning.
    """
    count = shared_rows(queries, reference)
    said = f"reference: {count} of {len(queries)} queries ({count / len(queries):.1%}) are in {reference} bit for bit"
    require(
        count <= ALLOWED * len(queries),
        f"{said}, more than {ALLOWED:.0%}: results would be called inductive and be transductive. Give other queries, "
        "e.g. training queries, or leave reference out: the queries themselves are then taken, and the record says so",
    )
    if count:
        log.warning("%s; the criterion has seen them", said)
    return count


def _hashes(vectors: VectorSource) -> np.ndarray:
    step = max(1, _BLOCK_BYTES // (4 * vectors.shape[1]))
    blocks = (vectors.rows(first, min(first + step, len(vectors))) for first in range(0, len(vectors), step))
    return np.concatenate([row_hashes(block.float().cpu().numpy()) for block in blocks])

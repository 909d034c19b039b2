"""The contents of images or captions: their rows in blocks, and a hash of all of them."""

import hashlib
import json
from collections.abc import Iterator

import numpy as np

from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import ArrayLike

_BLOCK_BYTES = 16 << 20


def row_blocks(rows: ArrayLike) -> Iterator[np.ndarray]:
    """All rows (n, ...), up to 16 MB at a time, in order."""
    step = max(1, _BLOCK_BYTES // max(1, int(np.prod(rows.shape[1:])) * np.dtype(rows.dtype).itemsize))
    for first in range(0, len(rows), step):
        yield rows[first : first + step]


def content_digest(rows: list[str] | ArrayLike) -> str:
    """The SHA-256 of all texts or of all numbers, each read once.

    Of picture files it is that of their bytes, which were hashed when the files were checked, and of the preparation.
    """
    digest = hashlib.sha256()
    if isinstance(rows, list):
        digest.update(json.dumps(rows).encode())
    elif isinstance(rows, Pictures):
        digest.update(repr((rows.shape, rows.resize, rows.preparation)).encode())
        digest.update(np.ascontiguousarray(rows.contents).tobytes())
    else:
        digest.update(repr((tuple(rows.shape), str(rows.dtype))).encode())
        for block in row_blocks(rows):
            digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()

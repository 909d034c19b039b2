"""Texts in batches: captions, which are tokenised once, and texts that are vectors."""

from collections.abc import Sequence

import numpy as np
import torch

from vsehub.data.sources import ArrayLike
from vsehub.data.text.vocabulary import PAD, Words
from vsehub.io.progress import bar


class TokenTable:
    """T captions, tokenised once.

    tokens: (sum of lengths,) int32, caption after caption, each with its <start> and <end> or the model's own special
    tokens. offsets: (T + 1,) int64; caption t is tokens[offsets[t]:offsets[t + 1]].
    """

    def __init__(self, tokens: np.ndarray, offsets: np.ndarray):
        self.tokens, self.offsets = tokens, offsets

    @classmethod
    def build(cls, vocabulary: Words, captions: Sequence[str], max_words: int | None = None) -> "TokenTable":
        """The table of `captions`, each cut to its first `max_words` words (None: all)."""
        encoded = vocabulary.encode_all(captions, max_words)
        rows = [np.array(numbers, np.int32) for numbers in bar("tokenising", encoded, len(captions), unit=" captions")]
        lengths = np.array([0, *map(len, rows)], np.int64)
        return cls(np.concatenate([np.empty(0, np.int32), *rows]), lengths.cumsum())

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """(T,) int64: the number of tokens of each caption, with <start> and <end>."""
        return np.diff(self.offsets)

    def batch(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The captions `indices` (N,) as texts (N, L) int64, padded with 0 to the longest, and lengths (N,) int64.

        Raises IndexError if an index is out of range.
        """
        indices = np.asarray(indices, dtype=np.int64)
        starts = self.offsets[:-1][indices]
        lengths = self.offsets[1:][indices] - starts
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        texts = np.full(inside.shape, PAD, dtype=np.int64)
        texts[inside] = self.tokens[(starts[:, None] + columns)[inside]]
        return torch.from_numpy(texts), torch.from_numpy(lengths)


class VectorTable:
    """T texts as vectors (T, D) float16 or float32, in memory or memory-mapped."""

    def __init__(self, vectors: ArrayLike):
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def lengths(self) -> np.ndarray:
        """(T,) int64, all 1."""
        return np.ones(len(self), dtype=np.int64)

    def batch(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The texts `indices` (N,) as vectors (N, D) and lengths (N,) int64."""
        rows = torch.from_numpy(np.ascontiguousarray(self.vectors[indices]))
        return rows, torch.ones(len(rows), dtype=torch.int64)

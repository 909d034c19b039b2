"""A score and the index of whom it belongs to in one number that sorts: the smaller the number, the better.

Higher scores come first, of equal scores the lower index. Items compare queries by such keys, queries compare items.
"""

import numpy as np

_INDEX = np.int64(2**32 - 1)


class Float32Keys:
    """Keys of float32 scores: int64, the upper half falls as the score rises, the lower half is the index."""

    dtype, score_dtype = np.dtype(np.int64), np.dtype(np.float32)
    none = np.iinfo(np.int64).max  # worse than every key

    @staticmethod
    def pack(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of scores and indices below 2^32 of one shape."""
        rising = _rising((scores + np.float32(0)).view(np.int32))  # the sum makes 0.0 of -0.0, which is equal to it
        return (~rising).astype(np.int64) << 32 | index

    @staticmethod
    def scores(keys: np.ndarray) -> np.ndarray:
        """The scores in the keys."""
        return _rising(~(keys >> 32).astype(np.int32)).view(np.float32)

    @staticmethod
    def index(keys: np.ndarray) -> np.ndarray:
        """The indices in the keys, int64."""
        return keys & _INDEX

    @staticmethod
    def with_index(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of the same scores and other indices."""
        return keys & ~_INDEX | index


class Float64Keys:
    """Keys of float64 scores, which leave no room in 64 bits: complex numbers, which numpy sorts by both parts."""

    dtype, score_dtype = np.dtype(np.complex128), np.dtype(np.float64)
    none = complex(np.inf, np.inf)

    @staticmethod
    def pack(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of scores and indices of one shape."""
        keys = np.empty(scores.shape, np.complex128)
        keys.real, keys.imag = -scores, index
        return keys

    @staticmethod
    def scores(keys: np.ndarray) -> np.ndarray:
        """The scores in the keys."""
        return -keys.real

    @staticmethod
    def index(keys: np.ndarray) -> np.ndarray:
        """The indices in the keys, int64."""
        return keys.imag.astype(np.int64)

    @staticmethod
    def with_index(keys: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keys of the same scores and other indices."""
        changed = keys.copy()
        changed.imag = index
        return changed


Keys = type[Float32Keys] | type[Float64Keys]


def _rising(bits: np.ndarray) -> np.ndarray:
    """The bits of float32 numbers as int32 that rise with them; applied twice it gives the bits back."""
    return bits ^ (bits >> 31 & np.int32(2**31 - 1))

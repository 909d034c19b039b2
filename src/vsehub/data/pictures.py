"""Picture files that read like one array of pixels: decoded when asked for, nothing kept."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from vsehub.checks import one_of, require, whole
from vsehub.data.crops import centre, corners_and_centre, random, resized
from vsehub.data.picture_file import read_part


class Pictures:
    """I pictures as an array of uint8 pixels: (I, 3, size, size), or (I, 10, 3, size, size) with ten crops.

    Indexed, a picture's shorter side is resized to `resize` and its middle size x size pixels are taken. Ten crops are
    the upper left, upper right, lower left and lower right corner and the centre, then their mirrors in that order.

    files: their paths. augments: whether training takes `augmented` pictures. threads: that decode at a time; None is
    one a core, at most 8. Holds no threads between reads: it can be pickled and forked. Raises InputError for sizes
    that are no whole numbers, `resize` below `size` and other crops than 1 and 10.
    """

    dtype = np.dtype(np.uint8)

    def __init__(
        self,
        files: Sequence[str],
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augments: bool = False,
        threads: int | None = None,
    ):
        whole("size", size)
        whole("resize", resize)
        require(resize >= size, f"resize is {resize}, below size, {size}: no crop of that size is left; raise resize")
        one_of("crops", crops, (1, 10))
        if threads is not None:
            whole("threads", threads)
        self.files, self.size, self.resize, self.crops, self.augments = list(files), size, resize, crops, augments
        self.threads = min(8, os.cpu_count() or 1) if threads is None else threads

    @property
    def shape(self) -> tuple[int, ...]:
        """(I, 3, size, size) or (I, 10, 3, size, size)."""
        return (len(self.files), *(() if self.crops == 1 else (self.crops,)), *self._one)

    @property
    def ndim(self) -> int:
        """4, or 5 with ten crops."""
        return len(self.shape)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One picture (3, size, size), or those of a slice or of row numbers (n, 3, size, size); with ten crops so too.

        Raises IndexError beyond the last row, InputError where a file cannot be decoded any more.
        """
        rows = np.arange(len(self))[index]
        pixels = np.empty((rows.size, *self.shape[1:]), np.uint8)
        self._fill(self._evaluated, list(zip(pixels, rows.flat, strict=True)))
        return pixels.reshape(*rows.shape, *self.shape[1:])

    def augmented(self, rows: np.ndarray, draws: np.ndarray, seed: Sequence[int]) -> np.ndarray:
        """Random crops as VSE++ trains with, half of them mirrored: (n, 3, size, size).

        rows, draws: (n,) integers; picture rows[i] is drawn by (*seed, draws[i]) and nothing else. Raises as indexing.
        """
        rows = np.arange(len(self))[rows]
        pixels = np.empty((len(rows), *self._one), np.uint8)
        keys = [(*seed, int(draw)) for draw in draws]
        self._fill(self._drawn, list(zip(pixels, rows, keys, strict=True)))
        return pixels

    @property
    def _one(self) -> tuple[int, int, int]:
        return 3, self.size, self.size

    def _fill(self, fill: Callable, calls: list[tuple]) -> None:
        """Call `fill` in threads of this call alone: threads that were kept would not live on in a forked process."""
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(fill, *zip(*calls, strict=True)):
                pass

    def _evaluated(self, pixels: np.ndarray, row: int) -> None:
        picture = read_part(self.files[row], lambda width, height: resized(width, height, self.resize)).transpose(
            2, 0, 1
        )
        starts = centre if self.crops == 1 else corners_and_centre
        crops = pixels.reshape(-1, *self._one)
        for crop, (left, top) in zip(crops, starts(*picture.shape[:0:-1], self.size), strict=False):
            crop[:] = picture[:, top : top + self.size, left : left + self.size]
        if self.crops == 10:
            crops[5:] = crops[:5, ..., ::-1]

    def _drawn(self, pixels: np.ndarray, row: int, key: tuple[int, ...]) -> None:
        rng = np.random.default_rng(key)
        mirrored = rng.random() < 0.5
        crop = read_part(self.files[row], lambda width, height: random(width, height, self.size, rng))
        pixels[:] = (crop[:, ::-1] if mirrored else crop).transpose(2, 0, 1)

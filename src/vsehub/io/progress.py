"""What one pass over much data keeps for its messages, shows while it runs, and makes ahead."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from tqdm import tqdm

_BIG_BYTES = 256 << 20  # from here a pass takes long enough for a progress bar
T = TypeVar("T")
_NAMED = 5  # rows named in a message; the rest are counted


class RowErrors:
    """The rows where something holds: the first few by number, all of them counted."""

    def __init__(self):
        self.count = 0
        self.named: list[int] = []

    def add(self, first: int, mask: np.ndarray) -> None:
        """Add the rows of a block that begins with row `first`: mask (b,), true where it holds."""
        rows = np.flatnonzero(mask)
        self.count += len(rows)
        self.named += (first + rows[: _NAMED - len(self.named)]).tolist()

    def __str__(self) -> str:
        return ", ".join(map(str, self.named)) + (f", ... ({self.count} in all)" if self.count > _NAMED else "")


def byte_bar(description: str, total: int, shown: bool = True) -> tqdm:
    """A progress bar over `total` bytes: seen where they are many, `shown` is true and there is a terminal."""
    quiet = None if shown and total >= _BIG_BYTES else True
    return tqdm(total=total, desc=description, unit="B", unit_scale=True, disable=quiet)


def ahead(items: Iterable[T], count: int = 1) -> Iterator[T]:
    """The same items in order, made in a thread, up to `count` of them before they are asked for."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        waiting: deque[Future] = deque(thread.submit(next, source, end) for _ in range(count))
        while waiting:
            waiting.append(thread.submit(next, source, end))
            item = waiting.popleft().result()
            if item is end:
                return
            yield item

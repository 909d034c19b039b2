"""Progress bars, lines for what begins, and iteration ahead of time in a thread."""

import logging
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NoReturn, TypeVar, cast

from tqdm import tqdm

T = TypeVar("T")
_BIG_BYTES = 256 << 20  # from here on reading takes long enough for a progress bar


def byte_bar(description: str, total: int, shown: bool = True) -> "tqdm[NoReturn]":
    """A progress bar over `total` bytes; hidden if they are few, if `shown` is false or without a terminal."""
    quiet = None if shown and total >= _BIG_BYTES else True
    return tqdm(total=total, desc=description, unit="B", unit_scale=True, disable=quiet)


def ahead(items: Iterable[T], count: int = 1) -> Iterator[T]:
    """The same items in order, produced in a thread, up to `count` of them ahead of their use."""
    source, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        waiting: deque[Future[T | object]] = deque(thread.submit(next, source, end) for _ in range(count))
        while waiting:
            waiting.append(thread.submit(next, source, end))
            item = waiting.popleft().result()
            if item is end:
                return
            yield cast(T, item)


def stage(log: logging.Logger, text: str) -> None:
    """A line for what begins, where no bar is seen since the output goes to a file or another program."""
    if not sys.stderr.isatty():
        log.info(text)

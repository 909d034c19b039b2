"""Progress bars, silence, and iteration ahead of time in a thread."""

import logging
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from tqdm import tqdm

T = TypeVar("T")
SECONDS = 0.5  # before a bar appears; shorter work shows none
_shown = False


def show() -> None:
    """Show progress bars of this process, on a terminal, from here on."""
    global _shown
    _shown = True


def bar(label: str, items: Iterable[T] | None = None, total: int | None = None, **style: Any) -> "tqdm[T]":
    """A progress bar over items, or over `total` steps that are reported by `update`.

    Shown after `show()`, on a terminal, once the work has taken `SECONDS`. style: further arguments of tqdm, such as
    unit.
    """
    # None: hidden without a terminal.
    return tqdm(items, label, total, leave=False, disable=None if _shown else True, delay=SECONDS, **style)


def prefetch(items: Iterable[T]) -> Iterator[T]:
    """The same items in order, each produced in a thread while the one before it is used."""
    source = iter(items)
    end = object()
    with ThreadPoolExecutor(1) as thread:
        waiting: Future[T | object] = thread.submit(next, source, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, source, end)
            yield cast(T, item)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings and log messages of a library within the block, where these do not concern the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(before)

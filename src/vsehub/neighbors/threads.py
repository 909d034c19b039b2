"""Work in several threads, each of which computes its parts alone.

Where operators of torch divide each operation among threads, these wait for each other after each, and the steps
between run in one. Parts of the work in threads that torch leaves undivided scale with the cores.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

# (call, parts) -> what the call gives for each part, in order
Each = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]


@contextmanager
def in_threads(count: int) -> Iterator[Each]:
    """Calls for each of some parts, in so many threads, in which torch computes in one; within the block.

    count: below 2, the calls are made here, in turn. Meanwhile torch computes in one thread here too, and in threads
    of others whose first operation falls into the block.
    """
    if count < 2:
        yield lambda call, parts: list(map(call, parts))
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # A thread of its own takes torch's number of threads when it first asks for it.
        with ThreadPoolExecutor(count, "search", initializer=torch.get_num_threads) as pool:
            yield lambda call, parts: list(pool.map(call, parts))
    finally:
        torch.set_num_threads(before)

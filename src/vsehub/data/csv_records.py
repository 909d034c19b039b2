"""The csv module without its limit of 131,072 characters a field."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager

_MOST = 2**31 - 1  # what the module's own counter holds on every platform


@contextmanager
def long_fields() -> Iterator[None]:
    """Within the block the csv module reads fields of any length; the limit of the process is restored after it."""
    before = csv.field_size_limit(_MOST)
    try:
        yield
    finally:
        csv.field_size_limit(before)

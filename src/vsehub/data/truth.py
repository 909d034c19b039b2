"""Which item answers which query, and the ids and captions that name them, from people's own files."""

from pathlib import Path

import torch
from torch import Tensor

from vsehub.checks import InputError, existing, require
from vsehub.data.pair_table import PairTable
from vsehub.data.text_lines import read_lines


def read_ids(path: str | Path, name: str = "ids") -> list[str]:
    """The ids in a UTF-8 text file, one a line; InputError where one comes twice or a line is empty."""
    ids = read_lines(existing(name, path, "Give a text file with one id a line"), "id")
    distinct_ids(str(path), ids)
    return ids


def read_labels(path: str | Path, name: str = "labels") -> list[str]:
    """The captions, or other texts to show, in a UTF-8 text file, one a line; any may come again."""
    return read_lines(existing(name, path, "Give a text file with one caption a line"), "caption")


def distinct_ids(name: str, ids: list[str]) -> None:
    """InputError where an id comes twice in `ids`, called `name` in the message, naming where."""
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for place, one in enumerate(ids):
        if one in seen:
            raise InputError(
                f"{name}: {one!r} comes twice, as number {seen[one]} and {place}, counted from 0 "
                f"({len(ids) - len(set(ids))} repeats in all); expected each id once"
            )
        seen[one] = place


def read_truth(
    path: str | Path,
    queries: int,
    items: int,
    query_ids: list[str] | None = None,
    item_ids: list[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """The pairs of a table with the columns query and item: query (P,), item (P,), int64 row numbers, in its order.

    path: a .csv (UTF-8, with a header, columns in any order, others ignored) or .parquet. An entry is an id where the
    side has ids, a row number counted from 0 else. A query may have any number of items, none as well. InputError
    naming the lines where an id is unknown, a row number out of range, or a pair comes twice.
    """
    sides = {"query": ("queries", queries, query_ids), "item": ("items", items, item_ids)}
    for name, count, ids in sides.values():
        if ids is not None:
            require(len(ids) == count, f"{name}: {len(ids)} ids for {count} rows; expected one a row")
            distinct_ids(f"the ids of the {name}", ids)
    table = PairTable(existing("truth", path, "Give a table of pairs with the columns query and item"))
    query, item = (table.rows(column, *side) for column, side in sides.items())
    pairs = query * items + item
    ordered = pairs.sort().values
    if (ordered[1:] == ordered[:-1]).any():
        ordered, order = pairs.sort(stable=True)
        repeats = torch.zeros(len(pairs), dtype=torch.bool)
        repeats[order[1:]] = ordered[1:] == ordered[:-1]
        table.refuse(repeats.numpy(), "repeat a pair that came before", "Leave each pair in once")
    return query, item

"""Pairs of queries and the items that answer them, ids and labels, from the user's files."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import existing, require
from vsehub.data.tables import as_ids, read_table, refuse_rows
from vsehub.io.rows import listed
from vsehub.io.text import read_lines

COLUMNS = ("query", "item")
_DIGITS = 18  # of a row number, so that it fits into 64 bits


def read_pairs(
    path: Path,
    queries: int,
    items: int,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a table, in its order: row numbers (P,) int64 of the queries and of the items.

    path: a .csv, .tsv, .jsonl or .parquet with the columns query and item, or with two columns, in that order. An entry
    is an id if the side has ids, else a row number counted from 0. Raises InputError for other entries.
    """
    table = read_table(path, (), COLUMNS)
    sides = (queries, query_ids), (items, item_ids)
    if len(table) < len(COLUMNS):
        table = read_table(path)
        named = [_row_numbers(path, [name], *side)[0] < 0 for name, side in zip(table, sides, strict=False)]
        require(
            len(table) == len(COLUMNS) and any(named),
            f"{path}: expected the columns query and item, or two columns with names; it has {listed(list(table))}",
        )
    entries = [table[name] for name in (COLUMNS if set(COLUMNS) <= set(table) else table)]
    found = []
    for name, column, (count, ids) in zip(COLUMNS, entries, sides, strict=True):
        require(len(column) > 0, f"{path} has no pairs")
        rows = _row_numbers(path, column, count, ids)
        if (rows < 0).any():
            known = f"a row number below {count} (no ids are given)" if ids is None else f"one of {count} ids"
            refuse_rows(path, rows < 0, f"{name} is not {known}", column)
        found.append(rows)
    return found[0], found[1]


def _row_numbers(path: Path, entries: Sequence[Any], count: int, ids: Sequence[str] | None) -> np.ndarray:
    """The rows that entries name, -1 for others."""
    names = as_ids(path, entries)
    if ids is None:
        plain = [name.isascii() and name.isdigit() and len(name) <= _DIGITS for name in names]
        rows = [int(name) if own else -1 for name, own in zip(names, plain, strict=True)]
    else:
        known = {one: row for row, one in enumerate(ids)}
        rows = [known.get(name, -1) for name in names]
    found = np.array(rows, np.int64)
    return np.where(found < count, found, -1)


def read_ids(path: str | Path, name: str = "ids") -> list[str]:
    """The ids in a UTF-8 text file, one per line. Raises InputError if one comes twice or a line is empty."""
    ids = read_lines(existing(name, path, "Give a text file with one id per line"), "id")
    distinct_ids(str(path), ids)
    return ids


def read_labels(path: str | Path, name: str = "labels") -> list[str]:
    """The captions, or other texts to show, in a UTF-8 text file, one per line; any may be repeated."""
    return read_lines(existing(name, path, "Give a text file with one caption per line"), "caption")


def distinct_ids(name: str, ids: Sequence[str]) -> None:
    """Raise InputError for an id that is repeated in `ids`. name: the name of the ids in the message."""
    repeated = [repr(one) for one, count in Counter(ids).items() if count > 1] if len(set(ids)) < len(ids) else []
    require(not repeated, f"{name}: {listed(repeated)} comes twice; expected each id once")


def read_truth(
    path: str | Path,
    queries: int,
    items: int,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """The pairs of a table: query (P,) and item (P,), int64 row numbers; see `read_pairs`.

    A query may have any number of items, or none. queries, items: the number of rows of each side. Raises InputError
    for unknown ids, row numbers out of range, and repeated pairs.
    """
    for side, ids in (("queries", query_ids), ("items", item_ids)):
        distinct_ids(f"the ids of the {side}", ids or ())
    path = existing("truth", path, "Give a table of pairs with the columns query and item")
    query, item = read_pairs(path, queries, items, query_ids, item_ids)
    repeated = len(query) - len(np.unique(query * items + item))
    require(repeated == 0, f"truth: {path} holds {repeated} pairs more than once; keep each pair once")
    return torch.from_numpy(query), torch.from_numpy(item)


def connected(queries: np.ndarray, items: np.ndarray, query_count: int, item_count: int) -> np.ndarray:
    """The group of each query, (query_count,) numbers: queries that share items, directly or through others, have one.

    queries, items: (P,) positions of pairs, in any order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = queries, query_count + items
    graph = coo_array((np.ones(len(queries), bool), ends), shape=(query_count + item_count,) * 2)
    groups: np.ndarray = connected_components(graph, directed=False)[1]
    return groups[:query_count]

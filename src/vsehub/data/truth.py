"""Pairs of queries and the items that answer them, ids and labels, from the user's files.

Only `read_truth` imports torch.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsehub.checks import existing, fail, require
from vsehub.data.tables import entry_texts, read_table
from vsehub.io.arrays import listed, readable
from vsehub.io.text import read_lines

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

ALIGNED = "aligned"  # instead of a table: query i answers item i
COLUMNS = ("query", "item")
BEIR = ("query-id", "corpus-id", "score")


def read_pairs(
    path: Path,
    queries: int,
    items: int,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The pairs of a table, in its order: row numbers (P,) int64 of the queries and of the items.

    path: a .csv, .tsv, .jsonl or .parquet with the columns query and item, or two columns in this order; or BEIR's
    qrels (query-id, corpus-id, score), or TREC's (a .txt or .qrels of lines "query 0 item score"), whose pairs count if
    the score is above 0. An entry is an id if the side has ids, else a row number counted from 0. Pairs with an unknown
    id are skipped with a warning. Raises InputError for other row numbers, and if no pairs are left.
    """
    table = pair_table(path)
    names, columns = list(table), list(table.values())
    query_rows, item_rows = rows_by_text(queries, query_ids), rows_by_text(items, item_ids)
    query = find_rows(path, "query", columns[0], query_rows, query_ids is None)
    item = find_rows(path, "item", columns[1], item_rows, item_ids is None)
    require(
        names[0] not in query_rows or names[1] not in item_rows,
        f"{path}: the first line is a pair; begin with the names of the columns: query,item",
    )
    pairs = np.stack([query, item])
    if len(columns) > len(COLUMNS):
        with readable(path, TypeError):
            pairs = pairs[:, np.array(columns[2], float) > 0]
    known: np.ndarray = np.all(pairs >= 0, axis=0)
    require(bool(known.any()), f"{path} has no pairs of these queries and items; {len(known)} have unknown ids")
    if not known.all():
        log.warning("%s: %d of %d pairs are skipped, since an id is unknown", path, (~known).sum(), len(known))
    query, item = pairs[:, known]
    return query, item


def rows_by_text(count: int, ids: Sequence[str] | None) -> dict[str, int]:
    """The row of each id or, without ids, of each row number as text."""
    return {text: row for row, text in enumerate(map(str, range(count)) if ids is None else ids)}


def find_rows(path: Path, column: str, entries: Sequence[Any], rows: Mapping[str, int], numbered: bool) -> np.ndarray:
    """The rows (P,) of a column's entries, -1 for an unknown id. Raises InputError for an unknown row if `numbered`."""
    row_numbers = np.array([rows.get(text, -1) for text in entry_texts(path, entries)], np.int64)
    if numbered and (row_numbers < 0).any():
        wrong = listed([f"{entries[row]!r} in row {row}" for row in np.flatnonzero(row_numbers < 0).tolist()])
        fail(f"{path}: {column} is not a row number below {len(rows)} (no ids are given): {wrong}, counted from 0")
    return row_numbers


def pair_table(path: Path) -> dict[str, list[Any]]:
    """The entries of a table of pairs, see `read_pairs`: queries, items and, in BEIR's and TREC's layouts, scores."""
    if path.suffix in (".txt", ".qrels"):
        rows = [line.split() for line in read_lines(path, "pair")]
        odd = next((number for number, row in enumerate(rows, 1) if len(row) != 4), None)
        require(
            odd is None,
            f'{path}:{odd}: expected TREC\'s qrels, "query 0 item score" on each line; write other pairs to a .csv',
        )
        queries, _, items, scores = map(list, zip(*rows, strict=True))
        return dict(zip(BEIR, (queries, items, scores), strict=True))
    return read_table(path, partial(_columns, path))


def _columns(path: Path, names: list[str]) -> Sequence[str]:
    """The columns of the queries, of the items and, in BEIR's layout, of the scores; or the only two, in this order."""
    for layout in (COLUMNS, BEIR):
        if set(layout) <= set(names):
            return layout
    require(
        len(names) == len(COLUMNS) and names[0] != names[1],
        f"{path}: the first line must hold the names of the columns, query,item; it is {listed(names) or 'empty'}",
    )
    return names


def read_ids(path: str | Path, name: str = "ids") -> list[str]:
    """The ids in a UTF-8 text file, one per line. Raises InputError if one comes twice or a line is empty."""
    ids = read_lines(existing(name, path, "Give a text file with one id per line"), "id")
    require_distinct_ids(str(path), ids)
    return ids


def read_labels(path: str | Path, name: str = "labels") -> list[str]:
    """The captions, or other texts to show, in a UTF-8 text file, one per line; any may be repeated."""
    return read_lines(existing(name, path, "Give a text file with one caption per line"), "caption")


def require_distinct_ids(name: str, ids: Sequence[str]) -> None:
    """Raise InputError for an id that is repeated in `ids`. name: the name of the ids in the message."""
    repeated = [repr(text) for text, count in Counter(ids).items() if count > 1] if len(set(ids)) < len(ids) else []
    require(not repeated, f"{name}: {listed(repeated)} comes twice; expected each id once")


def read_truth(
    path: str | Path,
    queries: int,
    items: int,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> "tuple[Tensor, Tensor]":
    """The pairs of a table: query (P,) and item (P,), int64 row numbers; see `read_pairs`.

    path: the table, or "aligned": query i and item i are a pair, whatever their ids. A query may have any number of
    items, also zero. queries, items: the number of rows of each side. Raises InputError for unequal numbers of aligned
    rows, row numbers out of range, and repeated pairs.
    """
    for side, ids in (("queries", query_ids), ("items", item_ids)):
        require_distinct_ids(f"the ids of the {side}", ids or ())

    import torch

    if str(path) == ALIGNED:
        require(queries == items, f"truth=aligned: there are {queries} queries but {items} items")
        return torch.arange(queries), torch.arange(items)
    path = existing("truth", path, "Give a table of pairs with the columns query and item, or truth=aligned")
    query, item = read_pairs(path, queries, items, query_ids, item_ids)
    repeated = len(query) - len(np.unique(query * items + item))
    require(repeated == 0, f"truth: {path} holds {repeated} pairs more than once; keep each pair once")
    return torch.from_numpy(query), torch.from_numpy(item)


def connected_groups(queries: np.ndarray, items: np.ndarray, query_count: int, item_count: int) -> np.ndarray:
    """The number (query_count,) of each query's group: queries that share items, also through others, are in one group.

    queries, items: (P,) positions of pairs, in any order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = queries, query_count + items
    graph = coo_array((np.ones(len(queries), bool), ends), shape=(query_count + item_count,) * 2)
    return connected_components(graph, directed=False)[1][:query_count]

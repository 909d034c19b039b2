"""Greedy matching of queries and items, from lists of each query's best items that are looked up as far as needed."""

from collections.abc import Iterator

import numpy as np
import torch

from vsehub.checks import require
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import widened
from vsehub.neighbors.topk import top_k

LISTED = 32  # items of a list beyond those that a query wants
MOST_LISTED = 2**20  # pairs of all lists, unless the shortest lists have more
FETCHED_ELEMENTS = 2**23  # 32 MB of float32 scores at a time, more only where 64 rows have more
LEAST_FETCHED = 64


def accepted_pairs(rows: RowsOf, queries: int, items: int, wanted: int, places: int) -> Iterator[tuple[int, int]]:
    """(query, item) pairs, best first, of queries that want more items and items that may be accepted.

    Ties: the lower query, then the lower item. rows: whole rows of scores (b, M) on demand. wanted: items of a query;
    places: queries of an item. Once a pair behind the end of a list may be the best, longer lists are made of the items
    that may still be accepted. Raises InputError for NaN or inf.
    """
    wishes, free = [wanted] * queries, [places] * items
    accepted: list[list[int]] = [[] for _ in range(queries)]
    length, complete = wanted + LISTED, False
    while not complete:
        waiting, free_items = np.flatnonzero(wishes), np.flatnonzero(free)
        if not len(waiting) or not len(free_items):
            return
        lists = []
        for block in torch.from_numpy(waiting).split(max(FETCHED_ELEMENTS // items, LEAST_FETCHED)):
            scores = widened(rows(block))
            require(bool(scores.amax() < torch.inf), "scores hold NaN or inf; look for NaN or infinite embeddings")
            if len(free_items) < items:
                scores = scores.index_select(1, torch.from_numpy(free_items).to(scores.device))
            values, columns = (part.cpu().numpy() for part in top_k(scores, length))
            lists.append((values, free_items[columns]))
        values, listed = (np.concatenate(part) for part in zip(*lists, strict=True))
        is_end = np.zeros(values.shape, bool)
        is_end[:, -1] = values.shape[1] < len(free_items)
        row, column = np.nonzero(values > -np.inf)  # pairs of score -inf never match
        order = np.lexsort((listed[row, column], row, -values[row, column]))
        row, column = row[order], column[order]
        pairs = waiting[row].tolist(), listed[row, column].tolist(), is_end[row, column].tolist()
        complete = True
        for query, item, end in zip(*pairs, strict=True):
            if wishes[query] and free[item] and item not in accepted[query]:
                wishes[query] -= 1
                free[item] -= 1
                accepted[query].append(item)
                yield query, item
            if end and wishes[query]:
                complete = False
                break
        length = max(wanted + LISTED, min(2 * length, MOST_LISTED // len(waiting)))

"""Result lists without vectors, such as a search log or a TREC run, measured as the rankings of a comparison."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.data.tables import TABLE_SUFFIXES, entry_texts, read_table
from vsehub.data.truth import ALIGNED, pair_table, read_ids, read_truth
from vsehub.io.arrays import listed, readable
from vsehub.io.text import read_lines
from vsehub.metrics.occurrences import KS, ItemCounts, histogram, occurrence_metrics
from vsehub.metrics.ranks import RECALLS
from vsehub.neighbors.vectors import UnitVectors
from vsehub.positives import Positives
from vsehub.ranking.inputs import Inputs, Names, Sides, read_names
from vsehub.ranking.measure import Measured, Ranked, changes, ks_within
from vsehub.ranking.record import Comparison, make_comparison

COLUMNS = ("query", "item", "rank")
FILES = ("ranking", "against")


class Entries(NamedTuple):
    """The n entries of result lists in any order: names of queries and of items, and ranks (n,)."""

    path: Path
    queries: list[str]
    items: list[str]
    ranks: np.ndarray


def compare_lists(settings: Mapping[str, Any], k: int, seed: int = 0) -> Comparison:
    """The measured lists of one file, or of two files for the queries that are in both.

    settings: "ranking", a table with the columns query, item and rank, or a TREC run; perhaps "against", another;
    "items", the number of items or a text file of their ids; "truth", "item_labels" and "item_images". Lists are cut
    after the larger of k and 10. Without a file of ids, items that only `truth` names count too; truth="aligned": a
    query is answered by the item whose name is the same number. Raises InputError if a file cannot be read, a query has
    two items of one rank or an item twice, there are more items than `items` says, or aligned names are not row
    numbers.
    """
    began = time.perf_counter()
    whole("k", k)
    files = [read_entries(Path(settings[name])) for name in FILES if name in settings]
    common = set.intersection(*(set(file.queries) for file in files))
    queries = [name for name in dict.fromkeys(files[0].queries) if name in common]
    require(bool(queries), f"against: {files[-1].path} has none of the queries of {files[0].path}")
    count_or_ids, truth = settings.get("items"), settings.get("truth")
    ids = read_ids(count_or_ids, "items") if isinstance(count_or_ids, str) else []
    answers = queries if truth == ALIGNED else []
    if not (ids or truth in (None, ALIGNED)):
        _, answer_names, *_ = pair_table(Path(truth)).values()  # in BEIR's layout with scores
        answers = entry_texts(Path(truth), answer_names)
    names = list(dict.fromkeys(chain(ids, *(file.items for file in files), answers)))
    names_are_numbers = not ids and all(map(str.isdecimal, names))
    require(
        names_are_numbers or truth != ALIGNED,
        "truth=aligned: expected lists whose queries and items are row numbers; with ids, give a table of pairs, "
        "truth=FILE",
    )
    items = whole("items", count_or_ids) if isinstance(count_or_ids, int) else len(ids or names)
    require(len(names) <= items, f"items: {items:,} are expected, {len(names):,} are named: {listed(names[items:])}")
    names_are_rows = count_or_ids is not None and names_are_numbers and max(map(int, names)) < items
    rows = {name: int(name) if names_are_rows else row for row, name in enumerate(names)}

    # Items without a name are only counted.
    named_items = UnitVectors(items if names_are_rows else len(names))
    item_names = replace(read_names("items", named_items, settings), ids=None if names_are_rows else names)
    sides = Sides(UnitVectors(len(queries)), UnitVectors(items))
    if truth is not None:
        if truth == ALIGNED:
            pairs = torch.arange(len(queries)), torch.tensor([rows[name] for name in queries])
        else:
            pairs = read_truth(truth, len(queries), items, queries, item_names.ids)
        sides = replace(sides, positives=Positives.from_pairs(*pairs, len(queries), items, complete=False))
    inputs = Inputs(sides, Names("queries", len(queries), queries), item_names, settings=settings)
    if count_or_ids is None:
        inputs.warn(f"items: without their number only the {items:,} that a list or truth names are counted")
    return _compare_files(inputs, files, queries, rows, k, seed, began)


def _compare_files(
    inputs: Inputs,
    files: Sequence[Entries],
    queries: Sequence[str],
    rows: Mapping[str, int],
    k: int,
    seed: int,
    began: float,
) -> Comparison:
    """The comparison of opened lists. queries: names of the queries in all files. rows: name of an item -> its row."""
    sides = inputs.sides
    lists = [list_rows(file, queries, rows, max(k, *KS)) for file in files]
    width = max(int((positions >= 0).any(dim=0).sum()) for positions in lists)
    ks, k = ks_within(min(width, len(sides.items))), min(k, width)
    rankings = []
    for file, positions in zip(files, lists, strict=True):
        if others := len({*file.queries} - {*queries}):
            inputs.warn(f"{file.path}: {others:,} queries are left out, since the other file has no list for them")
        if short := int((positions[:, ks[-1] - 1] < 0).sum()):
            inputs.warn(f"{file.path}: {short:,} of {len(queries):,} lists have fewer than {ks[-1]} items")
        rankings.append(measure_lists(str(file.path), positions[:, :width], lists[0][:, :k], sides, ks))
    seconds = {"reading and measuring": time.perf_counter() - began}
    comparison = make_comparison("diagnose", inputs, Measured(rankings, ks, seconds), {}, k, seed, began=began)
    for name, file in zip(FILES, files, strict=False):
        path = str(file.path)
        comparison.record[name] = {"path": path, "rows": len(queries), "columns": width, "dtype": "ranks"}
    return comparison


def read_entries(path: Path) -> Entries:
    """The entries of a table with the columns query, item and rank, or of a TREC run (query Q0 item rank score tag)."""
    if path.suffix.lower() in TABLE_SUFFIXES:
        table = read_table(path, lambda names: COLUMNS)
    else:
        with readable(path, kind="a TREC run, nor as a table"):
            columns = map(list, zip(*(line.split() for line in read_lines(path, "result")), strict=True))
            table = dict(zip(("query", "Q0", "item", "rank", "score", "tag"), columns, strict=True))
    queries, items = (entry_texts(path, table[name]) for name in COLUMNS[:2])
    with readable(path, TypeError):
        ranks = np.array(table["rank"], float)
    complete = all(queries) and all(items) and np.isfinite(ranks).all()
    require(len(ranks) > 0 and complete, f"{path}: expected a query, an item and a rank in each row")
    return Entries(path, queries, items, ranks)


def list_rows(entries: Entries, queries: Sequence[str], items: Mapping[str, int], depth: int) -> Tensor:
    """The rows (Q, depth) of the items in the list of each query, by rank, -1 behind the end of a list."""
    numbers = {name: row for row, name in enumerate(queries)}
    query = np.array([numbers.get(name, -1) for name in entries.queries])
    item = np.array([items[name] for name in entries.items])
    for values, fault in ((entries.ranks, "two items of one rank"), (item, "an item twice")):
        order = np.lexsort((values, query))
        same = (np.diff(query[order]) == 0) & (np.diff(values[order]) == 0) & (query[order][1:] >= 0)
        names = dict.fromkeys(queries[row] for row in query[order][1:][same].tolist())
        require(not names, f"{entries.path}: the lists of these queries have {fault}: {listed([*names])}")
    order = np.lexsort((entries.ranks, query))
    query, item = query[order], item[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    inside = (rank < depth) & (query >= 0)
    lists = torch.full((len(queries), depth), -1)
    lists[query[inside], rank[inside]] = torch.from_numpy(item[inside])
    return lists


def measure_lists(name: str, lists: Tensor, plain: Tensor, sides: Sides, ks: Sequence[int]) -> Ranked:
    """The measurements of lists (Q, n), -1 behind their ends. plain: the lists (Q, k) that they are compared with."""
    items, positives = len(sides.items), sides.positives
    wrong: dict[int, ItemCounts] | None = None
    truth: dict[str, float | None] | None = None
    counts = {k: ItemCounts.from_lists(items, lists[:, :k][lists[:, :k] >= 0]) for k in ks}
    if positives is not None:
        hits = positives.hits(lists.clamp(min=0)) & (lists >= 0)
        judged = (lists >= 0) & (positives.counts > 0)[:, None]
        wrong = {k: ItemCounts.from_lists(items, lists[:, :k][(judged & ~hits)[:, :k]]) for k in ks}
        recalls = 100.0 * hits[positives.counts > 0].cumsum(dim=1).clamp(max=1).double().mean(dim=0)
        truth = {f"r{k}": recalls[k - 1].item() if k <= len(recalls) else None for k in RECALLS}
    hubness = occurrence_metrics(counts, wrong)
    if wrong is not None:
        # Slots of queries without a known answer are not judged.
        hubness |= {f"bad_share_{k}": (wrong[k].amounts.sum() / judged[:, :k].sum()).item() for k in ks}
    return Ranked(
        name=name,
        values=torch.zeros(0),
        positions=lists[:, : plain.shape[1]],
        first_items=lists[:, :1],
        hubness=hubness,
        histograms={str(k): histogram(count) for k, count in counts.items()},
        truth=truth,
        changed=changes(plain, lists[:, : plain.shape[1]], lists[:, :1]),
        occurrences=counts[ks[-1]],
        wrong=None if wrong is None else wrong[ks[-1]],
        item_terms=(),
    )

"""Cases of metrics: ranks, recalls, relevance, k-occurrences and their figures, against the oracles."""

import itertools

import numpy as np
import oracles
import torch
from drawing import SHARES, TYPES, check, describe, exact, matrix, refused, scaled, size, spoilt, tensor
from torch import Tensor

from vsehub import positives
from vsehub.checks import InputError
from vsehub.metrics import count_occurrences, occurrences, ranks


def scores_of_metrics(random: np.random.Generator, rows: int, columns: int, bad: float) -> Tensor:
    """Scores of any type and scale."""
    dtype = TYPES[random.choice(4, p=SHARES)]
    return tensor(random, spoilt(random, scaled(random, matrix(random, rows, columns, False), dtype), bad), dtype)


def mask_of(random: np.random.Generator, rows: int, columns: int, complete: bool) -> np.ndarray:
    """Which items answer which query; complete: every row and column has one."""
    mask = random.random((rows, columns)) < random.choice([0.1, 0.3, 0.7, 1.0])
    mask[random.integers(rows), random.integers(columns)] = True
    if complete:
        mask[np.arange(rows), random.integers(columns, size=rows)] = True
        mask[random.integers(rows, size=columns), np.arange(columns)] = True
    return mask


def sets(mask: np.ndarray) -> list[set[int]]:
    """The items of each query."""
    return [set(np.flatnonzero(row).tolist()) for row in mask]


def close(figures: dict[str, float], wanted: dict[str, float], described: str) -> None:
    """That figures are the oracle's, all of them."""
    check(figures.keys() == wanted.keys(), f"{described}: keys {sorted(figures.keys() ^ wanted.keys())}")
    far = {
        key: (figures[key], wanted[key])
        for key in wanted
        if not abs(figures[key] - wanted[key]) <= 1e-8 * (1 + abs(wanted[key]))
    }
    check(not far, f"{described}: (found, oracle's) {far}")


def over(bad: bool, error: InputError | None, described: str) -> bool:
    """Whether the input is bad, and so the case over; it is refused then, and only then."""
    check(bool(error) == bool(bad), "{}: refused: {}, bad: {}", described, error, bad)
    return bad


def case_of_hubness(random: np.random.Generator) -> None:
    """`hubness`: N_k of both directions and all figures of them."""
    scores = scores_of_metrics(random, size(random), size(random), 0.15)
    ks = tuple(random.choice([1, 2, 5, 10, 100], size=random.integers(0, 4), replace=False).tolist())
    mask = mask_of(random, *scores.shape, True) if random.random() < 0.5 else None
    s, described = exact(scores), f"hubness {describe(scores)} ks {ks}"
    truth = None if mask is None else torch.from_numpy(mask)
    result, error = refused(lambda: occurrences.hubness(scores, ks, truth))
    if over(np.isnan(s).any(), error, described):
        return
    counted = occurrences.k_occurrences(scores, ks)
    wanted = {}
    for direction, matrix_, marks in (("i2t", s, mask), ("t2i", s.T, None if mask is None else mask.T)):
        lists, items = [oracles.order(row) for row in matrix_.tolist()], matrix_.shape[1]
        for k in ks:
            counts = oracles.occurrences(lists, items, k)
            check(direction == "t2i" or counted[k].tolist() == counts, f"{described}: N_{k}")
            figures = oracles.occurrence_figures(counts, k)
            if marks is not None:
                bad = oracles.bad_occurrences(lists, items, k, sets(marks))
                figures |= oracles.bad_figures(bad, k, sum(counts))
            wanted |= {f"{direction}/{key}": value for key, value in figures.items()}
    wanted["hs_sum"] = sum(value for key, value in wanted.items() if "/skew_" in key)
    close(result, wanted, described)


def case_of_ranking(random: np.random.Generator) -> None:
    """`ranks`: rank_blocks, queries without a positive among them."""
    queries, items = size(random), size(random) if random.random() < 0.9 else int(random.integers(300, 900))
    scores = scores_of_metrics(random, queries, items, 0.15)
    mask = mask_of(random, queries, items, False)
    s, described, mine = exact(scores), f"rank_blocks {describe(scores)}", sets(mask)
    query, item = (torch.from_numpy(side) for side in mask.nonzero())
    shuffled = torch.from_numpy(random.permutation(len(query)))
    pairs = positives.Positives.from_pairs(query[shuffled], item[shuffled], queries, items, complete=False)
    check(pairs.counts.tolist() == [len(right) for right in mine], f"{described}: counts of positives")
    ks = ((), (1,), (1, 5, 10), (3, 200))[random.integers(4)]
    cuts = [0, *sorted(random.integers(0, queries + 1, size=2).tolist()), queries]
    blocks = [(a, scores[a:b]) for a, b in itertools.pairwise(cuts) if a < b]
    ranking, error = refused(lambda: ranks.rank_blocks(blocks, pairs, ks))
    if over(np.isnan(s).any(), error, described):
        return
    wanted = [oracles.rank(row, right) for row, right in zip(s.tolist(), mine, strict=True)]
    check(ranking.ranks.tolist() == wanted, "{}: ranks {} are not {}", described, ranking.ranks.tolist(), wanted)
    lists = [oracles.order(row) for row in s.tolist()]
    for k in ks:
        counts = oracles.occurrences(lists, items, k), oracles.bad_occurrences(lists, items, k, mine)
        check(ranking.occurrences[k].tolist() == counts[0], f"{described}: N_{k}")
        check(ranking.bad[k].tolist() == counts[1], f"{described}: BN_{k}")
    close(ranks.rank_metrics(ranking), oracles.recall_figures(s.tolist(), mine), described)


def case_of_recall(random: np.random.Generator) -> None:
    """`recall`: both directions of a matrix."""
    scores = scores_of_metrics(random, size(random), size(random), 0.15)
    mask = mask_of(random, *scores.shape, random.random() < 0.9)
    s, described = exact(scores), f"recall_metrics {describe(scores)}"
    result, error = refused(lambda: ranks.recall_metrics(scores, torch.from_numpy(mask)))
    if over(np.isnan(s).any() or not (mask.any(axis=0).all() and mask.any(axis=1).all()), error, described):
        return
    wanted = {}
    for direction, matrix_, marks in (("i2t", s, mask), ("t2i", s.T, mask.T)):
        figures = oracles.recall_figures(matrix_.tolist(), sets(marks))
        wanted |= {f"{direction}/{key}": value for key, value in figures.items()}
    wanted["rsum"] = sum(wanted[f"{direction}/r{k}"] for direction in ("i2t", "t2i") for k in (1, 5, 10))
    close(result, wanted, described)


def case_of_lists(random: np.random.Generator) -> None:
    """Occurrences and hits of lists of positions."""
    queries, items = size(random), size(random)
    depth = int(random.integers(1, items + 1))
    lists = np.stack([random.permutation(items)[:depth] for _ in range(queries)])
    mask = mask_of(random, queries, items, False)
    mine, described = sets(mask), f"lists ({queries}, {depth}) of {items} items"
    spoil = random.random()
    if spoil < 0.05:
        lists[random.integers(queries), random.integers(depth)] = random.choice([-1, items, 2**40])
    elif spoil < 0.1 and depth > 1:
        lists[random.integers(queries), :2] = random.integers(items)
    pairs = positives.Positives.from_pairs(*(torch.from_numpy(side) for side in mask.nonzero()), queries, items, False)
    ks = tuple(random.choice([1, 2, 5, 10, 100], size=random.integers(0, 3), replace=False).tolist())
    positions = (
        torch.from_numpy(lists).to((torch.int64, torch.int64, torch.int32)[random.integers(3)])
        if spoil > 0.1
        else torch.from_numpy(lists)
    )
    counted, error = refused(lambda: count_occurrences(positions, items, ks, pairs))
    needed = lists[:, : min(max(ks, default=0), items)]  # further positions are not looked at
    if over(needed.shape[1] < min(max(ks, default=0), items) or (needed % items != needed).any(), error, described):
        return
    if spoil > 0.1:
        for k in ks:
            check(
                counted.counts[k].dense().tolist() == oracles.occurrences(lists.tolist(), items, k),
                f"N_{k} of {described}",
            )
            check(
                counted.bad[k].dense().tolist() == oracles.bad_occurrences(lists.tolist(), items, k, mine),
                f"BN_{k} of {described}",
            )
        hits = pairs.hits(positions).tolist()
        check(hits == [[m in right for m in row] for row, right in zip(lists.tolist(), mine, strict=True)], described)


def case_of_counts(random: np.random.Generator) -> None:
    """`occurrences`: figures of given N_k."""
    items, k = size(random), int(random.choice([1, 5, 10]))
    most = random.choice([1, 2, 5, 50, 10**6, 10**9])
    counts = random.integers(0, most, size=items) * (random.random(items) < random.choice([0.3, 1]))
    tensor_of, described = torch.from_numpy(counts), f"N_{k} {counts.tolist()}"
    one_by_one = {
        f"skew_{k}": occurrences.skewness,
        f"gini_{k}": occurrences.gini,
        f"atkinson_{k}": occurrences.atkinson,
    }
    if random.random() < 0.15:
        tensor_of = tensor_of.to(TYPES[random.integers(2)])
        tensor_of[random.integers(items)] = float(random.choice([np.nan, np.inf, -np.inf, -1]))
        for name, figure in one_by_one.items():
            value, error = refused(lambda figure=figure: figure(tensor_of))
            check(error, f"{name} of {tensor_of.tolist()} is {value}: it is not refused")
        return
    wanted = oracles.occurrence_figures(counts.tolist(), k)
    close(occurrences.occurrence_metrics({k: tensor_of}), wanted, described)
    figures = {key: figure(tensor_of) for key, figure in one_by_one.items()}
    close(figures, {key: wanted[key] for key in one_by_one}, described)
    drawn = occurrences.histogram(tensor_of)
    there = sorted(set(counts.tolist()))
    check(drawn["occurrences"] == there, f"histogram of {described}")
    check(drawn["items"] == [counts.tolist().count(n) for n in there], f"histogram of {described}")


METRICS = (case_of_hubness, case_of_ranking, case_of_recall, case_of_lists, case_of_counts)

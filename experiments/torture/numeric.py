"""Random nasty cases through every criterion and every metric, against naive oracles.

A case is one small random matrix (ties, copies of rows and columns, NaN, infinities, numbers from denormal to 1e30 and
beyond, one query, one item, k above what there is, all number types) and one criterion or one metric. The answer has to
be the oracle's, to rounding, or an InputError that the input deserves. Anything else is wrong: another answer, another
exception, an InputError about good input, more than SECONDS_A_CASE.

Criteria are those of conf/criterion: a new one is tortured without a line here. Where `oracles.FORMULAS` lacks its
formula, its search is held against its own dense form only, and the command says so.

    python experiments/torture/numeric.py --cases 100000 --seed 0
    python experiments/torture/numeric.py --seed 0 --only 4711      one case of a report again, its error raised
"""

import argparse
import itertools
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import InputError
from vsehub.criteria.parameters import parameters, with_parameters
from vsehub.metrics import hubness, positives, ranks, recall, relevance, topk
from vsehub.metrics.occurrences import Occurrences

CRITERIA = Path(__file__).parents[2] / "conf" / "criterion"
SECONDS_A_CASE = 20
MOST_NAMED = 50
SHARE_OF_METRICS = 0.35

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
BAD_SETTINGS = (math.inf, -math.inf, math.nan, 0, -1, "ten", None, True, [3])
ROUNDING, PRODUCTS = 64, 8192  # how many machine epsilons: where scores are given, where they are inexact products


class Wrong(Exception):
    """What a case did that it must not."""


def check(condition: Any, text: str, *shown: Any) -> None:
    """Raise Wrong with the text, each {} in it being one of what is shown, unless the condition holds."""
    if not condition:
        raise Wrong(text.replace("{}", "%s") % shown if shown else text)


@dataclass(frozen=True)
class Tested:
    """A criterion of conf/criterion with some settings. steps: class name and settings of each step."""

    name: str
    rule: Any
    steps: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def matching(self) -> tuple[str, dict[str, Any]] | None:
        """The step that matches."""
        return self.steps[-1] if self.rule.matching is not None else None

    @property
    def corrects(self) -> bool:
        """Whether scores are corrected."""
        return len(self.steps) == 2 or self.matching is None

    def oracle(self, s: np.ndarray, r: np.ndarray | None) -> oracles.Answer | None:
        """What its formula gives, of a chain the correction's; None where no formula is known."""
        name, settings = self.steps[0]
        if name not in oracles.FORMULAS:
            return None
        if name == "InvertedSoftmax":
            settings = settings | {"own": r is None}
        return oracles.FORMULAS[name](s, s if r is None else r, **settings)


def discover(folder: Path = CRITERIA) -> list[list[Tested]]:
    """Of each criterion in the folder some instances: the settings of its file, and others."""
    random = np.random.default_rng(0)
    found = []
    for path in sorted(folder.glob("*.yaml")):
        rule = instantiate(OmegaConf.load(path), _convert_="all")
        variants = [rule]
        for _ in range(9 if parameters(rule) else 0):
            changes = {name: _other(random, name, value) for name, value in parameters(rule).items()}
            variants.append(with_parameters(rule, **changes))
        found.append([_tested(path.stem, one) for one in variants])
    return found


def _tested(name: str, rule: Any) -> Tested:
    steps = getattr(rule, "steps", (rule,))
    return Tested(name, rule, tuple((type(step).__name__, parameters(step)) for step in steps))


def _other(random: np.random.Generator, name: str, value: Any) -> Any:
    if name == "relaxation":
        return float(random.choice([0.5, 1.0, 1.3, 1.5, 2.0, 3.5]))
    if name == "capacity":
        return str(random.choice(["proportional", "paper"]))
    if isinstance(value, int) and not isinstance(value, bool):
        return int(random.choice([1, 2, 3, value, 100000 if name == "k" else 4]))
    if isinstance(value, float) and not name.endswith("seconds"):
        return value * float(random.choice([0.1, 0.5, 1.0, 2.0, 7.0]))
    return value


# Drawing


def size(random: np.random.Generator) -> int:
    """1 to 12, now and then more."""
    return int(random.integers(1, 13) if random.random() < 0.97 else random.integers(13, 60))


def matrix(random: np.random.Generator, rows: int, columns: int, cosines: bool) -> np.ndarray:
    """A float64 matrix of one of many kinds."""
    kind = random.integers(7)
    if kind == 0:
        values = random.integers(-3, 4, (rows, columns)) / 4
    elif kind == 1:
        values = np.full((rows, columns), random.choice([0.0, -0.0, 1.0, -0.5, 0.3]))
    elif kind == 2:
        values = -np.abs(random.normal(size=(rows, columns)))
    elif kind == 3:
        values = random.normal(size=(rows, columns))
        values = values[random.integers(rows, size=rows)][:, random.integers(columns, size=columns)]
    elif kind == 4:
        values = random.choice([-1.0, 0.0, 1.0], (rows, columns))
    else:
        values = random.normal(size=(rows, columns))
    return np.clip(values / 2, -1, 1) if cosines and kind != 1 else values


def scaled(random: np.random.Generator, values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The values as they are or at an extreme scale."""
    wide = dtype == torch.float64
    scales = (1e-30, 1e30, 1e-300 if wide else 1e-38, 1e-310 if wide else 1e-43, 1e4, 1e-4, 1e300 if wide else 1e37)
    return values * random.choice(scales) if random.random() < 0.3 else values


def spoilt(random: np.random.Generator, values: np.ndarray, share: float = 0.12) -> np.ndarray:
    """The values, in a share of the cases with NaN or infinities among them."""
    if random.random() < share:
        values = values.copy()
        bad = random.choice([np.nan, np.inf, -np.inf], size=values.shape)
        if random.random() < 0.7:
            bad[...] = random.choice([np.nan, np.inf, -np.inf])
        where = random.random(values.shape) < random.choice([0.02, 0.2, 1.0])
        where.flat[random.integers(values.size)] = True
        values[where] = bad[where]
    return values


def tensor(random: np.random.Generator, values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """A tensor of the type, its rows or its columns in one stretch of memory."""
    made = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    return made.T.contiguous().T if random.random() < 0.3 else made


def exact(values: Tensor) -> np.ndarray:
    """The numbers in a tensor as float64."""
    return values.double().numpy()


def limits(*types: torch.dtype) -> torch.finfo:
    """Those of the type that is computed in, of several the narrower: float32 at least."""
    return torch.finfo(torch.float64 if set(types) == {torch.float64} else torch.float32)


# Criteria


def criterion_case(random: np.random.Generator, tested: list[list[Tested]]) -> tuple[str, Callable[[], None]]:
    """A name and what is to be done."""
    one = tested[random.integers(len(tested))]
    one = one[0] if random.random() < 0.4 else one[random.integers(len(one))]
    way = random.random()
    if way < 0.03:
        return f"{one.name}, settings", lambda: bad_setting(random, one)
    if way < 0.5:
        return f"{one.name} {one.steps} rescore", lambda: rescore(random, one)
    return f"{one.name} {one.steps} search", lambda: search(random, one)


def refused(call: Callable[[], Any]) -> tuple[Any, InputError | None]:
    """What the call gives, or its InputError."""
    try:
        return call(), None
    except InputError as error:
        return None, error


def bad_setting(random: np.random.Generator, one: Tested) -> None:
    """Settings that are no number of the right kind are refused when the criterion is built."""
    numbers = [name for name, value in parameters(one.rule).items() if type(value) in (int, float)]
    if not numbers:
        return
    name, value = random.choice(numbers), BAD_SETTINGS[random.integers(len(BAD_SETTINGS))]
    built, error = refused(lambda: with_parameters(one.rule, **{str(name): value}))
    check(error and str(name) in str(error), f"{name}={value!r} is accepted: {built}, {error}")


def sizes(random: np.random.Generator, one: Tested) -> tuple[int, int]:
    """Queries and items; few where the oracle tries all assignments."""
    queries, items = size(random), size(random)
    return (min(queries, 6), min(items, 5)) if one.matching and one.matching[0] == "Assignment" else (queries, items)


def rescore(random: np.random.Generator, one: Tested) -> None:
    """The dense form, or the matching."""
    queries, items = sizes(random, one)
    dtype = TYPES[random.choice(4, p=(0.5, 0.2, 0.15, 0.15))]
    cosines = random.random() < 0.5
    scores = tensor(random, spoilt(random, scaled(random, matrix(random, queries, items, cosines), dtype)), dtype)
    if one.matching:
        return rescore_matching(random, one, scores)
    reference = None
    if random.random() < 0.5:
        other = TYPES[random.integers(4)] if random.random() < 0.1 else dtype
        values = matrix(random, size(random), items, cosines)
        reference = tensor(random, spoilt(random, scaled(random, values, other), 0.06), other)
    answer, error = refused(lambda: one.rule.rescore(scores, reference))
    s, r = exact(scores), None if reference is None else exact(reference)
    described = f"{describe(scores)} reference {'own' if r is None else describe(reference)}"
    if not np.isfinite(s).all() or (r is not None and not np.isfinite(r).all()):
        return check(error, f"{described}: NaN or infinity is not refused")
    wanted, number = one.oracle(s, r), limits(scores.dtype, dtype if reference is None else reference.dtype)
    if error:
        return check(wanted is None or not wanted.size < number.max / 64, f"{described}: refused: {error}")
    found = exact(answer)
    check(found.shape == s.shape and answer.itemsize >= 4, f"{described}: {answer.dtype} {found.shape}")
    check(np.isfinite(found).all(), f"{described}: NaN or infinity in the answer")
    if wanted is not None:
        room = room_of(wanted, number, ROUNDING)
        far = np.argwhere(~(np.abs(found - wanted.values) <= room))
        check(not len(far), "{}: {}", described, _entry(found, wanted.values, far) if len(far) else "")


def room_of(wanted: oracles.Answer, number: torch.finfo, epsilons: float) -> np.ndarray:
    """How far (Q, M) rounding may move an answer."""
    wide = torch.finfo(torch.float64).eps * wanted.wide
    steep = wanted.steep if epsilons == PRODUCTS else 0.0
    return epsilons * (number.eps * (wanted.slack + steep) + wide + number.tiny * (wanted.slack > 0))


def describe(values: Tensor) -> str:
    """Shape, type and range of a tensor."""
    least, most = (values.double().min().item(), values.double().max().item()) if values.numel() else (0, 0)
    return f"{tuple(values.shape)} {str(values.dtype).removeprefix('torch.')} [{least:.3g}, {most:.3g}]"


def _entry(found: np.ndarray, wanted: np.ndarray, far: np.ndarray) -> str:
    query, item = far[0].tolist()
    return f"entry ({query}, {item}) is {found[query, item]:.17g}, the oracle's is {wanted[query, item]:.17g}"


def rescore_matching(random: np.random.Generator, one: Tested, scores: Tensor) -> None:
    """The pairs of a matching, and the dense scores in whose order they stand."""
    k, s, described = int(random.integers(1, 14)), exact(scores), describe(scores)
    described += f" k {k}"
    answer, error = refused(lambda: (one.rule.match(scores, k), one.rule.rescore(scores, k=k)))
    name, settings = one.matching
    greedy = name == "RelaxedGreedyMatching"
    # A pair of score -inf never matches; where scores are computed with, nothing is left of such.
    bad = np.isnan(s).any() or (np.isinf(s).any() if one.corrects or not greedy else (s == np.inf).any())
    if bad:
        return check(error, f"{described}: NaN or infinity is not refused")
    wanted = one.oracle(s, None) if one.corrects else oracles.nns(s, s)
    if error:
        deserved = greedy and oracles.places(*s.shape, k, **settings) == 0
        number = limits(scores.dtype)
        return check(deserved or not wanted.size < number.max / (64 * s.shape[0]), f"{described}: refused: {error}")
    pairs, found = [tuple(pair) for pair in answer[0].tolist()], exact(answer[1])
    check(not np.isnan(found).any() and (found < np.inf).all(), f"{described}: NaN or inf in the answer")
    check_pairs(one, pairs, wanted, k, limits(scores.dtype), described)
    if name == "Assignment":
        check(dict(pairs[: len(s)]) == dict(enumerate(found.argmax(axis=1).tolist())), f"{described}: first items")
    if not one.corrects and greedy:
        check_lists(found, oracles.matched_order(s, pairs), described)


def check_pairs(one: Tested, pairs: list, wanted: oracles.Answer, k: int, number: torch.finfo, described: str) -> None:
    """That pairs are the matching on the oracle's scores, to rounding."""
    name, settings = one.matching
    s, (queries, items) = wanted.values, wanted.values.shape
    check(len(set(pairs)) == len(pairs), f"{described}: a pair twice")
    if name == "Assignment":
        first = pairs[:queries]
        places = math.ceil(queries / items)
        given = [query for query, _ in first]
        check(sorted(given) == list(range(queries)), f"{described}: not each query has an item")
        check(max(np.bincount([item for _, item in first])) <= places, f"{described}: an item has too many queries")
        check(
            max(np.bincount([query for query, _ in pairs])) <= min(k, settings["solutions"]), f"{described}: too many"
        )
        return check_total(s, first, described)
    if name != "RelaxedGreedyMatching":
        return None
    if pairs == oracles.greedy_pairs(s, k, **settings):
        return None
    check(one.corrects, f"{described}: pairs {pairs}, the oracle's are {oracles.greedy_pairs(s, k, **settings)}")
    room = oracles.places(queries, items, k, **settings)
    slack = 2 * ROUNDING * (number.eps * np.max(wanted.slack, initial=0) + number.tiny)
    if settings["capacity"] == "proportional":
        blocked = oracles.blocking_pair(s, pairs, k, room, np.full(s.shape, slack))
        return check(blocked is None, f"{described}: {blocked} would both rather be matched")
    return check(
        tied(s, slack), f"{described}: pairs {pairs}, the oracle's are {oracles.greedy_pairs(s, k, **settings)}"
    )


def check_total(s: np.ndarray, pairs: list, described: str) -> None:
    """That the sum of an assignment is the largest."""
    total, best = sum(s[pair] for pair in pairs), oracles.best_total(s)
    check(abs(total - best) <= ROUNDING * len(s) * 1e-15 * oracles.largest(s), f"{described}: {total} is not {best}")


def tied(values: np.ndarray, slack: float) -> bool:
    """Whether rounding can change the order of any two values."""
    return values.size > 1 and np.diff(np.sort(values, axis=None)).min() <= slack


def check_lists(found: np.ndarray, wanted: list[list[int]], described: str) -> None:
    """That rows of values have the wanted order."""
    got = np.argsort(-found, axis=1, kind="stable").tolist()
    check(got == wanted, "{}: order {}, the oracle's is {}", described, got, wanted)


def vectors(random: np.random.Generator, rows: int, dim: int, whole: bool) -> np.ndarray:
    """Rows of small whole numbers, whose products are exact, or unit vectors; some rows are copies."""
    if whole:
        values = random.integers(-3, 4, (rows, dim)).astype(float)
    else:
        values = random.normal(size=(rows, dim))
        values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values[random.integers(rows, size=rows)] if random.random() < 0.3 else values


def search(random: np.random.Generator, one: Tested) -> None:
    """The streaming form from vectors."""
    (queries, items), dim = sizes(random, one), int(random.integers(1, 5))
    whole = random.random() < 0.7
    dtype = TYPES[random.choice(4, p=(0.5, 0.2, 0.15, 0.15))] if whole else TYPES[random.integers(2)]
    # Powers of two leave products exact, from those that underflow to those that are infinite.
    powers = (-600, -510, 0, 300, 600) if dtype == torch.float64 else (-100, -70, -60, -3, 20, 62, 100)
    scale = 2.0 ** random.choice(powers) if whole and random.random() < 0.3 else 1.0
    needs = one.rule.needs_reference or random.random() < 0.05
    own = one.matching is not None or not needs or random.random() < 0.5
    drawn = [vectors(random, rows, dim, whole) * scale for rows in (queries, items, size(random))]
    if whole and random.random() < 0.5:
        drawn = [side / 4 / math.sqrt(4 ** math.ceil(math.log(dim, 4))) for side in drawn]  # products below 1
    spoil = random.random() < 0.12
    sides = [tensor(random, spoilt(random, side, 0.4 if spoil else 0), dtype) for side in drawn]
    k = int(random.integers(-1, items + 4)) if random.random() < 0.1 else int(random.integers(1, items + 1))
    described = f"{describe(sides[0])} {describe(sides[1])} reference {'own' if own else describe(sides[2])} k {k}"
    given = [side.numpy() if dtype != torch.bfloat16 and random.random() < 0.3 else side for side in sides]
    if own:
        found, error = refused(lambda: one.rule.search(*given[:2], k=k))
    else:
        found, error = refused(lambda: one.rule.search(*given, k=k))
    if not 1 <= k <= items:
        return check(error, f"{described}: k is not refused")
    number = limits(dtype)
    s, r = product(sides[0], sides[1], number), None if own else product(sides[2], sides[1], number)
    finite = all(bool(side.isfinite().all()) for side in (sides[:2] if own or not one.rule.needs_reference else sides))
    if not finite and error:
        return None
    check_search(one, s, r, k, number, whole, (found, error), described)


def product(queries: Tensor, items: Tensor, number: torch.finfo) -> np.ndarray:
    """Inner products as the type has them that is computed in."""
    scores = exact(queries) @ exact(items).T
    return scores.astype(np.float32).astype(float) if number.dtype == "float32" else scores


def check_search(
    one: Tested,
    s: np.ndarray,
    r: np.ndarray | None,
    k: int,
    number: torch.finfo,
    whole: bool,
    said: tuple,
    described: str,
) -> None:
    """The lists of a search against the oracle's."""
    found, error = said
    if error:
        deserved = one.matching and one.matching[0] == "RelaxedGreedyMatching"
        deserved = deserved and oracles.places(*s.shape, k, **one.matching[1]) == 0
        wanted = None if deserved else (one.oracle(s, r) if one.corrects else oracles.nns(s, s))
        return check(
            wanted is None or not wanted.size < number.max / (64 * max(s.shape)), f"{described}: refused: {error}"
        )
    values, positions = (np.asarray(side).astype(float if place == 0 else int) for place, side in enumerate(found))
    check(values.shape == positions.shape == (len(s), k), f"{described}: lists of shape {positions.shape}")
    check(np.isfinite(values).all(), f"{described}: values are NaN or infinite")
    check(
        all(len(set(row)) == k and 0 <= min(row) <= max(row) < s.shape[1] for row in positions.tolist()),
        f"{described}: no items",
    )
    wanted = one.oracle(s, r) if one.corrects else oracles.nns(s, s)
    if wanted is None:
        return check_against_itself(one, s, r, values, positions, described)
    room = room_of(wanted, number, ROUNDING if whole else PRODUCTS)
    if not whole and not room.any():  # what is inexact are the products
        room = np.full(s.shape, PRODUCTS * number.eps * oracles.largest(s))
    if one.matching:
        return check_matched_search(one, wanted, k, room, positions, described)
    listed, slack = (np.take_along_axis(side, positions, 1) for side in (wanted.ranked, room))
    check((np.abs(values - listed) <= slack).all(), "{}: values {}, the oracle's are {}", described, values, listed)
    same = values[:, 1:] == values[:, :-1]
    check((np.diff(positions, axis=1)[same] > 0).all(), f"{described}: of equal values the higher position comes first")
    check((values[:, 1:] <= values[:, :-1]).all(), f"{described}: values rise")
    falling = listed[:, 1:] <= listed[:, :-1] + slack[:, 1:] + slack[:, :-1]
    check(falling.all(), "{}: {} are out of order", described, positions)
    if not room.any():
        best = [oracles.order(row)[:k] for row in wanted.ranked.tolist()]
        return check(positions.tolist() == best, "{}: {}, the oracle's are {}", described, positions.tolist(), best)
    rest = np.nan_to_num(wanted.ranked, nan=np.inf) - room
    np.put_along_axis(rest, positions, -np.inf, 1)
    kept = rest.max(axis=1) <= listed[:, -1] + slack[:, -1]
    check(kept.all(), "{}: {} leave out a better item", described, positions)


def check_matched_search(
    one: Tested, wanted: oracles.Answer, k: int, room: np.ndarray, positions: np.ndarray, described: str
) -> None:
    """The lists of a search that matches; where rounding or the solver decides, they need only be lists."""
    name, settings = one.matching
    # Chains stream the item's term and the query's; the inverted softmax's own query stays in its sum.
    s = wanted.ranked if one.steps[0][0] == "InvertedSoftmax" else wanted.values
    if name == "Assignment" and not room.any():
        return check_total(s, list(enumerate(positions[:, 0].tolist())), described)
    if name != "RelaxedGreedyMatching" or (room.any() and tied(s, 4 * room.max())):
        return None
    best = [row[:k] for row in oracles.matched_order(s, oracles.greedy_pairs(s, k, **settings))]
    return check(positions.tolist() == best, "{}: {}, the oracle's are {}", described, positions.tolist(), best)


def check_against_itself(
    one: Tested, s: np.ndarray, r: np.ndarray | None, values: np.ndarray, positions: np.ndarray, described: str
) -> None:
    """A criterion without a formula: `search` gives the order of `rescore`, to rounding."""
    if one.matching:
        return
    dense = exact(one.rule.rescore(torch.from_numpy(s), None if r is None else torch.from_numpy(r)))
    listed, slack = np.take_along_axis(dense, positions, 1), 1e-4 * oracles.largest(dense)
    check((listed[:, 1:] <= listed[:, :-1] + slack).all(), f"{described}: search is not in the order of rescore")
    np.put_along_axis(dense, positions, -np.inf, 1)
    check((dense.max(axis=1) <= listed[:, -1] + slack).all(), f"{described}: search leaves out what rescore has first")


# Metrics


def case_of_top_k(random: np.random.Generator) -> None:
    """`topk`: the k largest, what reaches a value."""
    rows, columns = size(random), size(random) if random.random() < 0.9 else int(random.integers(300, 900))
    scores = scores_of_metrics(random, rows, columns, 0.2)
    s, k, described = exact(scores), int(random.integers(1, 15)), describe(scores)
    values, found = topk.top_k(scores, k)
    best = [oracles.nearest_first(row)[:k] for row in s.tolist()]
    kept = np.take_along_axis(s, found.numpy(), 1)
    check(found.shape == values.shape == (rows, min(k, columns)), f"top_k {described}: {found.shape}")
    check(np.array_equal(kept, exact(values), equal_nan=True), f"top_k {described}: values of other columns")
    known = ~np.isnan(kept)  # among NaN there is no order
    check((known == ~np.isnan(np.take_along_axis(s, np.array(best), 1))).all(), f"top_k {described}: not all NaN first")
    same = (found.numpy() == np.array(best))[known]
    check(same.all(), "top_k {}: {} is not {}", described, found.tolist(), best)
    count = min(k, columns)
    check(np.array_equal(exact(topk.largest(scores, count)[0]), kept, equal_nan=True), f"largest {described}")
    least = scores[:, int(random.integers(columns))]
    reached = [sum(x >= bar for x in row) for row, bar in zip(s.tolist(), exact(least).tolist(), strict=True)]
    check(topk.at_least(scores, least).tolist() == reached, f"at_least {described}")


def scores_of_metrics(random: np.random.Generator, rows: int, columns: int, bad: float) -> Tensor:
    """Scores of any type and scale."""
    dtype = TYPES[random.choice(4, p=(0.5, 0.2, 0.15, 0.15))]
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


def close(found: dict[str, float], wanted: dict[str, float], described: str) -> None:
    """That figures are the oracle's, all of them."""
    check(found.keys() == wanted.keys(), f"{described}: keys {sorted(found.keys() ^ wanted.keys())}")
    far = {
        key: (found[key], wanted[key])
        for key in wanted
        if not abs(found[key] - wanted[key]) <= 1e-8 * (1 + abs(wanted[key]))
    }
    check(not far, f"{described}: (found, oracle's) {far}")


def case_of_hubness(random: np.random.Generator) -> None:
    """`hubness`: N_k of both directions and all figures of them."""
    scores = scores_of_metrics(random, size(random), size(random), 0.15)
    ks = tuple(random.choice([1, 2, 5, 10, 100], size=random.integers(0, 4), replace=False).tolist())
    mask = mask_of(random, *scores.shape, True) if random.random() < 0.5 else None
    s, described = exact(scores), f"hubness {describe(scores)} ks {ks}"
    given = None if mask is None else torch.from_numpy(mask)
    found, error = refused(lambda: hubness.hubness(scores, ks, given))
    if np.isnan(s).any():
        return check(error, f"{described}: NaN is not refused")
    check(not error, f"{described}: refused: {error}")
    counted = hubness.k_occurrences(scores, ks)
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
    close(found, wanted, described)
    return None


def case_of_ranking(random: np.random.Generator) -> None:
    """`ranks`: rank_blocks, queries without a positive among them."""
    queries, items = size(random), size(random) if random.random() < 0.9 else int(random.integers(300, 900))
    scores = scores_of_metrics(random, queries, items, 0.15)
    mask = mask_of(random, queries, items, False)
    s, described, mine = exact(scores), f"rank_blocks {describe(scores)}", sets(mask)
    query, item = (torch.from_numpy(side) for side in mask.nonzero())
    shuffled = torch.from_numpy(random.permutation(len(query)))
    pairs = positives.Positives.from_pairs(query[shuffled], item[shuffled], queries, items, complete=False)
    check(pairs.counts.tolist() == [len(one) for one in mine], f"{described}: counts of positives")
    ks = ((), (1,), (1, 5, 10), (3, 200))[random.integers(4)]
    cuts = [0, *sorted(random.integers(0, queries + 1, size=2).tolist()), queries]
    blocks = [(a, scores[a:b]) for a, b in itertools.pairwise(cuts) if a < b]
    ranking, error = refused(lambda: ranks.rank_blocks(blocks, pairs, ks))
    if np.isnan(s).any():
        return check(error, f"{described}: NaN is not refused")
    check(not error, f"{described}: refused: {error}")
    wanted = [oracles.rank(row, one) for row, one in zip(s.tolist(), mine, strict=True)]
    check(ranking.ranks.tolist() == wanted, "{}: ranks {} are not {}", described, ranking.ranks.tolist(), wanted)
    at_r = [
        oracles.precision_at_r(oracles.negatives_first(row, one), one)
        for row, one in zip(s.tolist(), mine, strict=True)
    ]
    got = np.stack((ranking.average_precision.numpy(), ranking.r_precision.numpy()), axis=1)
    same = np.allclose(got, at_r, rtol=1e-9, atol=1e-12)
    check(same, "{}: AP@R, R-Precision {} are not {}", described, got, at_r)
    lists = [oracles.order(row) for row in s.tolist()]
    for k in ks:
        counts = oracles.occurrences(lists, items, k), oracles.bad_occurrences(lists, items, k, mine)
        check(ranking.occurrences[k].tolist() == counts[0], f"{described}: N_{k}")
        check(ranking.bad[k].tolist() == counts[1], f"{described}: BN_{k}")
    figures = {name: value for name, value in recall.rank_metrics(ranking).items()}
    close(figures, oracles.recall_figures(s.tolist(), mine), described)
    return None


def case_of_recall(random: np.random.Generator) -> None:
    """`recall`: both directions of a matrix."""
    scores = scores_of_metrics(random, size(random), size(random), 0.15)
    mask = mask_of(random, *scores.shape, random.random() < 0.9)
    s, described = exact(scores), f"recall_metrics {describe(scores)}"
    found, error = refused(lambda: recall.recall_metrics(scores, torch.from_numpy(mask)))
    if np.isnan(s).any() or not (mask.any(axis=0).all() and mask.any(axis=1).all()):
        return check(error, f"{described}: NaN or a missing positive is not refused")
    check(not error, f"{described}: refused: {error}")
    wanted = {}
    for direction, matrix_, marks in (("i2t", s, mask), ("t2i", s.T, mask.T)):
        figures = oracles.recall_figures(matrix_.tolist(), sets(marks))
        wanted |= {f"{direction}/{key}": value for key, value in figures.items()}
    wanted["rsum"] = sum(wanted[f"{direction}/r{k}"] for direction in ("i2t", "t2i") for k in (1, 5, 10))
    close(found, wanted, described)
    return None


def case_of_lists(random: np.random.Generator) -> None:
    """`relevance` and `occurrences`: figures of lists of positions."""
    queries, items = size(random), size(random)
    depth = int(random.integers(1, items + 1))
    lists = np.stack([random.permutation(items)[:depth] for _ in range(queries)])
    mask = mask_of(random, queries, items, False)
    mine, described = sets(mask), f"list_metrics ({queries}, {depth}) of {items} items"
    spoil = random.random()
    if spoil < 0.05:
        lists[random.integers(queries), random.integers(depth)] = random.choice([-1, items, 2**40])
    elif spoil < 0.1 and depth > 1:
        lists[random.integers(queries), :2] = random.integers(items)
    pairs = positives.Positives.from_pairs(*(torch.from_numpy(side) for side in mask.nonzero()), queries, items, False)
    ks = tuple(random.choice([1, 2, 5, 10, 100], size=random.integers(0, 3), replace=False).tolist())
    with_relevance = random.random() < 0.5
    given = (
        torch.from_numpy(lists).to((torch.int64, torch.int64, torch.int32)[random.integers(3)])
        if spoil > 0.1
        else torch.from_numpy(lists)
    )
    found, error = refused(lambda: relevance.list_metrics(given, pairs, ks, with_relevance))
    known = ((lists >= 0) & (lists < items)).all()
    good = known and all(len(set(row)) == depth for row in lists.tolist()) and depth >= min(max(ks, default=0), items)
    if not good or (with_relevance and depth < max(map(len, mine))):
        check(error, f"{described}: bad lists are not refused")
    else:
        check(not error, f"{described}: refused: {error}")
        measured = [(row, one) for row, one in zip(lists.tolist(), mine, strict=True) if one]
        wanted = {f"r{k}": 100 * oracles.mean([bool(set(row[:k]) & one) for row, one in measured]) for k in ks}
        if with_relevance:
            at_r = [oracles.precision_at_r(row, one) for row, one in measured]
            wanted |= {
                name: 100 * oracles.mean([one[i] for one in at_r]) for i, name in enumerate(("map_r", "r_precision"))
            }
        close(found, wanted | {"queries": len(measured)}, described)
    counted, error = refused(lambda: Occurrences(items, ks))
    _, error = refused(lambda: counted.add_judged(given, pairs))
    if not known or depth < min(max(ks, default=0), items):
        return check(error, f"Occurrences of {described}: bad lists are not refused")
    check(not error, f"Occurrences of {described}: refused: {error}")
    if spoil > 0.1:
        for k in ks:
            check(counted.counts[k].tolist() == oracles.occurrences(lists.tolist(), items, k), f"N_{k} of {described}")
            check(
                counted.bad[k].tolist() == oracles.bad_occurrences(lists.tolist(), items, k, mine),
                f"BN_{k} of {described}",
            )
        hits = [[item in one for item in row] for row, one in zip(lists.tolist(), mine, strict=True)]
        check(pairs.hits(given).tolist() == hits, f"hits of {described}")
    return None


def case_of_counts(random: np.random.Generator) -> None:
    """`hubness`: figures of given N_k."""
    items, k = size(random), int(random.choice([1, 5, 10]))
    most = random.choice([1, 2, 5, 50, 10**6, 10**9])
    counts = random.integers(0, most, size=items) if random.random() < 0.8 else np.full(items, random.integers(most))
    if random.random() < 0.3:
        counts = counts * (random.random(items) < 0.3)
    given, described = torch.from_numpy(counts), f"N_{k} {counts.tolist()}"
    if random.random() < 0.15:
        given = given.to(TYPES[random.integers(2)])
        given[random.integers(items)] = float(random.choice([np.nan, np.inf, -np.inf, -1]))
        for figure in (hubness.skewness, hubness.gini, hubness.atkinson):
            value, error = refused(lambda figure=figure: figure(given))
            check(error, f"{figure.__name__} of {given.tolist()} is {value}: it is not refused")
        return
    wanted = oracles.occurrence_figures(counts.tolist(), k)
    close(hubness.occurrence_metrics({k: given}), wanted, described)
    one_by_one = {f"skew_{k}": hubness.skewness, f"gini_{k}": hubness.gini, f"atkinson_{k}": hubness.atkinson}
    close(
        {key: figure(given) for key, figure in one_by_one.items()}, {key: wanted[key] for key in one_by_one}, described
    )
    drawn = hubness.histogram(given)
    check(drawn["occurrences"] == sorted(set(counts.tolist())), f"histogram of {described}")
    check(drawn["items"] == [counts.tolist().count(n) for n in drawn["occurrences"]], f"histogram of {described}")


def case_of_positives(random: np.random.Generator) -> None:
    """`positives`: from a mask and from ids."""
    queries, items = size(random), size(random)
    ids = [random.integers(0, random.choice([1, 3, 20]), size=n) for n in (queries, items)]
    mask, described = ids[0][:, None] == ids[1], f"Positives ({queries}, {items})"
    found = [
        refused(lambda: positives.Positives.from_mask(torch.from_numpy(mask))),
        refused(lambda: positives.Positives.from_ids(*(torch.from_numpy(side) for side in ids))),
    ]
    wanted = [(q, m) for q in range(queries) for m in range(items) if ids[0][q] == ids[1][m]]
    for made, error in found:
        if not mask.any(axis=1).all():
            check(error, f"{described}: a query without a positive is not refused")
            continue
        check(not error, f"{described}: refused: {error}")
        check(list(zip(made.query.tolist(), made.item.tolist(), strict=True)) == wanted, f"{described}: pairs")


METRICS = (
    case_of_top_k,
    case_of_hubness,
    case_of_ranking,
    case_of_recall,
    case_of_lists,
    case_of_counts,
    case_of_positives,
)


# Running


def drawn_case(seed: int, number: int, tested: list[list[Tested]]) -> tuple[str, Callable[[], None]]:
    """The case of a number, always the same one: its name and what is to be done."""
    random = np.random.default_rng((seed, number))
    if random.random() < SHARE_OF_METRICS:
        metric = METRICS[random.integers(len(METRICS))]
        return metric.__name__.removeprefix("case_of_"), lambda: metric(random)
    return criterion_case(random, tested)


def run(seconds: float | None, seed: int, cases: int | None = None, progress: bool = False) -> dict[str, Any]:
    """Draw cases until the seconds have passed, or so many cases.

    Returns {"cases": how many, "wrong": texts that name seed and case, at most MOST_NAMED of them}.
    """
    if (seconds is None) == (cases is None):
        raise ValueError("give either seconds or cases")
    tested, wrong, end = discover(), [], math.inf if seconds is None else time.monotonic() + seconds
    number = 0
    with quiet(), tqdm(total=cases, unit=" cases", disable=not progress) as bar:
        while (cases is None or number < cases) and time.monotonic() < end and len(wrong) < MOST_NAMED:
            name, work = drawn_case(seed, number, tested)
            try:
                with time_limit(SECONDS_A_CASE):
                    work()
            except Wrong as error:
                wrong.append(f"seed {seed} case {number}: {name}: {error}")
            except Exception as error:
                wrong.append(f"seed {seed} case {number}: {name}: {type(error).__name__}: {error}")
            number += 1
            bar.update()
    return {"cases": number, "wrong": wrong}


@contextmanager
def quiet() -> Iterator[None]:
    """Notes in the log and warnings of numpy about the oracles' infinities are no news here."""
    log = logging.getLogger("vsehub")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        log.setLevel(level)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """TimeoutError in what takes longer, where signals can be had: on the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def without_formula() -> list[str]:
    """Criteria whose correction or matching has no oracle."""
    known = {*oracles.FORMULAS, "RelaxedGreedyMatching", "Assignment"}
    return [one[0].name for one in discover() if not known.issuperset(name for name, _ in one[0].steps)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, help="how many")
    parser.add_argument("--seconds", type=float, help="or for how long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case again, its error raised")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only is not None:
        name, work = drawn_case(given.seed, given.only, discover())
        print(name)
        with quiet():
            work()
        return
    cases = 100_000 if given.cases is None and given.seconds is None else given.cases
    began = time.monotonic()
    result = run(given.seconds, given.seed, cases, progress=True)
    seconds = time.monotonic() - began
    for text in result["wrong"]:
        print(text)
    for name in without_formula():
        print(f"{name}: no formula in oracles.py; only search against rescore")
    print(
        f"numbers: {result['cases']:,} cases, seed {given.seed}, {len(discover())} criteria, {len(METRICS)} kinds of "
        f"metric cases: {len(result['wrong'])} wrong, {seconds:.0f} s ({result['cases'] / seconds:.0f} a second)"
    )
    sys.exit(1 if result["wrong"] else 0)


if __name__ == "__main__":
    main()

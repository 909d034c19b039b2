"""Cases of criteria: their settings, the dense form, matchings and the streaming form, against the oracles."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import oracles
import torch
from drawing import SHARES, TYPES, check, describe, exact, limits, matrix, refused, scaled, size, spoilt, tensor
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from vsehub.criteria import GreedyMatching

CRITERIA = Path(__file__).parents[2] / "conf" / "criterion"
BAD_SETTINGS = (math.inf, -math.inf, math.nan, 0, -1, "ten", None, True, [3])
ROUNDING, PRODUCTS = 64, 8192  # how many machine epsilons: where scores are given, where they are inexact products


@dataclass(frozen=True)
class Tested:
    """A criterion of conf/criterion with some settings. steps: class name and settings of each step."""

    name: str
    criterion: Any
    steps: tuple[tuple[str, dict[str, Any]], ...]

    @property
    def matching(self) -> tuple[str, dict[str, Any]] | None:
        """The step that matches."""
        return self.steps[-1] if self.criterion.matching is not None else None

    @property
    def corrects(self) -> bool:
        """Whether scores are corrected."""
        return len(self.steps) == 2 or self.matching is None

    @property
    def needs_item_scores(self) -> bool:
        """Whether scores of items with items are needed."""
        return self.criterion.correction.reference_items_as == "rows"

    def oracle(self, s: np.ndarray, r: np.ndarray | None, g: np.ndarray | None = None) -> oracles.Answer | None:
        """What its formula gives, of a chain the correction's; None where no formula is known.

        g: scores (G, M) of reference items, where they are needed.
        """
        name, settings = self.steps[0]
        if name not in oracles.FORMULAS:
            return None
        if name == "InvertedSoftmax":
            settings = settings | {"transductive": r is None}
        if self.needs_item_scores:
            settings = settings | {"g": g}
        return oracles.FORMULAS[name](s, s if r is None else r, **settings)


def discover(folder: Path = CRITERIA) -> list[list[Tested]]:
    """Of each criterion in the folder some instances: the settings of its file, and others."""
    random, variants_of = np.random.default_rng(0), []
    for path in sorted(folder.glob("*.yaml")):
        criterion = instantiate(OmegaConf.load(path), _convert_="all")
        variants = [criterion]
        for _ in range(9 if criterion.parameters() else 0):
            changes = {name: _other(random, name, value) for name, value in criterion.parameters().items()}
            variants.append(criterion.with_parameters(**changes))
        variants_of.append(
            [
                Tested(path.stem, variant, tuple(map(_step, getattr(variant, "steps", (variant,)))))
                for variant in variants
            ]
        )
    return variants_of


def _step(step: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(step, GreedyMatching):  # as the oracle knows it
        return "RelaxedGreedyMatching", {"relaxation": 1.0, **step.parameters()}
    return type(step).__name__, step.parameters()


def _other(random: np.random.Generator, name: str, value: Any) -> Any:
    if name == "relaxation":
        return float(random.choice([0.5, 1.0, 1.3, 1.5, 2.0, 3.5]))
    if name == "capacity":
        return str(random.choice(["proportional", "paper"]))
    if isinstance(value, int) and not isinstance(value, bool):
        return int(random.choice([1, 2, 3, value, 100000 if name == "k" else 4]))
    if isinstance(value, float) and name != "share":  # of `Auto`, which is below 1
        return value * float(random.choice([0.1, 0.5, 1.0, 2.0, 7.0]))
    return value


def criterion_case(random: np.random.Generator, tested: list[list[Tested]]) -> tuple[str, Callable[[], None]]:
    """A name and what is to be done."""
    tested_one = tested[random.integers(len(tested))]
    tested_one = tested_one[0] if random.random() < 0.4 else tested_one[random.integers(len(tested_one))]
    way = random.random()
    if way < 0.03:
        return f"{tested_one.name}, settings", lambda: bad_setting(random, tested_one)
    if way < 0.5:
        return f"{tested_one.name} {tested_one.steps} rescore", lambda: rescore(random, tested_one)
    return f"{tested_one.name} {tested_one.steps} search", lambda: search(random, tested_one)


def bad_setting(random: np.random.Generator, case: Tested) -> None:
    """Settings that are no number of the right kind are refused when the criterion is built."""
    numbers = [name for name, value in case.criterion.parameters().items() if type(value) in (int, float)]
    if not numbers:
        return
    name, value = random.choice(numbers), BAD_SETTINGS[random.integers(len(BAD_SETTINGS))]
    built, error = refused(lambda: case.criterion.with_parameters(**{str(name): value}))
    check(error and str(name) in str(error), f"{name}={value!r} is accepted: {built}, {error}")


def sizes(random: np.random.Generator, case: Tested) -> tuple[int, int]:
    """Queries and items; few where the oracle tries all assignments."""
    queries, items = size(random), size(random)
    return (min(queries, 6), min(items, 5)) if case.matching and case.matching[0] == "Assignment" else (queries, items)


def rescore(random: np.random.Generator, case: Tested) -> None:
    """The dense form, or the matching."""
    queries, items = sizes(random, case)
    dtype = TYPES[random.choice(4, p=SHARES)]
    cosines = random.random() < 0.5
    scores = tensor(random, spoilt(random, scaled(random, matrix(random, queries, items, cosines), dtype)), dtype)
    if case.matching:
        return rescore_matching(random, case, scores)
    reference = None
    if random.random() < 0.5:
        other = TYPES[random.integers(4)] if random.random() < 0.1 else dtype
        values = matrix(random, size(random), items, cosines)
        reference = tensor(random, spoilt(random, scaled(random, values, other), 0.06), other)
    further = None
    if case.needs_item_scores:
        values = matrix(random, size(random), items, cosines)
        further = tensor(random, spoilt(random, scaled(random, values, dtype), 0.06), dtype)
    answer, error = refused(lambda: case.criterion.rescore(scores, reference, reference_item_scores=further))
    s, r, g = exact(scores), *(None if side is None else exact(side) for side in (reference, further))
    described = f"{describe(scores)} reference {'own' if r is None else describe(reference)}"
    described += "" if further is None else f" reference items {describe(further)}"
    if not all(np.isfinite(side).all() for side in (s, r, g) if side is not None):
        return check(error, f"{described}: NaN or infinity is not refused")
    wanted, number = case.oracle(s, r, g), limits(scores.dtype, dtype if reference is None else reference.dtype)
    if error:
        return check(wanted is None or not wanted.size < number.max / 64, f"{described}: refused: {error}")
    corrected = exact(answer)
    check(corrected.shape == s.shape and answer.itemsize >= 4, f"{described}: {answer.dtype} {corrected.shape}")
    check(np.isfinite(corrected).all(), f"{described}: NaN or infinity in the answer")
    if wanted is not None:
        room = room_of(wanted, number, ROUNDING)
        far = np.argwhere(~(np.abs(corrected - wanted.values) <= room))
        check(not len(far), "{}: {}", described, _entry(corrected, wanted.values, far) if len(far) else "")


def room_of(wanted: oracles.Answer, number: torch.finfo, epsilons: float) -> np.ndarray:
    """How far (Q, M) rounding may move an answer."""
    wide = torch.finfo(torch.float64).eps * wanted.wide
    steep = wanted.steep if epsilons == PRODUCTS else 0.0
    return epsilons * (number.eps * (wanted.slack + steep) + wide + number.tiny * (wanted.slack > 0))


def _entry(values: np.ndarray, wanted: np.ndarray, far: np.ndarray) -> str:
    query, item = far[0].tolist()
    return f"entry ({query}, {item}) is {values[query, item]:.17g}, the oracle's is {wanted[query, item]:.17g}"


def rescore_matching(random: np.random.Generator, case: Tested, scores: Tensor) -> None:
    """The pairs of a matching, and the dense scores in whose order they stand."""
    k, s, described = int(random.integers(1, 14)), exact(scores), describe(scores)
    described += f" k {k}"
    answer, error = refused(lambda: (case.criterion.match(scores, k), case.criterion.rescore(scores, k=k)))
    name, settings = case.matching
    greedy = name == "RelaxedGreedyMatching"
    # A pair of score -inf never matches; where scores are computed with, nothing is left of such.
    bad = np.isnan(s).any() or (np.isinf(s).any() if case.corrects or not greedy else (s == np.inf).any())
    if bad:
        return check(error, f"{described}: NaN or infinity is not refused")
    wanted = case.oracle(s, None) if case.corrects else oracles.nns(s, s)
    if error:
        most = wanted.size if case.corrects else np.abs(s, where=np.isfinite(s), out=np.zeros(s.shape)).max()
        deserved = greedy and oracles.places(*s.shape, k, **settings) == 0
        deserved = deserved or not most < limits(scores.dtype).max / (64 * len(s))
        return check(deserved, f"{described}: refused: {error}")
    pairs, values = [tuple(pair) for pair in answer[0].tolist()], exact(answer[1])
    check(not np.isnan(values).any() and (values < np.inf).all(), f"{described}: NaN or inf in the answer")
    check_pairs(case, pairs, wanted, k, limits(scores.dtype), described)
    if name == "Assignment":
        check(dict(pairs[: len(s)]) == dict(enumerate(values.argmax(axis=1).tolist())), f"{described}: first items")
    if not case.corrects and greedy:
        check_lists(values, oracles.matched_order(s, pairs), described)


def check_pairs(case: Tested, pairs: list, wanted: oracles.Answer, k: int, number: torch.finfo, described: str) -> None:
    """That pairs are the matching on the oracle's scores, to rounding."""
    name, settings = case.matching
    s, (queries, items) = wanted.values, wanted.values.shape
    check(len(set(pairs)) == len(pairs), f"{described}: a pair twice")
    if name == "Assignment":
        first = pairs[:queries]
        places = math.ceil(queries / items)
        matched = [query for query, _ in first]
        check(sorted(matched) == list(range(queries)), f"{described}: not each query has an item")
        check(max(np.bincount([item for _, item in first])) <= places, f"{described}: an item has too many queries")
        check(len(pairs) == queries, f"{described}: too many")
        return check_total(s, first, described)
    if name != "RelaxedGreedyMatching":
        return None
    if pairs == oracles.greedy_pairs(s, k, **settings):
        return None
    check(case.corrects, f"{described}: pairs {pairs}, the oracle's are {oracles.greedy_pairs(s, k, **settings)}")
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


def check_lists(lists: np.ndarray, wanted: list[list[int]], described: str) -> None:
    """That rows of values have the wanted order."""
    got = np.argsort(-lists, axis=1, kind="stable").tolist()
    check(got == wanted, "{}: order {}, the oracle's is {}", described, got, wanted)


def vectors(random: np.random.Generator, rows: int, dim: int, whole: bool) -> np.ndarray:
    """Rows of small whole numbers, whose products are exact, or unit vectors; some rows are copies."""
    if whole:
        values = random.integers(-3, 4, (rows, dim)).astype(float)
    else:
        values = random.normal(size=(rows, dim))
        values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values[random.integers(rows, size=rows)] if random.random() < 0.3 else values


def search(random: np.random.Generator, case: Tested) -> None:
    """The streaming form from vectors."""
    (queries, items), dim = sizes(random, case), int(random.integers(1, 5))
    whole = random.random() < 0.7
    dtype = TYPES[random.choice(4, p=SHARES)] if whole else TYPES[random.integers(2)]
    # Powers of two leave products exact, from those that underflow to those that are infinite.
    powers = (-600, -510, 0, 300, 600) if dtype == torch.float64 else (-100, -70, -60, -3, 20, 62, 100)
    scale = 2.0 ** random.choice(powers) if whole and random.random() < 0.3 else 1.0
    needs = case.criterion.needs_reference or random.random() < 0.05
    transductive = case.matching is not None or not needs or random.random() < 0.5
    drawn = [vectors(random, rows, dim, whole) * scale for rows in (queries, items, size(random))]
    if whole and random.random() < 0.5:
        drawn = [side / 4 / math.sqrt(4 ** math.ceil(math.log(dim, 4))) for side in drawn]  # products below 1
    spoil = random.random() < 0.12
    sides = [tensor(random, spoilt(random, side, 0.4 if spoil else 0), dtype) for side in drawn]
    k = int(random.integers(-1, items + 4)) if random.random() < 0.1 else int(random.integers(1, items + 1))
    reference = "transductive" if transductive else describe(sides[2])
    described = f"{describe(sides[0])} {describe(sides[1])} reference {reference} k {k}"
    arguments = [side.numpy() if dtype != torch.bfloat16 and random.random() < 0.3 else side for side in sides]
    if transductive:
        result, error = refused(lambda: case.criterion.search(*arguments[:2], k=k))
    else:
        result, error = refused(lambda: case.criterion.search(*arguments, k=k))
    if not 1 <= k <= items:
        return check(error, f"{described}: k is not refused")
    number = limits(dtype)
    s, r = product(sides[0], sides[1], number), None if transductive else product(sides[2], sides[1], number)
    g = product(sides[1], sides[1], number) if case.needs_item_scores else None
    finite = all(
        bool(side.isfinite().all())
        for side in (sides[:2] if transductive or not case.criterion.needs_reference else sides)
    )
    multiplied = (sides[:2] if transductive else sides) + [sides[1]] * case.needs_item_scores
    if error and not (finite and most_of_a_sum(multiplied) < number.max / 64):
        return None
    check_search(case, s, r, g, k, number, whole, (result, error), described)


def most_of_a_sum(sides: list[Tensor]) -> float:
    """The largest sum of magnitudes in an inner product: parts may be too large where the whole is not."""
    queries, items, *reference = (np.abs(exact(side)) for side in sides)
    return max((rows @ items.T).max() for rows in (queries, *reference))


def product(queries: Tensor, items: Tensor, number: torch.finfo) -> np.ndarray:
    """Inner products as the type has them that is computed in."""
    scores = exact(queries) @ exact(items).T
    return scores.astype(np.float32).astype(float) if number.dtype == "float32" else scores


def check_search(
    case: Tested,
    s: np.ndarray,
    r: np.ndarray | None,
    g: np.ndarray | None,
    k: int,
    number: torch.finfo,
    whole: bool,
    said: tuple,
    described: str,
) -> None:
    """The lists of a search against the oracle's."""
    result, error = said
    if error:
        deserved = case.matching and case.matching[0] == "RelaxedGreedyMatching"
        deserved = deserved and oracles.places(*s.shape, k, **case.matching[1]) == 0
        wanted = None if deserved else (case.oracle(s, r, g) if case.corrects else oracles.nns(s, s))
        return check(
            wanted is None or not wanted.size < number.max / (64 * max(s.shape)), f"{described}: refused: {error}"
        )
    values, positions = (np.asarray(side).astype(float if place == 0 else int) for place, side in enumerate(result))
    check(values.shape == positions.shape == (len(s), k), f"{described}: lists of shape {positions.shape}")
    check(np.isfinite(values).all(), f"{described}: values are NaN or infinite")
    check(
        all(len(set(row)) == k and 0 <= min(row) <= max(row) < s.shape[1] for row in positions.tolist()),
        f"{described}: no items",
    )
    wanted = case.oracle(s, r, g) if case.corrects else oracles.nns(s, s)
    if wanted is None:
        return None
    if not whole and wanted.gap <= PRODUCTS * number.eps * oracles.largest(s):  # of copies either may come first
        return None
    room = room_of(wanted, number, ROUNDING if whole else PRODUCTS)
    if not whole and not room.any():  # what is inexact are the products
        room = np.full(s.shape, PRODUCTS * number.eps * oracles.largest(s))
    if case.matching:
        return check_matched_search(case, wanted, k, room, positions, described)
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
    complete = rest.max(axis=1) <= listed[:, -1] + slack[:, -1]
    complete |= ~np.isfinite(s).all(axis=1)  # nothing is nearer than infinity
    check(complete.all(), "{}: {} leave out a better item", described, positions)


def check_matched_search(
    case: Tested, wanted: oracles.Answer, k: int, room: np.ndarray, positions: np.ndarray, described: str
) -> None:
    """The lists of a search that matches; where rounding or the solver decides, they need only be lists."""
    name, settings = case.matching
    # Chains stream the item's term and the query's; the inverted softmax's own query stays in its sum.
    s = wanted.ranked if case.steps[0][0] == "InvertedSoftmax" else wanted.values
    if name == "Assignment" and not room.any():
        return check_total(s, list(enumerate(positions[:, 0].tolist())), described)
    if name != "RelaxedGreedyMatching" or (room.any() and tied(s, 4 * room.max())):
        return None
    best = [row[:k] for row in oracles.matched_order(s, oracles.greedy_pairs(s, k, **settings))]
    return check(positions.tolist() == best, "{}: {}, the oracle's are {}", described, positions.tolist(), best)

"""Random nasty cases through every criterion and every metric, against naive oracles.

A case is one small random matrix (ties, copies of rows and columns, NaN, infinities, numbers from denormal to 1e30 and
beyond, one query, one item, k above what there is, all number types) and one criterion or one metric. The answer has to
be the oracle's, to rounding, or an InputError that the input deserves. Anything else is wrong: another answer, another
exception, an InputError about good input, more than SECONDS_A_CASE.

Criteria are those of conf/criterion: a new one is tortured without a line here. Where `oracles.FORMULAS` lacks its
formula, its search is held against its own dense form only, and the command says so.

    python tools/torture/numeric.py --cases 100000 --seed 0
    python tools/torture/numeric.py --seed 0 --only 4711      one case of a report again, its error raised
"""

import argparse
import logging
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import oracles
import torch
from criterion_cases import Tested, criterion_case, discover
from drawing import Wrong
from metric_cases import METRICS
from tqdm import tqdm

SECONDS_A_CASE = 20
MOST_NAMED = 50
SHARE_OF_METRICS = 0.35


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

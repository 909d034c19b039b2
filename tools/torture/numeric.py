"""Random nasty cases through every criterion and every metric, against naive oracles.

A case is one small random matrix (ties, copies of rows and columns, NaN, infinities, numbers from denormal to 1e30 and
beyond, one query, one item, k above what there is, all number types) and one criterion or one metric. The answer has to
be the oracle's, to rounding, or an InputError that the input deserves. Anything else is wrong: another answer, another
exception, an InputError about good input, more than SECONDS_A_CASE.

Criteria are those of conf/criterion: a new one is tortured without a line here. Where `oracles.FORMULAS` lacks its
formula, only errors, NaN and lists that are none are noticed, and the command says so.

    python tools/torture/numeric.py --cases 100000 --seed 0
    python tools/torture/numeric.py --seed 0 --only 4711      one case of a report again, its error raised
"""

import argparse
import logging
import math
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import oracles
import torch
from criterion_cases import Tested, criterion_case, discover
from metric_cases import METRICS

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


def run(seconds: float | None, seed: int, cases: float = math.inf) -> dict[str, Any]:
    """Draw cases until the seconds have passed, or so many cases.

    Returns {"cases": how many, "wrong": texts that name seed and case, at most MOST_NAMED of them}.
    """
    tested, wrong, end, number = discover(), [], time.monotonic() + (seconds or math.inf), 0
    logging.getLogger("vsehub").setLevel(logging.ERROR)
    signal.signal(signal.SIGALRM, late)
    while number < cases and time.monotonic() < end and len(wrong) < MOST_NAMED:
        name, work = drawn_case(seed, number, tested)
        signal.alarm(SECONDS_A_CASE)
        try:
            with np.errstate(all="ignore"):  # of the oracles' infinities
                work()
        except Exception as error:
            wrong.append(f"seed {seed} case {number}: {name}: {type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
        number += 1
    return {"cases": number, "wrong": wrong}


def late(*_: Any) -> None:
    """End a case that takes too long."""
    raise TimeoutError(f"not done after {SECONDS_A_CASE} s")


def without_formula() -> list[str]:
    """Criteria whose correction or matching has no oracle."""
    known = {*oracles.FORMULAS, "RelaxedGreedyMatching", "Assignment"}
    return [variants[0].name for variants in discover() if not known.issuperset(name for name, _ in variants[0].steps)]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, help="or for how long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one case again, its error raised")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.only is not None:
        name, work = drawn_case(options.seed, options.only, discover())
        print(name)
        work()
        return
    result = run(options.seconds, options.seed, math.inf if options.seconds else options.cases)
    print(*result["wrong"], *[f"{name}: no formula in oracles.py" for name in without_formula()], sep="\n")
    print(f"numbers: {result['cases']:,} cases, seed {options.seed}: {len(result['wrong'])} wrong")
    sys.exit(bool(result["wrong"]))


if __name__ == "__main__":
    main()

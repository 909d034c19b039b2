"""`make torture`: malformed inputs, kills, numbers and collections, each for its share of the time.

    python tools/torture/torture.py [--minutes 10] [--seed 0] [--parts inputs kills numeric model]

What went wrong is printed with what repeats it. Exit status 1 where anything went wrong.
"""

import argparse
import importlib
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

SHARES = {"inputs": 0.30, "kills": 0.45, "numeric": 0.15, "model": 0.10}


def run(part: str, seconds: float, seed: int) -> dict:
    """The number of cases of a part, and what was wrong with them."""
    return importlib.import_module(part).run(seconds, seed)


def main() -> None:
    """Run the parts, each in a process of its own, which inherits nothing that another has loaded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts together (%(default)g)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=SHARES, default=list(SHARES))
    options = parser.parse_args()
    wrong, whole = 0, sum(SHARES[part] for part in options.parts)
    for part in options.parts:
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
            result = fresh.submit(run, part, 60 * options.minutes * SHARES[part] / whole, options.seed).result()
        wrong += len(result["wrong"])
        print(
            f"{part}: {result['cases']:,} cases, {len(result['wrong'])} wrong", *result["wrong"], sep="\n  ", flush=True
        )
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

"""`make torture`: malformed inputs, kills and numbers, each for its share of the time.

    python tools/torture/torture.py [--minutes 10] [--seed 0] [--parts inputs kills numeric]

What went wrong is printed with what repeats it. Exit status 1 where anything went wrong.
"""

import argparse
import importlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

# Each part's share of the time, and what it is.
PARTS = {
    "inputs": (0.30, "malformed inputs, through the commands"),
    "kills": (0.50, "kill -9, TERM and INT, then the same command again"),
    "numeric": (0.20, "criteria and metrics against naive computations"),
}
SHOWN = 20


def main() -> int:
    """Run the parts; 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts together (%(default)g)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    whole = sum(PARTS[part][0] for part in arguments.parts)
    failed = False
    for part in arguments.parts:
        share, what = PARTS[part]
        print(f"{part}: {what}", flush=True)
        began = time.perf_counter()
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # no part inherits what another has loaded
            found = fresh.submit(run, part, 60 * arguments.minutes * share / whole, arguments.seed).result()
        seconds = time.perf_counter() - began
        failed |= bool(found["wrong"])
        print(f"{part}: {found['cases']:,} cases, {len(found['wrong'])} wrong, {seconds:.0f} s", flush=True)
        for text in found["wrong"][:SHOWN]:
            print(f"  {text}")
    return int(failed)


def run(part: str, seconds: float, seed: int) -> dict:
    """What a part found."""
    return importlib.import_module(part).run(seconds, seed)


if __name__ == "__main__":
    sys.exit(main())

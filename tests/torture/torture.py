"""`make torture`: malformed inputs, kills, faults, fuzzing and numbers, each for its share of the time.

    python tests/torture/torture.py [--minutes 10] [--seed 0] [--parts inputs kills faults fuzz numeric]

What went wrong is printed with what repeats it. The figures are written to results/ beside this file and to the table
in README.md. Exit status 1 where anything went wrong.
"""

import argparse
import importlib
import json
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

HERE = Path(__file__).parent

# Each part's share of the time, and what it is.
PARTS = {
    "inputs": (0.25, "malformed inputs, through the commands"),
    "kills": (0.35, "kill -9, TERM and INT, then the same command again"),
    "faults": (0.15, "full disks, missing rights, little memory, two processes at once"),
    "fuzz": (0.15, "mutated files, through every reader"),
    "numeric": (0.10, "criteria and metrics against naive computations"),
}
SHOWN = 20
BEGIN, END = "<!-- generated -->", "<!-- end of the generated part -->"


def main() -> int:
    """Run the parts; 1 where anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts together (%(default)g)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the figures")
    arguments = parser.parse_args()
    whole = sum(PARTS[part][0] for part in arguments.parts)
    record = {"date": datetime.now(UTC).date().isoformat(), "seed": arguments.seed, "parts": {}}
    for part in arguments.parts:
        share, what = PARTS[part]
        print(f"{part}: {what}", flush=True)
        began = time.perf_counter()
        with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # no part inherits what another has loaded
            found = fresh.submit(run, part, 60 * arguments.minutes * share / whole, arguments.seed).result()
        seconds = time.perf_counter() - began
        record["parts"][part] = {"seconds": round(seconds, 1), **found}
        print(f"{part}: {found['cases']:,} cases, {len(found['wrong'])} wrong, {seconds:.0f} s", flush=True)
        for text in found["wrong"][:SHOWN]:
            print(f"  {text}")
    write(record, arguments.results)
    return int(any(part["wrong"] for part in record["parts"].values()))


def run(part: str, seconds: float, seed: int) -> dict:
    """What a part found."""
    return importlib.import_module(part).run(seconds, seed)


def write(record: dict, folder: Path) -> None:
    """The figures as JSON, with versions and hardware, and the table of all such files in README.md."""
    from vsehub import __version__
    from vsehub.io.files import write_json, write_text
    from vsehub.io.provenance import code_version, hardware, versions

    record |= {"vsehub": __version__, "git": code_version(), "versions": versions(), "hardware": hardware()}
    write_json(folder / f"{record['date']}-seed{record['seed']}.json", record)
    lines = ["| date | seed | part | cases | wrong | seconds | hardware |", "|---|---|---|---|---|---|---|"]
    for path in sorted(folder.glob("*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        machine = f"{one['hardware']['cpu']}, {one['hardware']['cores']} cores"
        lines += [
            f"| {one['date']} | {one['seed']} | {name} | {part['cases']:,} | {len(part['wrong'])} | "
            f"{part['seconds']:.0f} | {machine} |"
            for name, part in one["parts"].items()
            if part["cases"]
        ]
    page = HERE / "README.md"
    text = page.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    write_text(page, f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())

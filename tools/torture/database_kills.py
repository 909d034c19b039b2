"""`index` and `add` on databases, killed at random moments, given again, and held against undisturbed ones.

python tools/torture/database_kills.py [--engines milvus lancedb pgvector] [--cases 4] [--seed 0]

Each command is a process of its own, since the engines' clients have threads that a fork would not take along. Compared
are the items of the collection and what is kept beside it, and the files of the output folder.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import world
from world import OUT

STATUS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
SLOW = 15  # seconds within which a signal is to be answered
FOLDERS = {"milvus": f"{OUT}/index.milvus.db", "lancedb": f"{OUT}/index.lancedb"}
DUMP = """
import hashlib, sys
from vsehub.serving.databases.collection import open_collection, read_items
from vsehub.serving.databases.engines import Location

with open_collection(Location(sys.argv[1], sys.argv[2], "vsehub")) as collection:
    ids, vectors = read_items(collection.database, collection.metadata["dim"] + 1)
    rows = sorted(zip(ids, vectors.tolist()))
    digest = hashlib.sha256(repr(rows).encode()).hexdigest()
    print(len(rows), len(collection), digest, collection.reference.sum().item())
"""


def started(cwd: Path, *arguments: str) -> subprocess.Popen:
    """A Python with these arguments."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "TQDM_DISABLE": "1"}
    # Jobs in the background of some shells ignore SIGINT.
    heard = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler), "text": True}
    line = [sys.executable, *arguments]
    return subprocess.Popen(line, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **heard)


def ended(cwd: Path, *arguments: str) -> str:
    """What a Python prints, which must end well."""
    process = started(cwd, *arguments)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, f"{arguments} ends with {process.returncode}: {err[-1500:]}"
    return out


def commands(engine: str, uri: str | None, files: Path) -> dict[str, list[str]]:
    """By name; uri: None for a folder in `out`."""
    sides = [f"{name}={files / name}.npy" for name in ("queries", "items", "reference")]
    new = ["add", f"items={files / 'new.npy'}", f"item_ids={files / 'new.txt'}"]
    settings = {
        "rerank": ["rerank", *sides, "normalize=true", "criterion=csls", f"out={OUT}"],
        "index": ["index", OUT, f"engine={engine}", "overwrite=true", *([f"uri={uri}"] if uri else [])],
        "add": [*new, f"engine={engine}", f"uri={uri or FOLDERS[engine]}"],
    }
    return {name: ["-m", "vsehub", *words] for name, words in settings.items()}


def case(name: str, arguments: dict, dump: list[str], whole: dict, base: Path, draw: random.Random) -> list[str]:
    """What is wrong after one command was killed and given again. whole: undisturbed, its seconds and what it left."""
    cwd = Path(tempfile.mkdtemp(dir=base))
    for step in ("rerank", "index")[: 1 + (name == "add")]:
        ended(cwd, *arguments[step])
    number, share = draw.choice(list(STATUS)), draw.uniform(0.3, 1.0)
    process = started(cwd, *arguments[name])
    time.sleep(share * whole["seconds"])
    process.send_signal(number)
    sent = time.monotonic()
    _, said = process.communicate(timeout=120)
    wrong = [] if time.monotonic() - sent < SLOW else [f"answered after {time.monotonic() - sent:.1f} seconds"]
    # 0: it was done; without a word: it exited, or had not begun.
    if process.returncode not in (0, STATUS[number], *([] if said else [-number])):
        wrong.append(f"status {process.returncode}: {said[-600:]}")
    ended(cwd, *arguments[name])
    dumped = ended(cwd, *dump)
    wrong += [] if dumped == whole["items"] else [f"{dumped}, not {whole['items']}"]
    # The bytes of a folder include earlier versions of what is in it.
    wrong += [
        difference
        for difference in world.differences(cwd / OUT, whole["out"])
        if name == "index" and "/bytes" not in difference
    ]
    return [f"{name}, {number.name} at {share:.2f}, in {cwd}: {text}" for text in wrong]


def run(engine: str, cases: int, seed: int, base: Path) -> list[str]:
    """What is wrong with the cases of one engine, half of each command."""
    draw, numbers, cwd, whole = random.Random(f"{seed} {engine}"), np.random.default_rng(0), base / engine, {}
    cwd.mkdir()
    for name, rows in (("queries", 400), ("items", 12_000), ("reference", 500), ("new", 300)):
        np.save(base / f"{name}.npy", numbers.standard_normal((rows, 32), np.float32))
    (base / "new.txt").write_text("".join(f"new {row}\n" for row in range(300)))
    uri = postgres() if engine == "pgvector" else None
    arguments, dump = commands(engine, uri, base), ["-c", DUMP, engine, uri or FOLDERS[engine]]
    for name in arguments:
        began = time.monotonic()
        ended(cwd, *arguments[name])
        whole[name] = {"seconds": time.monotonic() - began, "out": cwd / OUT}
        whole[name]["items"] = ended(cwd, *dump) if name != "rerank" else ""
    wrong = []
    for name in ("index", "add") * (cases // 2):
        wrong += case(name, arguments, dump, whole[name], base, draw)
    return wrong


def postgres() -> str:
    """The URI of a Postgres from the wheel pgserver, which ends with this process."""
    import pgserver

    return pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=[*FOLDERS, "pgvector"], default=list(FOLDERS))
    parser.add_argument("--cases", type=int, default=4, help="of each engine")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="vsehub-database-kills-"))
    wrong = [text for engine in options.engines for text in run(engine, options.cases, options.seed, base)]
    print(*wrong, f"{len(wrong)} wrong", sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

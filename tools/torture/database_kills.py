"""`index` and `add` on databases, killed at random moments, given again, and held against undisturbed ones.

python tools/torture/database_kills.py [--engines milvus lancedb pgvector] [--cases 4] [--seed 0]

Each command is a process of its own, since the engines' clients have threads that a fork would not take along. Compared
are the items of the collection and of what is kept beside it, and the files of the output folder.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import world

SOURCES = Path(__file__).resolve().parents[2] / "src"
SIGNALS = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
SLOW = 15  # seconds within which a signal is to be answered
FOLDERS = {"milvus": "index.milvus.db", "lancedb": "index.lancedb"}
ITEMS, QUERIES, DIM = 12_000, 400, 32
DUMP = """
import hashlib, json, sys
from vsehub.serving.databases.collection import open_collection
from vsehub.serving.databases.engines import Place

with open_collection(Place(sys.argv[1], sys.argv[2], "vsehub")) as collection:
    vectors, bias, ids, labels = collection.items()
    rows = sorted(zip(ids, labels, vectors.tolist(), bias.tolist()))
    print(json.dumps({
        "rows": len(rows),
        "count": len(collection),
        "items": hashlib.sha256(repr(rows).encode()).hexdigest(),
        "reference": hashlib.sha256(collection.reference.numpy().tobytes()).hexdigest(),
    }))
"""


def started(arguments: list[str], cwd: Path) -> subprocess.Popen:
    """A command of vsehub."""
    environment = os.environ | {"PYTHONPATH": str(SOURCES), "TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    line = [sys.executable, "-m", "vsehub", *arguments]
    return subprocess.Popen(
        line,
        cwd=cwd,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # Jobs in the background of some shells ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def held(engine: str, uri: str, cwd: Path) -> dict[str, Any]:
    """What is in a collection: numbers of rows, digests, and whether it is complete."""
    environment = os.environ | {"PYTHONPATH": str(SOURCES)}
    told = subprocess.run(
        [sys.executable, "-c", DUMP, engine, uri], cwd=cwd, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(told.stdout.splitlines()[-1])


def commands(engine: str, uri: str | None, files: Path) -> dict[str, list[str]]:
    """By name; uri: None for a folder in `out`."""
    place = [f"engine={engine}", *([] if uri is None else [f"uri={uri}"])]
    own = [f"engine={engine}", f"uri={uri or f'{world.OUT}/{FOLDERS[engine]}'}"]
    sides = [f"{name}={files / name}.npy" for name in ("queries", "items", "reference")]
    return {
        "rerank": ["rerank", *sides, "normalize=true", "criterion=csls", f"out={world.OUT}"],
        "index": ["index", world.OUT, *place],
        "add": ["add", f"items={files / 'new.npy'}", f"item_ids={files / 'new.txt'}", *own],
    }


def case(engine: str, name: str, uri: str | None, files: Path, base: Path, whole: dict, draw: random.Random) -> dict:
    """One command, killed and given again. whole: its undisturbed collection and seconds."""
    cwd = Path(tempfile.mkdtemp(dir=base))
    arguments = commands(engine, uri, files)[name]
    given = commands(engine, uri, files)
    ended(given["rerank"], cwd)
    if name == "add":
        ended([*given["index"], "overwrite=true"], cwd)
    elif uri is not None:  # something else to replace
        ended([*given["rerank"][:-1], "out=before", "criterion=is"], cwd)
        ended(["index", "before", *arguments[2:], "overwrite=true"], cwd)
        arguments = [*arguments, "overwrite=true"]
    number, share = draw.choice(list(SIGNALS)), draw.uniform(0.3, 1.0)
    process = started(arguments, cwd)
    time.sleep(share * whole["seconds"])
    process.send_signal(number)
    sent = time.monotonic()
    _, said = process.communicate(timeout=120)
    answered, wrong = time.monotonic() - sent, []
    landed = process.returncode != 0
    silent = process.returncode == -number and not said  # while it exits, or before it has begun
    if landed and process.returncode != SIGNALS[number] and not silent:
        wrong.append(f"status {process.returncode}: {said[-600:]}")
    if answered > SLOW and landed:
        wrong.append(f"answered after {answered:.1f} seconds")
    if landed or name == "add":  # it may have been killed after its last item
        ended([*arguments, *(["overwrite=true"] if name == "index" and "overwrite=true" not in arguments else [])], cwd)
    found = held(engine, uri or f"{world.OUT}/{FOLDERS[engine]}", cwd)
    wrong += [] if found == whole["held"] else [f"{found}, not {whole['held']}"]
    if name == "index":
        # The bytes of a folder include earlier versions of what is in it.
        wrong += [one for one in world.differences(cwd / world.OUT, whole["out"]) if "/index/bytes" not in one]
    told = {"engine": engine, "command": name, "kill": f"{number.name} at {share:.2f}", "landed": landed}
    if not wrong:
        shutil.rmtree(cwd)
    return told | {"answered": round(answered, 1), "wrong": wrong}


def ended(arguments: list[str], cwd: Path) -> float:
    """Run a command, which must end well; the seconds that it took."""
    began = time.monotonic()
    process = started(arguments, cwd)
    _, said = process.communicate(timeout=600)
    assert process.returncode == 0, f"{arguments[0]} ends with {process.returncode}: {said[-1500:]}"
    return time.monotonic() - began


def run(engine: str, cases: int, seed: int, base: Path) -> list[dict[str, Any]]:
    """The cases of one engine, half of each command."""
    files, draw = base / "files", random.Random(f"{seed} {engine}")
    random_numbers = np.random.default_rng(0)
    files.mkdir(exist_ok=True)
    for name, rows in (("queries", QUERIES), ("items", ITEMS), ("reference", 500), ("new", 300)):
        np.save(files / f"{name}.npy", random_numbers.standard_normal((rows, DIM), np.float32))
    (files / "new.txt").write_text("".join(f"new {row}\n" for row in range(300)))
    uri = postgres() if engine == "pgvector" else None
    cwd = base / "undisturbed" / engine
    cwd.mkdir(parents=True)
    made = {}
    for name, arguments in commands(engine, uri, files).items():
        seconds = ended(arguments, cwd)
        where = uri or f"{world.OUT}/{FOLDERS[engine]}"
        if name != "rerank":
            made[name] = {"seconds": seconds, "held": held(engine, where, cwd), "out": cwd / world.OUT}
    names = [("index", "add")[number % 2] for number in range(cases)]
    return [case(engine, name, uri, files, base, made[name], draw) for name in names]


def postgres() -> str:
    """The URI of a Postgres from the wheel pgserver, which ends with this process."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        return pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete").get_uri()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=[*FOLDERS, "pgvector"], default=list(FOLDERS))
    parser.add_argument("--cases", type=int, default=4, help="of each engine")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="vsehub-database-kills-"))
    done = [one for engine in given.engines for one in run(engine, given.cases, given.seed, base)]
    print(json.dumps(done, indent=1))
    wrong = any(one["wrong"] for one in done)
    if not wrong:
        shutil.rmtree(base)
    raise SystemExit(int(wrong))


if __name__ == "__main__":
    main()

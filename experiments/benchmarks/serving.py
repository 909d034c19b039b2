"""Requests to `vsehub serve`: one client beside a plain product of numpy.

Generated items (generated.py) are served by the command. One client asks by known query and by vector; an answer holds
both lists with all facts of their items. The plain baseline is numpy's product with the items and the k best of it, of
the same queries, in the same run.

    python -m experiments.benchmarks.serving [--items 100000] [--dim 512]
"""

import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from experiments.benchmarks import common, generated

WARM = 20


def measure(options, folder: Path) -> dict:
    """Seconds of one client's requests, and the memory of the server."""
    items = generated.vectors(options.items, options.dim, 1).numpy()
    queries = generated.vectors(options.queries, options.dim, 2).numpy()
    np.save(folder / "items.npy", items)
    np.save(folder / "queries.npy", queries)
    began = time.perf_counter()
    files = [f"items={folder}/items.npy", f"queries={folder}/queries.npy", "normalize=true"]
    server = subprocess.Popen(
        [sys.executable, "-m", "vsehub", "serve", *files, "port=0"], stdout=subprocess.PIPE, text=True
    )
    try:
        port = next(int(line.split(":")[2].split()[0]) for line in server.stdout if line.startswith("http://"))
        started = time.perf_counter() - began
        plain = baseline(items, queries, options.requests)
        by_query = one_client(port, [(f"/api/search?query={n}", None) for n in range(options.requests + WARM)])
        vectors = [json.dumps({"vector": queries[n].tolist()}) for n in range(options.requests + WARM)]
        by_vector = one_client(port, [("/api/search", body) for body in vectors])
        return {
            "items": options.items,
            "dim": options.dim,
            "started": started,
            "plain": common.summary(plain),
            "by query": common.summary(by_query),
            "by vector": common.summary(by_vector),
            "resident": resident(server.pid),
        }
    finally:
        server.terminate()
        server.wait(30)


def baseline(items: np.ndarray, queries: np.ndarray, count: int) -> list[float]:
    """Seconds of the product and the ten best, query by query."""
    spent = []
    for query in queries[: count + WARM]:
        began = time.perf_counter()
        scores = items @ query
        best = np.argpartition(-scores, 10)[:10]
        best[np.argsort(-scores[best])]
        spent.append(time.perf_counter() - began)
    return spent[WARM:]


def one_client(port: int, requests: list[tuple[str, str | None]]) -> list[float]:
    """Seconds of each request on one connection, after the first few."""
    connection, spent = http.client.HTTPConnection("127.0.0.1", port), []
    for path, body in requests:
        began = time.perf_counter()
        ask(connection, path, body)
        spent.append(time.perf_counter() - began)
    return spent[WARM:]


def ask(connection: http.client.HTTPConnection, path: str, body: str | None) -> None:
    """One request; raises AssertionError unless it is answered with lists."""
    connection.request("GET" if body is None else "POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    found = json.loads(answer.read())
    assert found.get("corrected"), found


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = common.arguments(__doc__)
    for name, value in (("items", 100_000), ("dim", 512), ("queries", 10_000), ("requests", 200)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        record = measure(options, Path(folder))
    rows = []
    for name in ("plain", "by query", "by vector"):
        times = record[name]
        ratio = times["median"] / record["plain"]["median"]
        rows.append((name, f"{1e3 * times['median']:.1f}", f"{ratio:.2f}"))
    text = common.table(("asked", "median, ms", "times the plain product"), rows)
    text += f"\n\nMemory of the server: {record['resident'] / 1e6:,.0f} MB; ready after {record['started']:.0f} s.\n"
    title = f"vsehub serve, {record['items']:,} items of {record['dim']} dimensions"
    common.report("serving", title, record, text, common.device_of("cpu"), options.out)


if __name__ == "__main__":
    main()

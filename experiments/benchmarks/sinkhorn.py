"""Sinkhorn normalisation over very many scores: rounds on the large shares against rounds on all scores.

Biases are fitted both ways in turns, from made-up vectors with hubs (generated.py), and 1,000 other queries are
ranked by each. CPU seconds, so that other work on the machine counts for little; the least of each way.

    python -m experiments.benchmarks.sinkhorn [--items 100000] [--reference 2700] [--dim 512] [--temperatures 0.01 ...]
"""

import time

import torch

from experiments.benchmarks import common, generated
from vsehub.criteria import Sinkhorn, sinkhorn
from vsehub.criteria.base import fit_all
from vsehub.neighbors.screened import Affine
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors

QUERIES, K = 1000, 10
LIMIT = 0.333


def measure(options, temperature: float) -> dict:
    """CPU seconds of both ways, how far the biases differ, and how many lists are equal."""
    sizes = (options.items, options.reference, QUERIES)
    items, reference, queries = (
        as_vectors("vectors", generated.vectors(rows, options.dim, seed)) for seed, rows in enumerate(sizes, 1)
    )
    criterion, many = Sinkhorn(temperature), sinkhorn.MANY
    seconds: dict[str, list[float]] = {"all scores": [], "large shares": []}
    biases = {}
    for _ in range(options.rounds):
        for name, least in (("all scores", float("inf")), ("large shares", 0)):
            sinkhorn.MANY = least
            began = time.process_time()
            biases[name] = fit_all([criterion], items, reference)[0][0]
            seconds[name].append(time.process_time() - began)
    sinkhorn.MANY = many
    corrections = [Affine(criterion.scale, bias) for bias in biases.values()]
    (_, wanted), (_, found) = nearest(queries, items, K, corrections)
    off = (biases["large shares"] - biases["all scores"]).double()
    off = temperature * (off - off.mean())
    return {
        "temperature": temperature,
        "seconds": {name: common.summary(own) for name, own in seconds.items()},
        "root mean square": off.square().mean().sqrt().item(),
        "first items equal": (found[:, 0] == wanted[:, 0]).double().mean().item(),
        "ten items equal": (found == wanted).double().mean().item(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and write."""
    parser = common.arguments(__doc__)
    for name, value in (("items", 100_000), ("reference", 2700), ("dim", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.005, 0.01, 0.02])
    options = parser.parse_args(arguments)
    found = [measure(options, one) for one in options.temperatures]
    rows = []
    for one in found:
        least = {name: own["least"] for name, own in one["seconds"].items()}
        ratio = least["large shares"] / least["all scores"]
        rows.append(
            (
                one["temperature"],
                *(f"{own:.1f}" for own in least.values()),
                f"**{ratio:.2f}**, {common.target(ratio, LIMIT)}" if one["temperature"] == 0.01 else f"{ratio:.2f}",
                f"{one['root mean square']:.1e}",
                f"{one['first items equal']:.1%}",
                f"{one['ten items equal']:.1%}",
            )
        )
    columns = ("temperature", "all scores, CPU s", "large shares, CPU s", "ratio")
    columns += ("items moved by (rms, similarity)", "first items equal", "ten best equal")
    record = {name: getattr(options, name) for name in ("items", "reference", "dim")} | {"results": found}
    title = f"Sinkhorn, {options.reference:,} reference queries x {options.items:,} items of {options.dim} dimensions"
    common.report("sinkhorn", title, record, common.table(columns, rows), torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()

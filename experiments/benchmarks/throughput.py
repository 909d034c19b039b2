"""Training steps a second, and seconds to a given rsum: ours against the plain way, in turns in one process.

The plain way: fp32; each image row read and each caption tokenised when its pair is asked for, then sorted and padded;
torch.nn.GRU of both directions over packed sequences; generalised pooling by torch's sort; Adam as torch gives it.
Ours: the data module, encoders, fused Adam and precision that `vsehub train` uses. Both: the same loss (HAL), batch,
sizes and gradient clipping, no dropout, loading in the main process.

    python -m experiments.benchmarks.throughput
    python -m experiments.benchmarks.throughput ROOT --until 260 --seeds 0,1   also train both until val reaches 260
"""

import statistics

from experiments.benchmarks import common
from experiments.benchmarks.sources import source_of
from experiments.benchmarks.ways import STAGES, Way
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.train import resolve_precision


def compare(data: RetrievalDataModule, device, precision: str, rounds: int, block: int, dim: int = 1024) -> dict:
    """Times of both ways' steps and where ours go."""
    plain = Way(data, device, "32-true", plain=True, dim=dim)
    ours = Way(data, device, precision, dim=dim)
    seconds = common.interleave({"plain": plain.step, "ours": ours.step}, rounds, device, block, warmup=3)
    ours.stages = True
    for _ in range(max(4, block)):
        ours.step()
    times = {name: common.summary(values) for name, values in seconds.items()}
    return {
        "steps": times,
        "captions_per_second": {name: data.batch_size / value["median"] for name, value in times.items()},
        "ratio": times["plain"]["median"] / times["ours"]["median"],
        "stages": {stage: statistics.median(ours.seconds[stage]) for stage in STAGES},
    }


def races(source, device, precision: str, target: float, seeds: list[int], batch: int, dim: int, every: int) -> dict:
    """{"plain": what `Way.reach` says for each seed, "ours": ...}; at most 20 epochs each."""
    timings: dict[str, list[dict]] = {"plain": [], "ours": []}
    for seed in seeds:
        data = RetrievalDataModule(source, batch, seed=seed)
        data.setup()
        for name in timings:
            plain = name == "plain"
            way = Way(data, device, "32-true" if plain else precision, plain, dim)
            timings[name].append(way.reach(target, every, 20 * len(way.loader)))
    return timings


def text(result: dict, precision: str, batch: int) -> str:
    """The tables."""
    rows = [
        (name, kind, common.shown(result["steps"][name]), f"{result['captions_per_second'][name]:.0f}")
        for name, kind in (("plain", "32-true"), ("ours", precision))
    ]
    size = f"batch {batch}, GRU {result['dim']}, words 300, data: {result['data']}"
    parts = [
        common.table(("loop", "precision", "step, median (least to most)", "captions/s"), rows),
        f"vsehub is **{result['ratio']:.2f} times** as fast as the plain loop ({size}).",
        common.table(STAGES, [[f"{result['stages'][stage] * 1e3:.1f} ms" for stage in STAGES]]),
    ]
    if "races" in result:
        rows = [
            (
                name,
                ", ".join(f"{race['seconds']:.0f} s" for race in runs),
                ", ".join(str(race["steps"]) for race in runs),
                ", ".join(f"{race['rsum']:.1f}" for race in runs),
            )
            for name, runs in result["races"].items()
        ]
        total = {name: sum(race["seconds"] for race in runs) for name, runs in result["races"].items()}
        parts += [
            f"Training until the validation rsum, measured every {result['every']} steps, is {result['target']:g} "
            f"(seeds {result['seeds']}; measuring is not timed): vsehub needs "
            f"**1/{total['plain'] / total['ours']:.2f}** of the time.",
            common.table(("loop", "training time by seed", "steps", "rsum"), rows),
        ]
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__, root=True)
    parser.add_argument("--steps", type=int, default=25, help="steps of each way that are timed (default: 25)")
    parser.add_argument("--batch", type=int, default=128, help="pairs a step (default: 128)")
    parser.add_argument("--dim", type=int, default=1024, help="the joint space's and the GRU's (default: 1024)")
    parser.add_argument("--until", type=float, metavar="RSUM", help="also train both ways until val reaches this")
    parser.add_argument("--every", type=int, default=50, help="steps between two measurements of val (default: 50)")
    parser.add_argument("--seeds", default="0", help="seeds of those runs, e.g. 0,1,2 (default: 0)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    precision = resolve_precision("auto", "gpu" if device.type == "cuda" else "cpu")
    source = source_of(options.root, options.synthetic)
    data = RetrievalDataModule(source, options.batch)
    data.setup()
    result = {"data": source.name, "precision": precision, "batch": options.batch, "dim": options.dim}
    result |= compare(data, device, precision, options.rounds, max(1, options.steps // options.rounds), options.dim)
    if options.until:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        result |= {"target": options.until, "every": options.every, "seeds": seeds}
        result["races"] = races(
            source, device, precision, options.until, seeds, options.batch, options.dim, options.every
        )
    words = text(result, precision, options.batch)
    common.report("throughput", "Training steps: ours against the plain loop", result, words, device, options.out)


if __name__ == "__main__":
    main()

"""Training steps a second: ours against the plain way, in turns in one process.

The plain way: fp32; each image row read and each caption tokenised when its pair is asked for, then sorted and padded;
torch.nn.GRU over packed sequences; Adam as torch gives it. Ours: the data module, encoders, fused Adam and precision
that `vsehub train` uses. Both: the same loss (HAL), batch, sizes and gradient clipping, loading in the main process.

    python experiments/benchmarks/throughput.py
    python experiments/benchmarks/throughput.py ROOT --rsum 5 --seeds 0,1   also train both and compare their rsum
"""

import statistics

import common
from sources import source_of
from ways import STAGES, Way

from vsehub.checks import InputError
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.settings import resolve_precision


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


def rsums(source, device, precision: str, epochs: int, seeds: list[int], batch: int, dim: int = 1024) -> dict:
    """{"plain": rsum for each seed, "ours": ...} on val after some epochs."""
    found: dict[str, list[float]] = {"plain": [], "ours": []}
    for seed in seeds:
        data = RetrievalDataModule(source, batch, seed=seed)
        for name in found:
            plain = name == "plain"
            found[name].append(Way(data, device, "32-true" if plain else precision, plain, dim).train(epochs))
    return found


def text(result: dict, precision: str, batch: int) -> str:
    """The tables."""
    rows = [
        (name, kind, common.shown(result["steps"][name]), f"{result['captions_per_second'][name]:.0f}")
        for name, kind in (("plain", "32-true"), ("ours", precision))
    ]
    parts = [
        common.table(("way", "precision", "step, median (least to most)", "captions/s"), rows),
        f"Ours is **{result['ratio']:.2f} times** as fast (batch {batch}, GRU 1024, words 300, {result['data']}).",
        common.table(STAGES, [[f"{result['stages'][stage] * 1e3:.1f} ms" for stage in STAGES]]),
    ]
    if "rsum" in result:
        rows = [
            (name, ", ".join(f"{value:.1f}" for value in values), f"{statistics.mean(values):.1f}")
            for name, values in result["rsum"].items()
        ]
        parts += [
            f"rsum on val after {result['epochs']} epochs, seeds {result['seeds']}:",
            common.table(("way", "rsum by seed", "mean"), rows),
        ]
    return "\n\n".join(parts)


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__, root=True)
    parser.add_argument("--steps", type=int, default=25, help="steps of each way that are timed (default: 25)")
    parser.add_argument("--batch", type=int, default=128, help="pairs a step (default: 128)")
    parser.add_argument("--rsum", type=int, metavar="EPOCHS", help="also train both ways and print their rsum on val")
    parser.add_argument("--seeds", default="0", help="seeds of those runs, e.g. 0,1,2 (default: 0)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    precision = resolve_precision("auto", "gpu" if device.type == "cuda" else "cpu")
    try:
        source = source_of(options.root, options.synthetic)
        data = RetrievalDataModule(source, options.batch)
        data.setup()
    except InputError as error:
        parser.error(str(error))
    result = {"data": source.name, "precision": precision, "batch": options.batch}
    result |= compare(data, device, precision, options.rounds, max(1, options.steps // options.rounds))
    if options.rsum:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        result |= {"epochs": options.rsum, "seeds": seeds}
        result["rsum"] = rsums(source, device, precision, options.rsum, seeds, options.batch)
    words = text(result, precision, options.batch)
    common.report("throughput", "Training steps: ours against the plain way", result, words, device, options.out)


if __name__ == "__main__":
    main()

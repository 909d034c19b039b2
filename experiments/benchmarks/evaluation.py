"""Full evaluation of 5,000 images and 25,000 captions against one bare product of their embeddings.

Evaluation is R@K, median and mean rank and hubness of both directions, as `vsehub evaluate` computes them under
protocol full5k, in float32 and with scores in bfloat16; the latter includes the sample that is ranked in both. The
product is 5,000 x 1,024 times 1,024 x 25,000 in blocks of 128 MB. The extra memory is the peak of a fresh
process beyond what it holds with the embeddings made. Targets: 1.5 times the product, 1 GB.

The floor is that product, 256 billion operations, for both directions, and passes over its 125 million scores (500 MB):
each direction reads all of them for the ten best items of a query and again to count the items that are not below the
query's best positive, and one direction reads them transposed. Each on its own, on one thread of an AMD EPYC with AVX2,
where the product takes 3.5 s: 0.2 s to transpose, 0.13 s for the maxima that lead to the ten best and 0.15 s to count,
both directions together, which is 1.14 times the product. The rest is the search for the ten best among those maxima,
precision, N_k and the normalisation of the vectors.

    python -m experiments.benchmarks.evaluation
"""

import multiprocessing
import re
import sys
import time
from pathlib import Path

import torch

from experiments.benchmarks import common
from vsehub.criteria import NearestNeighbor
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.scores import BLOCK_ELEMENTS
from vsehub.models import EncodedSplit
from vsehub.similarities import Cosine

IMAGES, PER_IMAGE, DIM = 5000, 5, 1024
RATIO, GIGABYTES = 1.5, 1.0


def make(images: int, device: torch.device, dim: int = DIM) -> EncodedSplit:
    """Random unit vectors, five captions an image, made in place so that making them has no peak of its own."""
    generator = torch.Generator(device).manual_seed(0)
    sides = [torch.empty(count, dim, device=device) for count in (images, PER_IMAGE * images)]
    for side in sides:
        for block in side.split(1000):
            block.normal_(generator=generator)
            block /= block.norm(dim=1, keepdim=True)
    captions = torch.arange(PER_IMAGE * images, device=device)
    return EncodedSplit(*sides, torch.stack([captions // PER_IMAGE, captions], dim=1))


def run(split: EncodedSplit):
    """The evaluation that is timed."""
    return evaluate(split, Cosine(), NearestNeighbor(), Protocol("whole"))


def product(split: EncodedSplit) -> None:
    """All scores once, thrown away block by block."""
    for block in split.images.split(max(1, BLOCK_ELEMENTS // len(split.texts))):
        block @ split.texts.T


def extra_megabytes(images: int, device: torch.device, dim: int = DIM) -> float:
    """Peak memory of an evaluation beyond the embeddings: of the GPU, or of a fresh process on the CPU."""
    if device.type == "cuda":
        split = make(images, device, dim)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run(split)
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_probe, (images, dim))


def _probe(images: int, dim: int) -> float:
    run(make(50, torch.device("cpu"), dim))  # code and thread pools that any evaluation loads
    split = make(images, torch.device("cpu"), dim)
    before = _memory("VmRSS")
    run(split)
    return (_memory("VmHWM") - before) / 2**10


def _memory(field: str) -> int:
    """Linux's VmRSS (held now) or VmHWM (the peak) of this process in KB; elsewhere the peak for both."""
    status = Path("/proc/self/status")
    if not status.is_file():
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 2**10 if sys.platform == "darwin" else peak
    # Not getrusage here: on Linux its peak begins at the parent's.
    return int(re.search(rf"{field}:\s+(\d+)", status.read_text())[1])


def measure(images: int, device: torch.device, rounds: int, dim: int = DIM) -> dict:
    """Times, the product's speed, the extra memory, and ratios of the shortest times: other work only adds to them.

    On a CPU the times are those of the process on all its threads.
    """
    split = make(images, device, dim)
    ways = {
        "product": lambda: product(split),
        "evaluation": lambda: run(split),
    }
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    seconds = common.interleave(ways, rounds, device, clock=clock)
    times = {name: common.summary(values) for name, values in seconds.items()}
    floor = times["product"]["least"]
    return {
        "images": images,
        "texts": len(split.texts),
        "dim": dim,
        "seconds": times,
        "clock": clock.__name__,
        "ratio": times["evaluation"]["least"] / floor,
        "product_gflops": 2 * images * len(split.texts) * dim / floor / 1e9,
        "extra_mb": extra_megabytes(images, device, dim),
    }


def text(result: dict) -> str:
    """The table."""
    unit = "CPU s" if result["clock"] == "process_time" else "s"
    seconds = {name: common.shown(times, 1, unit) for name, times in result["seconds"].items()}
    rows = [
        ("one bare product", seconds["product"], f"{result['product_gflops']:.0f} GFLOP/s"),
        ("evaluation, both directions", seconds["evaluation"], ""),
        (
            "evaluation / product, each at its shortest",
            f"**{result['ratio']:.2f}**",
            common.target(result["ratio"], RATIO),
        ),
        (
            "extra peak memory",
            f"**{result['extra_mb']:.0f} MB**",
            common.target(result["extra_mb"], 1024 * GIGABYTES),
        ),
    ]
    shape = f"{result['images']:,} images x {result['texts']:,} captions, D = {result['dim']:,}"
    return f"{shape}\n\n{common.table(('what', 'median (least to most)', 'note'), rows)}"


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--images", type=int, default=IMAGES, help=f"images, five captions each (default: {IMAGES})")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    result = measure(options.images, device, options.rounds)
    common.report("evaluation", "Evaluation against one product", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

"""A training step on photos with a network that is tuned, the batch encoded in parts (loader.chunk) and all at once.

Peak memory is what a fresh process takes in the step beyond what it took before; on a GPU, what torch has allocated.
The photos are noise of 3 x SIDE x SIDE pixels, which takes as long as real ones.

    python -m experiments.benchmarks.chunk [--batch 64] [--chunks 32 16 8] [--side 128] [--model convnext_tiny]
"""

import argparse
import multiprocessing
import resource
import sys
from multiprocessing.connection import Connection

import torch

from experiments.benchmarks import common
from vsehub.encoders import ImageBackbone, TextGRU
from vsehub.losses import HAL
from vsehub.similarities import Cosine
from vsehub.training.module import RetrievalModule
from vsehub.types import Batch

DIM, WORDS, LENGTH = 512, 2000, 12


def step(batch: int, chunk: int | None, side: int, model: str, rounds: int, device: torch.device) -> dict:
    """Times of a step, forwards and backwards, its peak memory in MB, its loss and the norm of its gradient."""
    torch.manual_seed(0)
    images = ImageBackbone((3, side, side), model, DIM, pretrained=False, tune=True)
    module = RetrievalModule(images, TextGRU(WORDS, DIM), Cosine(), HAL(), None, None, chunk=chunk).to(device)
    module.log_dict = lambda *_, **__: None
    for part in module.modules():  # stochastic depth and dropout, which would draw part by part
        if type(part).__name__ in ("StochasticDepth", "Dropout"):
            part.eval()
    ids = torch.arange(batch)
    photos = torch.randint(256, (batch, 3, side, side), dtype=torch.uint8)
    texts = torch.randint(4, WORDS, (batch, LENGTH))
    given = Batch(*(one.to(device) for one in (photos, texts, torch.full((batch,), LENGTH), ids, ids)))
    found: dict[str, float] = {}

    def run() -> None:
        module.zero_grad(set_to_none=False)
        loss = module.training_step(given, 0)
        loss.backward()
        found["loss"] = loss.item()

    small = Batch(*(one[:2] for one in given[:5]))
    module.chunk = None
    module.training_step(small, 0).backward()  # gradients, buffers of the libraries
    module.chunk = chunk
    before = memory(device)
    seconds = [common.timed(run, device) for _ in range(rounds)]
    norm = torch.cat([one.grad.flatten() for one in module.parameters() if one.grad is not None]).norm().item()
    return found | {"seconds": common.summary(seconds), "peak_mb": memory(device) - before, "gradient": norm}


def memory(device: torch.device) -> float:
    """The most memory in MB that this process has taken."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def child(answer: Connection, *arguments: object) -> None:
    """`step`, its result sent back."""
    answer.send(step(*arguments))


def measured(*arguments: object) -> dict:
    """`step` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(there, *arguments))
    process.start()
    there.close()
    try:
        return here.recv()
    except EOFError:
        raise SystemExit("the process of a step ended without a result; was there enough memory?") from None
    finally:
        process.join()


def text(result: dict) -> str:
    """The table."""
    whole = result["entries"][0]
    rows = [
        [
            "all" if one["chunk"] is None else str(one["chunk"]),
            common.shown(one["seconds"], 1, "s"),
            f"{one['seconds']['median'] / whole['seconds']['median']:.2f}",
            f"{one['peak_mb']:.0f} MB",
            f"{one['peak_mb'] / whole['peak_mb']:.2f}",
            f"{abs(one['gradient'] / whole['gradient'] - 1):.0e}",
        ]
        for one in result["entries"]
    ]
    columns = [
        "chunk",
        "step (least to most)",
        "to all at once",
        "memory of the step",
        "to all at once",
        "gradient off",
    ]
    return (
        f"{result['batch']} photos of {result['side']} pixels, {result['model']} tuned. The backward pass encodes "
        f"again, so a step of three passes becomes one of four.\n\n{common.table(columns, rows)}"
    )


def main(argv: list[str] | None = None) -> None:
    """Read the command line, measure, report."""
    parser: argparse.ArgumentParser = common.arguments(__doc__)
    parser.add_argument("--batch", type=int, default=64, help="pairs of the batch (default: 64)")
    parser.add_argument("--chunks", type=int, nargs="*", default=[32, 16, 8], help="parts (default: 32 16 8)")
    parser.add_argument("--side", type=int, default=128, help="pixels of a photo's side (default: 128)")
    parser.add_argument("--model", default="convnext_tiny", help="a network of torchvision (default: convnext_tiny)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    entries = [
        {"chunk": chunk} | measured(options.batch, chunk, options.side, options.model, options.rounds, device)
        for chunk in (None, *options.chunks)
    ]
    result = {"batch": options.batch, "side": options.side, "model": options.model, "entries": entries}
    common.report("chunk", "A large batch in parts", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

"""Training steps of one process against those of several that share each batch, on the CPU, one thread each.

All take the same batches of `--batch` pairs. The groups of processes take turns, so that a slow minute meets all alike.
Between processes: the time spent in gathering the rows and in giving their gradients back (waiting for the slower one
included), and that of adding up the parameters' gradients, measured apart. What it costs that a share's texts have less
in common than a batch's is measured in one process.

    python -m experiments.benchmarks.devices [ROOT] [--batch 512] [--processes 2] [--dim 1024]
"""

import contextlib
import multiprocessing
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from experiments.benchmarks import common
from experiments.benchmarks.sources import source_of
from vsehub.encoders import ImageFeatures, TextGRU, TextTransformer
from vsehub.losses import HAL
from vsehub.similarities import Cosine
from vsehub.training import gather
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule
from vsehub.training.settings import resolve_precision

TEXTS: dict[str, Callable[[int, int], nn.Module]] = {
    "GRU over the tree of prefixes": lambda words, dim: TextGRU(words, dim),
    "the same of both directions, GPO": lambda words, dim: TextGRU(words, dim, bidirectional=True, pooling="gpo"),
    "LSTM": lambda words, dim: TextGRU(words, dim, cell="lstm"),
    "Transformer": lambda words, dim: TextTransformer(words, dim, dropout=0.0),
}
# A side's rows, N x D of 4 bytes, are gathered, and their gradients are scattered: what goes over the slowest link, in
# bytes a second, where W processes pass parts around a ring.
LINKS = {"NVLink, 450 GB/s each way": 450e9, "Ethernet, 100 Gb/s": 12.5e9}


class Steps(nn.Module):
    """What distributed training wraps: a training step as `forward`."""

    def __init__(self, module: RetrievalModule):
        super().__init__()
        self.module = module

    def forward(self, batch: Any) -> torch.Tensor:
        """The loss."""
        return self.module.training_step(batch, 0)


class Clock:
    """Adds up the seconds that a function takes."""

    def __init__(self, call: Callable):
        self.call, self.seconds = call, 0.0

    def __call__(self, *arguments: Any) -> Any:
        """The function's own result."""
        began = time.perf_counter()
        found = self.call(*arguments)
        self.seconds += time.perf_counter() - began
        return found


def work(process: int, processes: int, folder: str, options: Any, text: str, answers: Connection) -> None:
    """One process: trains as many steps as it is told, and answers with seconds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    clocks = [Clock(gather._all_gather), Clock(gather._reduce_scatter)]
    if processes > 1:
        gather._all_gather, gather._reduce_scatter = clocks
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/{text}",
            rank=process,
            world_size=processes,
            timeout=timedelta(hours=2),
        )
    data = RetrievalDataModule(source_of(options.root, options.synthetic), options.batch)
    data.setup()
    torch.manual_seed(0)
    shape = tuple(data.load("train")[0].images.shape[1:])
    encoder = TEXTS[text](len(data.vocabulary), options.dim)
    module = RetrievalModule(ImageFeatures(shape, options.dim), encoder, Cosine(), HAL(), None, None)
    module.log_dict = lambda *_, **__: None
    step: nn.Module = Steps(module)
    if processes > 1:
        step = DistributedDataParallel(step)
    optimizer = torch.optim.Adam(module.parameters(), fused=True)
    loader = data.train_dataloader()
    batches = iter(loader)
    half = resolve_precision("auto", "cpu") == "bf16-mixed"
    parameters = torch.zeros(sum(one.numel() for one in module.parameters()))
    answers.send(None)
    while (count := answers.recv()) is not None:
        for clock in clocks:
            clock.seconds = 0.0
        began = time.perf_counter()
        for _ in range(count):
            batch = next(batches, None)
            if batch is None:
                batches = iter(loader)
                batch = next(batches)
            with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
                loss = step(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 2.0)
            optimizer.step()
        seconds = time.perf_counter() - began
        rows = sum(clock.seconds for clock in clocks)
        began = time.perf_counter()
        if processes > 1:
            dist.all_reduce(parameters)
        adding = time.perf_counter() - began
        answers.send((seconds / count, rows / count, adding, loss.item(), parameters.numel()))


class Group:
    """Processes that train together and wait between their turns."""

    def __init__(self, processes: int, folder: str, options: Any, text: str):
        context = multiprocessing.get_context("spawn")
        self.ends: list[Connection] = []
        self.started: list[Any] = []
        for process in range(processes):
            here, there = context.Pipe()
            one = context.Process(target=work, args=(process, processes, folder, options, text, there), daemon=True)
            one.start()
            there.close()  # so that its end is noticed
            self.ends.append(here)
            self.started.append(one)
        for end in self.ends:
            end.recv()

    def run(self, steps: int) -> tuple[float, ...]:
        """Train; process 0's seconds a step, those of gathering, of adding gradients; the loss; the parameters."""
        for end in self.ends:
            end.send(steps)
        answers = [end.recv() for end in self.ends]
        return answers[0]

    def close(self) -> None:
        """End the processes."""
        for end in self.ends:
            end.send(None)
        for one in self.started:
            one.join()


def in_shares(options: Any, text: str) -> float:
    """Time to encode a batch's texts share by share, forward and backward, in one process, over that of all at once.

    Above 1 where the texts of a batch have work in common, as beginnings that the prefix GRU computes once.
    """
    torch.set_num_threads(1)
    data = RetrievalDataModule(source_of(options.root, options.synthetic), options.batch)
    data.setup()
    encoder, batch = TEXTS[text](len(data.vocabulary), options.dim), next(iter(data.train_dataloader()))
    half = resolve_precision("auto", "cpu") == "bf16-mixed"

    def encode(size: int) -> None:
        for texts, lengths in zip(batch.texts.split(size), batch.lengths.split(size), strict=True):
            with torch.autocast("cpu", torch.bfloat16) if half else contextlib.nullcontext():
                found = encoder(texts, lengths)
            found.float().square().sum().backward()

    sizes = {"whole": options.batch, "shares": options.batch // options.processes}
    ways = {name: lambda size=size: encode(size) for name, size in sizes.items()}
    seconds = common.interleave(ways, options.rounds, torch.device("cpu"))
    return statistics.median(seconds["shares"]) / statistics.median(seconds["whole"])


def compare(options: Any, text: str) -> dict:
    """Both groups' times with a text encoder."""
    with tempfile.TemporaryDirectory() as folder:
        groups = {count: Group(count, folder, options, text) for count in (1, options.processes)}
        for group in groups.values():
            group.run(3)
        found: dict[int, list[tuple]] = {count: [] for count in groups}
        for _ in range(options.rounds):
            for count, group in groups.items():
                found[count].append(group.run(options.steps))
        for group in groups.values():
            group.close()
    alone, several = found[1], found[options.processes]
    return {
        "text": text,
        "parameters": alone[0][4],
        "alone": common.summary([one[0] for one in alone]),
        "several": common.summary([one[0] for one in several]),
        "rows": statistics.median(one[1] for one in several),
        "adding": statistics.median(one[2] for one in several),
        "in_shares": in_shares(options, text),
        "loss_off": max(abs(one[3] - other[3]) for one, other in zip(alone, several, strict=True)),
    }


def text(result: dict) -> str:
    """The tables."""
    rows = [
        [
            one["text"],
            common.shown(one["alone"]),
            common.shown(one["several"]),
            f"**{one['alone']['median'] / one['several']['median']:.2f}**",
            f"{one['in_shares']:.2f}",
            f"{one['rows'] / one['several']['median']:.1%}",
            f"{one['adding'] / one['several']['median']:.1%}",
            f"{one['loss_off']:.0e}",
        ]
        for one in result["entries"]
    ]
    columns = ["text encoder", "step of one", f"of {result['processes']}", "times as fast", "in shares"]
    columns += ["rows", "gradients", "off"]
    pairs, dim = 4096, result["dim"]
    parameters = max(one["parameters"] for one in result["entries"])
    sent = 2 * 2 * pairs * dim * 4, 2 * parameters * 4
    paper = [
        [name, *(f"{1e3 * size * (count - 1) / count / speed:.2f} ms" for count in (8, 64) for size in sent)]
        for name, speed in LINKS.items()
    ]
    return (
        f"{result['batch']} pairs of {result['data']}, D = {dim}, {result['precision']}, a thread a process. in "
        "shares: the texts encoded share by share in one process, over all at once, which is what shares lose where "
        "texts have work in common. rows: "
        "gathering the encodings and giving their gradients back, waiting for each other included; gradients: adding "
        "up the parameters' gradients, measured alone (training does it during the backward pass); both as shares of "
        f"the step. off: the largest difference of the losses.\n\n{common.table(columns, rows)}\n\n"
        f"On paper, a batch of {pairs:,} pairs in float32: {sent[0] / 1e6:.0f} MB of rows and their gradients and "
        f"{sent[1] / 1e6:.0f} MB of the parameters' gradients ({parameters / 1e6:.1f} million) pass each link, times "
        "(W - 1) / W for W GPUs in a ring; waiting and start-up times are left out.\n\n"
        + common.table(["link", "8: rows", "8: gradients", "64: rows", "64: gradients"], paper)
    )


def main(argv: list[str] | None = None) -> None:
    """Read the command line, measure, report."""
    parser = common.arguments(__doc__, root=True)
    parser.add_argument("--batch", type=int, default=512, help="pairs of the batch that all share (default: 512)")
    parser.add_argument("--processes", type=int, default=2, help="that share it (default: 2)")
    parser.add_argument("--dim", type=int, default=1024, help="D (default: 1024)")
    parser.add_argument("--steps", type=int, default=2, help="steps of a turn (default: 2)")
    options = parser.parse_args(argv)
    entries = [compare(options, one) for one in TEXTS]
    result = {key: getattr(options, key) for key in ("batch", "processes", "dim", "steps")}
    result |= {
        "data": source_of(options.root, options.synthetic).name,
        "precision": resolve_precision("auto", "cpu"),
        "entries": entries,
    }
    common.report("devices", "Several processes", result, text(result), torch.device("cpu"), options.out)


if __name__ == "__main__":
    main()

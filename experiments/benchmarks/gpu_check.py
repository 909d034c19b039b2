"""A table of what only a GPU can show; without a GPU a line only, or with --device cpu a table of tiny sizes.

Whether both bank backends give the CPU's exact answer on each GPU; whether SCAN's shortlists are scored alike at once
and one by one, and the text GRU is the CPU's; whether as many processes as there are GPUs train as one does, and
bf16-mixed reaches fp32's rsum within the seeds' spread; speeds, how busy the GPU is, and what bank and HAL cost. Needs
torch and what vsehub needs, no FAISS.

    python -m experiments.benchmarks.gpu_check
    python -m experiments.benchmarks.gpu_check --root FEATURES --epochs 10 --seeds 0,1,2
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from experiments.benchmarks import bank, common, hal
from experiments.benchmarks.gpu_equality import (
    Row,
    bank_rows,
    shortlist_rows,
    text_rows,
)
from experiments.benchmarks.sources import Synthetic
from experiments.benchmarks.ways import STAGES, Way
from vsehub.models.encode import encode_images, encode_texts
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.train import resolve_precision


@contextmanager
def trained(device: torch.device, settings: list[str]) -> Iterator[Path]:
    """The folder, within the block, of a `vsehub train` run in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        accelerator = "gpu" if device.type == "cuda" else "cpu"
        command = [sys.executable, "-m", "vsehub", "train", *settings, f"trainer.accelerator={accelerator}"]
        subprocess.run(
            [*command, "final_split=val", f"hydra.run.dir={folder}/run"], check=True, stdout=subprocess.DEVNULL
        )
        yield Path(folder) / "run"


def train(precision: str, seed: int, device: torch.device, epochs: int, settings: list[str]) -> float:
    """Best rsum on val of a run."""
    words = [f"seed={seed}", f"trainer.precision={precision}", f"trainer.max_epochs={epochs}"]
    with trained(device, [*settings, *words]) as run:
        return json.loads((run / "run.json").read_text())["best"]["val/rsum"]


def step_losses(devices: int, device: torch.device, settings: list[str]) -> list[float]:
    """The losses of the steps of one epoch, trained by so many processes."""
    words = [f"trainer.devices={devices}", "trainer.precision=32-true", "trainer.max_epochs=1", "embedding_dropout=0"]
    words += ["text_encoder.word_dropout=0", "+trainer.log_every_n_steps=1", "loss=hal", "bank=memory"]
    words += ["bank.first_epoch=0", "bank.fraction=0.5"]
    words += ["image_encoder.norm=group"] if not settings else []
    with trained(device, [*words, *settings]) as run:
        (file,) = (run / "csv").glob("*/metrics.csv")
        metrics = pd.read_csv(file)
    return metrics["step/loss"].dropna().tolist()


def process_rows(devices: int, device: torch.device, settings: list[str]) -> list[Row]:
    """The losses of as many processes as there are GPUs, step by step, against those of one."""
    if devices < 2:
        return [("processes of several GPUs (NCCL)", "only one GPU: nothing to compare", None)]
    alone, several = (step_losses(count, device, settings) for count in (1, devices))
    if len(alone) != len(several):
        return [(f"{devices} processes, steps", f"{len(several)}, and {len(alone)} of one", False)]
    error = max(abs(value - other) / abs(value) for value, other in zip(alone, several, strict=True))
    return [
        (f"{devices} processes, {len(alone)} steps: relative difference of the losses", f"{error:.1e}", error < 1e-3)
    ]


def precision_rows(device: torch.device, epochs: int, seeds: list[int], settings: list[str]) -> list[Row]:
    """rsum of fp32 and bf16-mixed over the seeds; bf16's mean may lie below fp32's by the seeds' spread."""
    reached = {p: [train(p, seed, device, epochs, settings) for seed in seeds] for p in ("32-true", "bf16-mixed")}
    means = {precision: statistics.mean(values) for precision, values in reached.items()}
    spread = max(max(values) - min(values) for values in reached.values())
    rows: list[Row] = [
        (
            f"rsum on val, short trainings, {p}, seeds {seeds}",
            ", ".join(f"{value:.1f}" for value in values) + f"; mean {means[p]:.1f}",
            None,
        )
        for p, values in reached.items()
    ]
    gap = means["32-true"] - means["bf16-mixed"]
    return [
        *rows,
        ("mean of 32-true minus bf16-mixed; allowed: the seeds' range", f"{gap:+.1f}; {spread:.1f}", gap <= spread),
    ]


def speed_rows(device: torch.device, data: RetrievalDataModule, steps: int = 50, dim: int = 1024) -> list[Row]:
    """Training and encoding speed, and the share of the wall time in which kernels ran."""
    rows: list[Row] = []
    precision = resolve_precision("auto", "gpu" if device.type == "cuda" else "cpu")
    ways = {
        "plain loop, 32-true": Way(data, device, "32-true", plain=True, dim=dim),
        f"batches copied in each step, {precision}": Way(data, device, precision, dim=dim, resident=False),
        f"data on the device, {precision}": Way(data, device, precision, dim=dim),
    }
    if device.type == "cuda":
        ways["data on the device, compiled"] = Way(data, device, precision, dim=dim, compile_mode="reduce-overhead")
    seconds = common.interleave({name: way.step for name, way in ways.items()}, steps, device, warmup=min(10, steps))
    slowest = statistics.median(next(iter(seconds.values())))
    for name, way in ways.items():
        step, busy = statistics.median(seconds[name]), busy_share(way, device, steps)
        rate = (
            f"{data.batch_size / step:,.0f} pairs/s, {slowest / step:.2f} x plain, busy {100 * busy:.0f} %; "
            f"566,435 pairs, COCO's epoch, in {566_435 / data.batch_size * step:,.0f} s"
        )
        rows.append((f"training, batch {data.batch_size}, GRU {dim}: {name}", rate, None))
    rows.append((f"of a step, each waited for: {', '.join(STAGES)}", stage_times(way, device, steps), None))
    split, table = data.load("train")
    module = way.module
    encoders = {
        "images": (lambda: encode_images(module.image_encoder, split.images, np.arange(len(split.images)))),
        "captions": (lambda: encode_texts(module.text_encoder, table, np.arange(len(table)))),
    }
    times = common.interleave(encoders, 2, device)
    for name, count in (("images", len(split.images)), ("captions", len(table))):
        rows.append((f"encoding {name}", f"{count / min(times[name]):,.0f} {name}/s", None))
    return rows


def stage_times(way: Way, device: torch.device, steps: int) -> str:
    """The median milliseconds of each of `STAGES`."""
    way.stages = True
    common.interleave({"step": way.step}, steps, device)
    way.stages = False
    return ", ".join(f"{1e3 * statistics.median(way.seconds[stage]):.1f}" for stage in STAGES) + " ms"


def busy_share(way: Way, device: torch.device, steps: int) -> float:
    """Time of the device's kernels over the wall time, by torch's profiler."""
    on_gpu_too = [torch.profiler.ProfilerActivity.CUDA] if device.type == "cuda" else []

    def run():
        for _ in range(steps):
            way.step()

    wall = common.timed(run, device)  # without the profiler, which slows the host
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, *on_gpu_too]) as profile:
        common.timed(run, device)
    if device.type != "cuda":
        return sum(event.self_cpu_time_total for event in profile.key_averages()) / 1e6 / wall
    kernels = (
        event.self_device_time_total
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
    )
    return sum(kernels) / 1e6 / wall


def cost_rows(device: torch.device, data: RetrievalDataModule, sizes: list[int], dim: int = 1024) -> list[Row]:
    """The bank's refresh and step, HAL's time and peak memory."""
    precision = resolve_precision("auto", "gpu" if device.type == "cuda" else "cpu")
    measured = bank.measure(data, device, precision, 4, 2, dim)
    rows: list[Row] = [
        (
            f"bank of {measured['bank_pairs']:,}, {figures['runs']}: refresh; % of an epoch; step ratio",
            f"{figures['refresh']['median']:.3f} s; {100 * figures['share_of_epoch']:.1f}; {figures['step_ratio']:.3f}",
            None  # what runs where nothing better is installed
            if device.type != "cuda" or figures["runs"] == "faiss"
            else figures["share_of_epoch"] <= bank.SHARE and figures["step_ratio"] <= bank.STEP,
        )
        for figures in measured["backends"].values()
    ]
    for entry in hal.measure(sizes, device, 5):
        memory = "" if entry["peak_mb"] is None else f", {entry['peak_mb']:,.0f} MB"
        name = f"N = {entry['n']}, {entry['case']}: forward + backward"
        rows.append(
            (name, f"{entry['seconds']['median'] * 1e3:.2f} ms, {entry['to_product']:.2f} x product{memory}", None)
        )
    return rows


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--root", help="features to train on (default: the built-in scenes)")
    parser.add_argument("--epochs", type=int, default=8, help="epochs of each run (default: 8)")
    parser.add_argument("--seeds", default="0,1,2", help="seeds of the runs (default: 0,1,2)")
    options = parser.parse_args(argv)
    if options.device == "auto" and not torch.cuda.is_available():
        print("gpu-check: no GPU is seen here, so there is nothing to check; run it on a machine that has one.")
        return
    device = common.device_of(options.device)
    small, devices = device.type == "cpu", torch.cuda.device_count()
    data = RetrievalDataModule(Synthetic(80, 12), batch_size=16) if small else RetrievalDataModule(Synthetic())
    data.setup()
    if small:
        rows = [*shortlist_rows(device, 3, 20, 7, 8), *text_rows(device, 16, 8), *bank_rows(device, 400, 8, 20, 16)]
        rows += [*speed_rows(device, data, 2, 16), *cost_rows(device, data, [8], 16)]
    else:
        settings = [] if options.root is None else ["data=precomp", f"data.root={options.root}"]
        rows = [*shortlist_rows(device), *text_rows(device)]
        for number in range(devices):  # FAISS and torch agree on each, whichever is torch's current one
            rows += bank_rows(torch.device("cuda", number))
        rows += [*process_rows(devices, device, settings), *speed_rows(device, data)]
        rows += cost_rows(device, data, [2048])
        rows += precision_rows(device, options.epochs, [int(seed) for seed in options.seeds.split(",")], settings)
    verdict = {None: "", True: "yes", False: "NO"}
    table = common.table(("check", "measured", "met"), [(name, result, verdict[holds]) for name, result, holds in rows])
    record = {"rows": [{"check": name, "found": result, "holds": holds} for name, result, holds in rows]}
    common.report("gpu_check", "GPU check", record, table, device, options.out)
    raise SystemExit(any(holds is False for _, _, holds in rows))


if __name__ == "__main__":
    main()

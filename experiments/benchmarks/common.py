"""Parts that the benchmarks share: arguments, interleaved timing, and results as JSON and as a part of README.md."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from experiments.evidence import renew
from vsehub.io.files import write_json
from vsehub.io.provenance import code_version, versions
from vsehub.machine import hardware

HERE = Path(__file__).parent

RESULTS = HERE / "results"


def arguments(description: str, root: bool = False) -> argparse.ArgumentParser:
    """A parser with --device, --rounds and --out, and ROOT and --synthetic where the benchmark takes data."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    if root:
        parser.add_argument(
            "root",
            nargs="?",
            metavar="ROOT",
            help="folder of extracted features in the VSE++ layout (default: ../shared/data/flickr8k/global beside the "
            "checkout, where it is there; else data made up in its shape)",
        )
        parser.add_argument(
            "--synthetic", type=int, metavar="IMAGES", help="data made up with so many images instead of ROOT"
        )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: the GPU if any")
    parser.add_argument("--rounds", type=int, default=5, help="how often the ways take turns (default: 5)")
    parser.add_argument("--out", type=Path, help="JSON to write (default: in results/, and the table in README.md)")
    return parser


def device_of(name: str) -> torch.device:
    """The device that --device names."""
    return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name)


def synchronize(device: torch.device) -> None:
    """Wait for a GPU to finish; no effect on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(call: Callable[[], object], device: torch.device, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one call, a GPU's work included. clock: the time in seconds."""
    synchronize(device)
    begin = clock()
    call()
    synchronize(device)
    return clock() - begin


def interleave(
    ways: dict[str, Callable[[], object]],
    rounds: int,
    device: torch.device,
    block: int = 1,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each call of each way, in turns A, B, A, B, so that a slow minute of the machine meets all alike.

    block: calls in a row before the next way's turn. warmup: calls of each that are not counted.
    clock: as in `timed`.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        for _ in range(warmup):
            call()
    for _ in range(rounds):
        for name, call in ways.items():
            seconds[name] += [timed(call, device, clock) for _ in range(block)]
    return seconds


def summary(seconds: list[float]) -> dict:
    """{"median", "least", "most", "count"} of some times."""
    return {
        "median": statistics.median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "count": len(seconds),
    }


def shown(times: dict, unit: float = 1e3, suffix: str = "ms") -> str:
    """A summary as text: "12.3 ms (12.0 to 14.1)"."""
    median, least, most = (times[key] * unit for key in ("median", "least", "most"))
    return f"{median:.4g} {suffix} ({least:.4g} to {most:.4g})"


def target(value: float, limit: float) -> str:
    """A limit and its outcome, "reached" or "MISSED"."""
    return f"at most {limit:g}: {'reached' if value <= limit else 'MISSED'}"


def table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A markdown table."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def hardware_line() -> str:
    """The machine, the threads and torch in one line."""
    machine = hardware()
    gpu = f"{machine['gpu']}, " if machine["gpu"] else "no GPU, "
    return (
        f"{gpu}{machine['cpu']}, {machine['cores']} cores ({torch.get_num_threads()} threads used), "
        f"{machine['memory_gb']} GB, torch {torch.__version__}"
    )


def report(name: str, title: str, record: dict, text: str, device: torch.device, out: Path | None) -> None:
    """Print a result and write it as JSON; in results/ also into its part of README.md, if it has one."""
    out = out or RESULTS / f"{name}-{'gpu' if device.type == 'cuda' else 'cpu'}.json"
    facts = {"benchmark": name, "device": device.type, "hardware": hardware(), "threads": torch.get_num_threads()}
    write_json(out, facts | {"versions": versions(), "git": code_version()} | record)
    section = f"### {title}\n\n{hardware_line()}\n\n{text}\n"
    page = HERE / "README.md"
    if out.parent.resolve() == RESULTS.resolve() and f"<!-- generated: {out.stem} -->" in page.read_text():
        renew(page, section, out.stem)
    print(section)

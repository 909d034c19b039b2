"""HAL's forward and backward pass against its floor, the score matrix's own product, and against SUM.

The floor is N x 1024 times 1024 x N, forwards and backwards. The losses start from the scores, and their time is what
they add to the product. With neighbours: k = 250 statistics for each pair.

    python -m experiments.benchmarks.hal --sizes 512,2048
"""

import torch

from experiments.benchmarks import common
from vsehub.losses import HAL, SumMargin
from vsehub.types import NeighborStats

DIM, K = 1024, 250


def cases(n: int, device: torch.device) -> dict:
    """Name -> a call that runs the floor's or a loss's forward and backward pass at N = n."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(n, DIM, generator=generator), dim=1).to(device).requires_grad_()
        for _ in range(2)
    )
    scores = (images @ texts.T).detach().requires_grad_()
    positives = torch.eye(n, dtype=torch.bool, device=device)
    stats = torch.rand(2, n, K, generator=generator).mul_(0.5).sort(dim=2, descending=True).values.to(device)
    upstream = torch.ones_like(scores)

    def product():
        images.grad = texts.grad = None
        (images @ texts.T).backward(upstream)

    def loss_of(loss, neighbors=None):
        def run():
            scores.grad = None
            loss(scores, positives, neighbors)["loss"].backward()

        return run

    calls = {"product": product, "SUM": loss_of(SumMargin())}
    for variant in ("paper", "release"):
        calls[f"HAL {variant}"] = loss_of(HAL(variant=variant))
        calls[f"HAL {variant}, k = {K}"] = loss_of(HAL(variant=variant), NeighborStats(*stats))
    return calls


def measure(sizes: list[int], device: torch.device, rounds: int) -> list[dict]:
    """One entry for each size and case: times, ratios to the product and to SUM, peak memory on a GPU in MB."""
    entries = []
    for n in sizes:
        calls = cases(n, device)
        times = {
            name: common.summary(values) for name, values in common.interleave(calls, rounds, device, warmup=2).items()
        }
        for name, call in calls.items():
            median = times[name]["median"]
            entries.append(
                {
                    "n": n,
                    "case": name,
                    "seconds": times[name],
                    "to_product": median / times["product"]["median"],
                    "to_sum": median / times["SUM"]["median"],
                    "peak_mb": peak_mb(call, device),
                }
            )
        del calls
    return entries


def peak_mb(call, device: torch.device) -> float | None:
    """GPU memory that a call takes beyond what was there before it."""
    if device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def rows(entries: list[dict]) -> tuple[list[str], list[list[str]]]:
    """Columns and lines of the table; memory where it was measured."""
    columns = ["N", "forward + backward", "median (least to most)", "ratio to product", "ratio to SUM"]
    memory = any(entry["peak_mb"] is not None for entry in entries)
    lines = [
        [
            str(entry["n"]),
            entry["case"],
            common.shown(entry["seconds"]),
            f"{entry['to_product']:.2f}",
            f"{entry['to_sum']:.2f}",
            *([f"{entry['peak_mb']:.0f} MB"] if memory else []),
        ]
        for entry in entries
    ]
    return columns + (["peak memory"] if memory else []), lines


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--sizes", help="batch sizes N (default: 512,2048; on a GPU 512 to 8192)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    sizes = options.sizes or ("512,1024,2048,4096,8192" if device.type == "cuda" else "512,2048")
    entries = measure([int(size) for size in sizes.split(",")], device, options.rounds)
    text = common.table(*rows(entries))
    common.report("hal", "HAL: forward and backward", {"entries": entries}, text, device, options.out)


if __name__ == "__main__":
    main()

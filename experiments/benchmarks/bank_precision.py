"""The memory bank in bfloat16 against float32 and FAISS: seconds of a query, and which share of the neighbours differs.

Random unit vectors, as many as the bank of COCO holds; a query is that of a batch, both ways. `bank.precision=auto`
takes bfloat16 where the hardware multiplies it.

    python -m experiments.benchmarks.bank_precision [--pairs 28322] [--batch 128] [--dim 1024]
"""

import torch
from torch.nn.functional import normalize

from experiments.benchmarks import common
from vsehub.neighbors import MemoryBank
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.neighbors.rounded import has_bf16

WAYS = {
    "torch, bfloat16": {"backend": "exact", "precision": "bf16"},
    "torch, float32": {"backend": "exact"},
    "FAISS, float32": {"backend": "faiss"},
}


def measure(options, device: torch.device) -> dict:
    """Times of each way, and the share of the neighbours that bfloat16 changes."""
    drawn = torch.Generator().manual_seed(0)
    held, asked = (
        [normalize(torch.randn(count, options.dim, generator=drawn), dim=1).to(device) for _ in range(2)]
        for count in (options.pairs, options.batch)
    )
    ids = torch.arange(options.pairs + options.batch, device=device)
    of_bank, of_batch = ids[: options.pairs], ids[options.pairs :]
    banks = {name: MemoryBank(**way) for name, way in WAYS.items() if way["backend"] == "exact" or loaded_faiss()[0]}
    for bank in banks.values():
        bank.fill(*held, of_bank, of_bank)
    calls = {name: lambda bank=bank: bank.query(*asked, of_batch, of_batch) for name, bank in banks.items()}
    times = common.interleave(calls, options.rounds, device)
    rounded = banks["torch, bfloat16"]
    return {
        "pairs": options.pairs,
        "batch": options.batch,
        "dim": options.dim,
        "k": rounded.k,
        "multiplied by the hardware": has_bf16(device.type),
        "seconds": {name: common.summary(values) for name, values in times.items()},
        "others": rounded.rounding_share(),
    }


def text(result: dict) -> str:
    """The table."""
    plain = result["seconds"]["torch, float32"]["median"]
    rows = [
        (name, common.shown(times, 1, "s"), f"**{times['median'] / plain:.2f}**")
        for name, times in result["seconds"].items()
    ]
    head = (
        f"A bank of {result['pairs']:,} pairs, {result['batch']} queries a side, D = {result['dim']:,}, k = "
        f"{result['k']}; bfloat16 is {'' if result['multiplied by the hardware'] else 'not '}multiplied by the "
        f"hardware. {result['others']:.1%} of the neighbours are others in bfloat16"
    )
    return f"{head}\n\n{common.table(('search', 'a query', 'to torch in float32'), rows)}"


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--pairs", type=int, default=28_322, help="(default: 28,322)")
    parser.add_argument("--batch", type=int, default=128, help="(default: 128)")
    parser.add_argument("--dim", type=int, default=1024, help="(default: 1024)")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    result = measure(options, device)
    common.report("bank_precision", "The bank's precision", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

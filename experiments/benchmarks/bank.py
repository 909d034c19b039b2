"""Cost of the memory bank: its refresh as a share of an epoch, and a step with it against a step without.

The refresh is `BankCallback`'s own: a sample of 5 % of the training pairs, loaded, encoded and indexed. An epoch is its
number of steps times the step measured without a bank. Targets: 10 % of an epoch, 1.15 times a step.

    python -m experiments.benchmarks.bank [ROOT]
    python -m experiments.benchmarks.bank --synthetic 113287      at the size of COCO: a bank of 28,322 pairs, k = 249
"""

import logging
from types import SimpleNamespace

import torch

from experiments.benchmarks import common
from experiments.benchmarks.sources import source_of
from experiments.benchmarks.ways import Way
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.training.callbacks import BankCallback
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.train import resolve_precision

SHARE, STEP = 0.10, 1.15


def backends() -> list[str]:
    """Those that can run here."""
    return ["exact"] + (["faiss"] if loaded_faiss()[0] is not None else [])


def measure(data: RetrievalDataModule, device, precision: str, rounds: int, block: int, dim: int = 1024) -> dict:
    """Refresh and step times for each backend and without a bank."""
    way = Way(data, device, precision, dim=dim)
    trainer = SimpleNamespace(datamodule=data, current_epoch=1)
    callbacks = {name: BankCallback(backend=name) for name in backends()}
    for callback in callbacks.values():
        callback.setup(trainer, way.module, "fit")

    def refresh(callback: BankCallback):
        return lambda: callback.refill(trainer, way.module)

    refreshes = common.interleave(
        {name: refresh(callback) for name, callback in callbacks.items()}, max(2, rounds // 2), device
    )

    def step(bank):
        def run():
            way.module.bank = bank
            way.step()

        return run

    calls = {"none": step(None)} | {name: step(callback.bank) for name, callback in callbacks.items()}
    steps = {
        name: common.summary(values)
        for name, values in common.interleave(calls, rounds, device, block, warmup=2).items()
    }
    epoch = len(way.loader) * steps["none"]["median"]
    bank = next(iter(callbacks.values())).bank
    return {
        "pairs": len(data.load("train")[1]),
        "bank_pairs": len(bank),
        "k": bank.k,
        "steps_per_epoch": len(way.loader),
        "epoch_seconds": epoch,
        "steps": steps,
        "backends": {
            name: {
                "runs": callback.bank.running_backend,
                "refresh": common.summary(refreshes[name]),
                "share_of_epoch": common.summary(refreshes[name])["median"] / epoch,
                "step_ratio": steps[name]["median"] / steps["none"]["median"],
            }
            for name, callback in callbacks.items()
        },
    }


def text(result: dict) -> str:
    """The table."""
    rows = [("none", common.shown(result["steps"]["none"]), "", "", "")]
    for name, figures in result["backends"].items():
        share = 100 * figures["share_of_epoch"]
        rows.append(
            (
                figures["runs"],
                common.shown(result["steps"][name]),
                f"**{figures['step_ratio']:.3f}**, {common.target(figures['step_ratio'], STEP)}",
                common.shown(figures["refresh"], 1, "s"),
                f"**{share:.1f}**, {common.target(share, 100 * SHARE)}",
            )
        )
    head = (
        f"data: {result['data']}; {result['pairs']:,} pairs, bank of {result['bank_pairs']:,}, k = {result['k']}; an "
        f"epoch has {result['steps_per_epoch']:,} steps, {result['epoch_seconds']:.0f} s"
    )
    columns = ("bank", "step", "ratio to a step without bank", "refresh", "refresh, % of an epoch")
    return f"{head}\n\n{common.table(columns, rows)}"


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__, root=True)
    parser.add_argument("--block", type=int, default=4, help="steps in a row in each turn (default: 4)")
    options = parser.parse_args(argv)
    logging.getLogger("vsehub").setLevel(logging.WARNING)
    device = common.device_of(options.device)
    torch.manual_seed(0)
    source = source_of(options.root, options.synthetic)
    data = RetrievalDataModule(source)
    data.setup()
    precision = resolve_precision("auto", "gpu" if device.type == "cuda" else "cpu")
    result = {"data": source.name, "precision": precision}
    result |= measure(data, device, precision, options.rounds, options.block)
    common.report("bank", "The memory bank's cost", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

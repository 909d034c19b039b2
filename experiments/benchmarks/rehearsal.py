"""One shortened epoch at COCO's size on made-up data: seconds of start, step, bank and validation, and the memory.

113,287 images of 2,048 features and 566,435 captions, written to FOLDER in the layout of data=precomp (about 1 GB)
where they are not there yet; 5,000 validation and 5,000 test images with 25,000 captions each. A bank of 28,322 pairs.

    python -m experiments.benchmarks.rehearsal [FOLDER] [--images 113287] [--steps 20] [-- SETTING=VALUE ...]
"""

import csv
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from experiments.benchmarks import common
from vsehub.data.scenes.captions import describe
from vsehub.data.scenes.source import compose
from vsehub.io.files import atomic, write_text

COCO, FEATURES, BLOCK = 113_287, 2048, 4096
SETTINGS = ["data=precomp", "loss=hal", "bank=memory", "loader.batch_size=512", "final_split=val"]


def write(folder: Path, images: int, features: int) -> None:
    """The files of a made-up data set, those that are not there yet."""
    sizes = {"train": images, "dev": max(8, images * 5000 // COCO), "test": max(8, images * 5000 // COCO)}
    for number, (split, count) in enumerate(sizes.items()):
        rng = np.random.default_rng(number)
        if not (folder / f"{split}_ims.npy").is_file():
            with atomic(folder / f"{split}_ims.npy") as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<f4", "fortran_order": False, "shape": (count, features)}
                )
                for first in range(0, count, BLOCK):
                    file.write(rng.standard_normal((min(BLOCK, count - first), features), np.float32).tobytes())
        if not (folder / f"{split}_caps.txt").is_file():
            captions = (" ".join(one.split()) for _ in range(count) for one in describe(compose(rng), rng))
            write_text(folder / f"{split}_caps.txt", "".join(f"{one}\n" for one in captions))


def run(folder: Path, steps: int, settings: list[str]) -> dict:
    """Train two shortened epochs, the second with the bank; seconds of each part, and the peak memory."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "vsehub",
            "train",
            *SETTINGS,
            f"data.root={folder}",
            f"hydra.run.dir={out}/run",
        ]
        command += ["trainer.max_epochs=2", f"trainer.limit_train_batches={steps}", *settings]
        began = time.perf_counter()
        subprocess.run(command, check=True)
        seconds = time.perf_counter() - began
        record = json.loads((Path(out) / "run" / "run.json").read_text())
        with (Path(out) / "run" / "metrics.csv").open() as file:
            first, second = ({key: float(value or 0) for key, value in row.items()} for row in csv.DictReader(file))
    steps_of = {
        name: (row["seconds"] - row["val/seconds"] - row["bank/seconds"]) / steps
        for name, row in (("step without bank", first), ("step with bank", second))
    }
    return {
        "pairs": record["data"]["train"]["captions"],
        "bank": int(second["bank/pairs"]),
        "seconds": {
            "start, and the last measuring": seconds - first["seconds"] - second["seconds"],
            **steps_of,
            "refilling the bank": second["bank/seconds"],
            "validation": second["val/seconds"],
        },
        "peak_memory": record["peak_memory"],
        "steps": steps,
    }


def text(result: dict) -> str:
    """The table."""
    rows = [[name, f"{seconds:.2f} s"] for name, seconds in result["seconds"].items()]
    places = {"host_mb": "main memory", "gpu_mb": "the GPU's"}
    sizes = [f"{size:,.0f} MB of {places.get(name, name)}" for name, size in result["peak_memory"].items() if size]
    rows.append(["peak", ", ".join(sizes)])
    return (
        f"{result['pairs']:,} pairs, a bank of {result['bank']:,}, batches of 512, {result['steps']} steps an epoch; "
        f"settings {' '.join(result['settings']) or 'the defaults'}.\n\n{common.table(['part', 'measured'], rows)}"
    )


def main(argv: list[str] | None = None) -> None:
    """Read the command line, write the data, train, report."""
    parser = common.arguments(__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs/rehearsal"), help="default: %(default)s")
    parser.add_argument("--images", type=int, default=COCO, help="training images (default: %(default)s)")
    parser.add_argument("--features", type=int, default=FEATURES, help="of an image (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="training steps an epoch (default: %(default)s)")
    parser.add_argument("settings", nargs="*", help="further settings of vsehub train, after --")
    options = parser.parse_args(argv)
    write(options.folder, options.images, options.features)
    result = run(options.folder, options.steps, options.settings) | {"settings": options.settings}
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    common.report("rehearsal", "A rehearsal at COCO's size", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

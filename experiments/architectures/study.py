"""Train the losses in several architectures, with several seeds each, on extracted features of one data set.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python experiments/architectures/study.py --vectors DATA/global --regions DATA/grid --out runs/architectures

vectors: a folder in the layout of VSE++, one feature vector an image; regions: the same images, several regions each.
"""

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import Comparison  # noqa: E402 (beside this folder, found by the line above)

DIM = 512
LOSSES = ("sum", "max", "hal", "hal+mb")


@dataclass(frozen=True)
class Architecture:
    """features: "vectors" or "regions". settings: what makes it. own: further settings of single losses.

    epochs, decay: of training, and after how many the learning rate falls to a tenth.
    """

    features: str
    settings: tuple[str, ...] = ()
    epochs: int = 12
    decay: int = 9
    losses: tuple[str, ...] = LOSSES
    own: dict[str, list[str]] = field(default_factory=dict)


SCAN = (
    "image_encoder=image_regions",
    "image_encoder.pooling=none",
    "text_encoder=text_scan",
    "optimizer.lr=0.0005",  # AAAI table 3, rows 1.8 and 2.26, and SCAN's own
)
ARCHITECTURES = {
    "cosine-last": Architecture("vectors"),
    "cosine-gpo": Architecture("vectors", ("text_encoder.pooling=gpo",)),
    "order": Architecture("vectors", ("similarity=order",)),
    "scan-t2i": Architecture("regions", (*SCAN, "similarity=scan_t2i"), 8, 6, ("max", "hal", "hal+mb")),
}


def comparison(name: str, arguments: argparse.Namespace) -> Comparison:
    """The runs of one architecture."""
    one = ARCHITECTURES[name]
    return Comparison(
        out=arguments.out / name,
        losses=[loss for loss in one.losses if arguments.losses is None or loss in arguments.losses],
        seeds=arguments.seeds,
        overrides=[
            "data=precomp",
            f"data.root={getattr(arguments, one.features)}",
            f"data.name={arguments.name}",
            f"embedding_dim={DIM}",
            f"trainer.max_epochs={one.epochs}",
            f"scheduler.step_size={one.decay}",
            *one.settings,
        ],
        criteria=[],
        references=["queries"],
        own=one.own,
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--regions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="flickr8k", help="of the data set, for reports")
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), choices=list(ARCHITECTURES))
    parser.add_argument("--losses", nargs="+", help="these alone")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="%(default)s")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    arguments = parser.parse_args()
    for name in arguments.architectures:
        comparison(name, arguments).carry_out(arguments.dry_run)


if __name__ == "__main__":
    main()

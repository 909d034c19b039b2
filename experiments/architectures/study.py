"""Train the losses in several architectures, with several seeds each, on extracted features of one data set.

What is finished is not done again, and a killed run goes on from its last epoch: run the same command again.

    python experiments/architectures/study.py DATA --out runs/architectures

DATA holds global/ (a feature vector an image) and grid/ (several regions an image), both in the layout of VSE++, and
for the photos themselves dataset_flickr8k.json and images/.
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
    """settings: what makes it, {} being the data's folder. own: further settings of single losses.

    epochs, decay: of training, and after how many the learning rate falls to a tenth.
    """

    settings: tuple[str, ...]
    losses: tuple[str, ...] = LOSSES
    own: dict[str, list[str]] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0, 1, 2)
    epochs: int = 8
    decay: int = 6


VECTORS = ("data=precomp", "data.root={}/global")
SCAN = (
    "data=precomp",
    "data.root={}/grid",
    "image_encoder=image_regions",
    "image_encoder.pooling=none",
    "text_encoder=text_scan",
    "optimizer.lr=0.0005",  # AAAI table 3, rows 1.8 and 2.26, and SCAN's own
)
PHOTOS = (
    "data=karpathy",
    "data.json={}/dataset_flickr8k.json",
    "data.images={}/images",
    "data.pictures.size=112",
    "data.pictures.resize=128",
    "data.pictures.augment=vsepp",
    "image_encoder=image_cnn",
)
# Chosen on val with seed 0 among the papers' settings (README): gamma, epsilon of Flickr30k for vectors, of COCO, the
# defaults, for SCAN; a rate for MAX.
FLICKR30K = ["loss.gamma=60", "loss.epsilon=0.7"]
CHOSEN = {"max": ["optimizer.lr=0.0005"], "hal": FLICKR30K, "hal+mb": FLICKR30K}
ARCHITECTURES = {
    "cosine-last": Architecture(VECTORS, own=CHOSEN),
    "cosine-gpo": Architecture((*VECTORS, "text_encoder.pooling=gpo"), own=CHOSEN, seeds=(0,)),
    "order": Architecture((*VECTORS, "similarity=order"), own=CHOSEN),
    "scan-t2i": Architecture((*SCAN, "similarity=scan_t2i"), ("max", "hal", "hal+mb"), {}, (0, 1), 5, 4),
    "photos-cnn": Architecture(PHOTOS, ("hal",), CHOSEN, (0,), 3, 2),
}


def comparison(name: str, arguments: argparse.Namespace) -> Comparison:
    """The runs of one architecture."""
    one = ARCHITECTURES[name]
    return Comparison(
        out=arguments.out / name,
        losses=[loss for loss in one.losses if arguments.losses is None or loss in arguments.losses],
        seeds=arguments.seeds or list(one.seeds),
        overrides=[
            "experiment=papers",
            f"data.name={arguments.name}",
            f"embedding_dim={DIM}",
            f"trainer.max_epochs={one.epochs}",
            f"scheduler.step_size={one.decay}",
            *(setting.format(arguments.data) for setting in one.settings),
        ],
        criteria=[],
        references=["queries"],
        own=one.own,
    )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="flickr8k", help="of the data set, for reports")
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), choices=list(ARCHITECTURES))
    parser.add_argument("--losses", nargs="+", help="these alone")
    parser.add_argument("--seeds", nargs="+", type=int, help="these, not the architecture's own")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    arguments = parser.parse_args()
    for name in arguments.architectures:
        comparison(name, arguments).carry_out(arguments.dry_run)


if __name__ == "__main__":
    main()

"""AAAI 2020, table 2: SUM, MAX, HAL and HAL+MB for each architecture whose features are at hand.

Measured figures are printed beside the published ones. The published rows are COCO's; on other data the figures show
the order of the losses, not a reproduction.
"""

import argparse
import sys
from pathlib import Path

from compare import Comparison

LOSSES = ["sum", "max", "hal", "hal+mb"]
DATA_SETS = ("scenes", "flickr8k", "coco")
SPLITS = ("train", "dev", "testall")
# 4 bytes a feature; captions are 36 MB. Rows repeated five times, as some archives have them, make it five times that.
COCO_IMAGES = 113_287 + 5_000 + 5_000
ARCHITECTURES = {"vgg19": 4096, "inception_resnet_v2": 1536, "resnet152": 2048}

# AAAI table 3 beyond the recipes: HAL's COCO rows have batches of 512 and 250 neighbours.
COCO_OWN = {"hal": ["loader.batch_size=512"], "hal+mb": ["loader.batch_size=512", "bank.k=250"]}

WHAT_TO_GET = """{folder} holds no COCO features.

Needed, for each architecture of the table that you want, a folder of it with Karpathy's splits in the layout of VSE++:
{folders}
each with
  train_ims.npy  train_caps.txt     113,287 images, 566,435 captions, one a line
  dev_ims.npy    dev_caps.txt       5,000 images, 25,000 captions
  testall_ims.npy testall_caps.txt  5,000 images, 25,000 captions
Images in the order of their captions, one row an image (or five equal rows), float16 or float32.

Where from: the archive of precomputed features that the VSE++ repository (fartashf/vsepp on GitHub) names in its
README holds COCO's resnet152 and vgg19 features, or extract them from the 2014 images (cocodataset.org: train 13 GB,
val 6 GB) and the splits of Karpathy's dataset_coco.json. Then run: make reproduce-table2 COCO={folder}
"""


def coco_comparisons(folder: Path, out: Path, seeds: list[int]) -> list[Comparison]:
    """One comparison for each architecture found below `folder`; ends with what to download where there is none."""
    found = [name for name in ARCHITECTURES if all((folder / name / f"{split}_ims.npy").is_file() for split in SPLITS)]
    if not found:
        sizes = "\n".join(
            f"  {folder / name}   {dim} features, {COCO_IMAGES * dim * 4 / 1e9:.1f} GB"
            for name, dim in ARCHITECTURES.items()
        )
        sys.exit(WHAT_TO_GET.format(folder=folder, folders=sizes))
    for name in set(ARCHITECTURES) - set(found):
        print(f"no features of {name} in {folder / name}: its rows are left out")
    return [comparison(out / name, seeds, coco_overrides(folder, name), COCO_OWN) for name in found]


def coco_overrides(folder: Path, architecture: str) -> list[str]:
    """The settings of the COCO rows: five folds of 1,000."""
    return ["data=precomp", f"data.root={folder / architecture}", "data.name=coco", "data.test=testall", "protocol=c2"]


def comparison(out: Path, seeds: list[int], overrides: list[str], own: dict | None = None) -> Comparison:
    """The four losses of the table."""
    return Comparison(out, LOSSES, seeds, overrides, [], [], paper="aaai2020", table="2", own=own or {})


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=DATA_SETS, help="default: coco where --coco is given, else scenes")
    parser.add_argument("--root", type=Path, help="with flickr8k: the folder of its features")
    parser.add_argument("--coco", type=Path, help="folder of COCO's features, a subfolder an architecture")
    parser.add_argument("--seeds", default="0", help="e.g. 0,1,2; default %(default)s")
    parser.add_argument("--out", type=Path, help="default: runs/table2-DATA")
    parser.add_argument("--dry-run", action="store_true", help="print the commands, run nothing")
    parser.add_argument("overrides", nargs="*", help="more settings for every run, after --")
    arguments = parser.parse_args()
    data = arguments.data or ("coco" if arguments.coco else "scenes")
    out = arguments.out or Path("runs") / f"table2-{data}"
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if data == "coco":
        if arguments.coco is None:
            parser.error("--data coco needs --coco FOLDER")
        comparisons = coco_comparisons(arguments.coco, out, seeds)
    elif data == "flickr8k":
        if arguments.root is None or not arguments.root.is_dir():
            parser.error(f"--data flickr8k needs --root, the folder of its features; {arguments.root} is no folder")
        comparisons = [comparison(out, seeds, ["data=precomp", f"data.root={arguments.root}", "data.name=flickr8k"])]
    else:
        comparisons = [comparison(out, seeds, ["experiment=demo"])]
    for one in comparisons:
        one.overrides.extend(arguments.overrides)
        one.carry_out(arguments.dry_run)


if __name__ == "__main__":
    main()

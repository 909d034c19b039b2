"""The papers' features, and advice on those that are missing."""

from math import prod
from pathlib import Path

SHAPES = {"vgg19": (4096,), "inception_resnet_v2": (1536,), "resnet152": (2048,), "regions": (36, 2048)}
SPLITS = {"coco": ("train", "dev", "testall"), "flickr30k": ("train", "dev", "test")}
IMAGES = {"coco": (113_287, 5_000, 5_000), "flickr30k": (29_000, 1_014, 1_000)}
SOURCES = {
    "coco": "the 2014 images (cocodataset.org: train 13 GB, val 6 GB) and Karpathy's dataset_coco.json",
    "flickr30k": "the images of Flickr30k (on request from its authors) and Karpathy's dataset_flickr30k.json",
}
WHAT_TO_GET = """{folder} lacks {absent}
  needed: {dimensions} numbers an image, in the layout of VSE++; for SPLIT {splits}
  SPLIT_ims.npy   {images} images, one row an image or five equal rows, float16 or float32; {size:.1f} GB as float32
  SPLIT_caps.txt  five captions an image, one a line, in the order of the images
  where from: the archives of precomputed features that the VSE++ repository (fartashf/vsepp on GitHub; regions: SCAN,
  kuanghuei/SCAN) names in its README, or `vsehub extract` on {source}"""


def missing(dataset: str, base: Path, features: str) -> str | None:
    """The missing features of a data set and one architecture below `base`; None if all exist."""
    folder = base / features
    names = [f"{split}_{kind}" for split in SPLITS[dataset] for kind in ("ims.npy", "caps.txt")]
    absent = [name for name in names if not (folder / name).is_file()]
    if not absent:
        return None
    return WHAT_TO_GET.format(
        folder=folder,
        absent=", ".join(absent),
        dimensions=" x ".join(f"{number:,}" for number in SHAPES[features]),
        size=4e-9 * sum(IMAGES[dataset]) * prod(SHAPES[features]),
        splits=", ".join(SPLITS[dataset]),
        images=", ".join(f"{number:,}" for number in IMAGES[dataset]),
        source=SOURCES[dataset],
    )

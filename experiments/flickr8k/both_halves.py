"""Write a folder whose test split is a precomp folder's val and test halves together.

Flickr8k's official development images are split into two halves of 500 here; figures on 1,000 images need both. Models
chosen on the val half have seen it for that choice, so the joint figure is for comparison with others on 1,000 alone.

    python experiments/flickr8k/both_halves.py ROOT OUT
    vsehub evaluate checkpoint=RUN/checkpoints/best.safetensors data.root=OUT out=FOLDER
"""

import argparse
from pathlib import Path

import numpy as np

from vsehub.data import Precomp
from vsehub.io.files import atomic, write_text


def main() -> None:
    """Read the command line and write the two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the precomp folder")
    parser.add_argument("out", type=Path, help="the folder to write")
    arguments = parser.parse_args()
    source = Precomp(arguments.root)
    halves = [source.load(split) for split in ("val", "test")]
    with atomic(arguments.out / "test_ims.npy") as handle:
        np.save(handle, np.concatenate([half.images for half in halves]))
    captions = [caption for half in halves for caption in half.captions]
    write_text(arguments.out / "test_caps.txt", "\n".join(captions) + "\n")
    print(f"{sum(len(half.images) for half in halves)} images, {len(captions)} captions in {arguments.out}")


if __name__ == "__main__":
    main()

"""A few pictures as files with captions, in the layout of data=karpathy."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"red": (255, 0, 0), "green": (0, 200, 0), "blue": (0, 0, 255)}


def photos(folder: Path, count: int = 24) -> dict[str, str]:
    """Settings of data=karpathy: pictures of two colours, of several shapes, with two captions each."""
    random = np.random.default_rng(0)
    folder.mkdir()
    images = []
    for number in range(count):
        width, height = random.integers(40, 90, 2).tolist()
        first, other = random.choice(list(COLOURS), 2).tolist()
        picture = Image.new("RGB", (width, height), COLOURS[first])
        picture.paste(COLOURS[other], (0, 0, width // 2, height // 2))
        picture.save(folder / f"{number}.png")
        sentences = [
            {"raw": f"a {other} box on {first} {number}"},
            {"raw": f"the {first} and the {other} with {number}"},
        ]
        split = ("train", "val", "test")[number % 3]
        images.append({"filename": f"{number}.png", "split": split, "sentences": sentences})
    (folder / "data.json").write_text(json.dumps({"dataset": "boxes", "images": images}))
    return {"json": str(folder / "data.json"), "images": str(folder)}

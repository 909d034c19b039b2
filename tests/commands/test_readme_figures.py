"""The figures at the top of README.md, measured again on the vectors that they are of."""

import json
from pathlib import Path

import numpy as np
import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data" / "pretrained" / "clip_coco500.npz"
README = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())


@pytest.mark.skipif(not SHARED.is_file(), reason=f"{SHARED.name}, CLIP's vectors of COCO, is not beside the project")
def test_the_figures_of_the_readme(vsehub, tmp_path):
    images, texts = (np.load(SHARED)[name] for name in ("image", "text"))
    np.save(tmp_path / "images.npy", images)
    for half in (0, 1):
        np.save(tmp_path / f"{half}.npy", texts[half::2])
        pairs = "".join(f"{row},{item}\n" for row, item in enumerate(range(half, len(texts), 2)))
        (tmp_path / f"{half}.csv").write_text("query,item\n" + pairs)

    def ranked(criterion, *given):
        vsehub(
            *("rerank", "items=images.npy", "normalize=true", f"criterion={criterion}", "out=ranked", "overwrite=true"),
            *given,
            cwd=tmp_path,
            UNDRAWN="1",
        )
        rankings = json.loads((tmp_path / "ranked" / "result.json").read_text())["rankings"]
        return np.array(
            [[one["truth"]["r1"], one["truth"]["r10"], one["hubness"]["largest_hub_10"]] for one in rankings]
        )

    for criterion, name in {"csls": "CSLS", "is": "inverted softmax", "sinkhorn": "Sinkhorn"}.items():
        halves = [(f"queries={one}.npy", f"reference={1 - one}.npy", f"truth={one}.csv") for one in (0, 1)]
        inductive = sum(ranked(criterion, *half) for half in halves) / 2
        transductive = ranked(criterion, f"queries={SHARED}::text", "truth=aligned")[:, 0]
        for shown, (first, ten, hub), seen in zip(
            ("none (nearest neighbour)", name), inductive, transductive, strict=True
        ):
            assert f"| {shown} | {first:.1f} | {ten:.1f} | {int(hub + 0.5)} | {seen:.1f} |" in README

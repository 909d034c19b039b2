"""The figures at the top of README.md, measured again on the vectors that they are of."""

import json
import re
from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared" / "data" / "pretrained" / "clip_coco500.npz"
README = " ".join((Path(__file__).parents[2] / "README.md").read_text().split())


@pytest.mark.skipif(not SHARED.is_file(), reason=f"{SHARED.name}, CLIP's vectors of COCO, is not beside the project")
def test_the_figures_of_the_readme(vsehub, tmp_path):
    given = [f"queries={SHARED}::text", f"items={SHARED}::image", "truth=aligned", "normalize=true"]
    names = {"nns": "none (nearest neighbour)", "is": "inverted softmax", "csls": "CSLS", "sinkhorn": "Sinkhorn"}
    for criterion in ("is", "csls", "sinkhorn"):
        vsehub("rerank", *given, f"criterion={criterion}", f"out={tmp_path / criterion}", cwd=tmp_path, UNDRAWN="1")
        for ranking in json.loads((tmp_path / criterion / "result.json").read_text())["rankings"]:
            recalls = [f"{ranking['truth'][name]:.1f}" for name in ("r1", "r10")]
            hubness = [f"{ranking['hubness']['largest_hub_10']:.0f}", f"{ranking['hubness']['skew_10']:.2f}"]
            assert f"| {' | '.join([names[ranking['criterion']], *recalls, *hubness])} |" in README
    said = vsehub("rerank", *given, "criterion=auto", f"out={tmp_path / 'auto'}", cwd=tmp_path, UNDRAWN="1").out
    gain, low, high = re.search(r"gain of sinkhorn in R@1: \+([\d.]+) points \[\+([\d.]+), \+([\d.]+)\]", said).groups()
    assert f"R@1 rose by {gain} points (95 % interval {low} to {high})" in README
    assert "chosen: sinkhorn" in said

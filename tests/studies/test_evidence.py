"""Claims held against results, and every study rendered again from its tables: not one byte may change."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from looped import looped
from scipy import stats

from experiments import evidence
from experiments.__main__ import main

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/results.csv"))
WITHOUT_CLAIMS = ("demo", "pretrained", "strong", "zero_shot")
COLUMNS = ["claim", "source", "metric", "higher", "lower", "published_higher", "published_lower"]
CLAIM = pd.DataFrame([["a leads b", "paper, table 1", "rsum", "a", "b", 10.0, None]], columns=COLUMNS)


@looped(
    ("a", "b", "outcome", "differences"),
    [
        ([30, 32, 31, 9], [1, 3, 2.5], "holds over seeds", [29, 29, 28.5]),  # only common seeds are paired
        ([1, 3, 2.5], [30, 32, 31], "contradicted over seeds", [-29, -29, -28.5]),
        ([10, 12, 14], [9, 14, 11], "not told apart", [1, -2, 3]),
        ([3, 3, 3], [3, 3, 3], "not told apart", None),  # a tie, no deviation at all
        ([4, 5, 6], [3, 4, 5], "not told apart", [0.8, 1, 1.2]),  # never below a step of rsum of 500 images, 0.2
        ([10, 12], [1, 2], "too few seeds", None),
        ([10, 11, 12], [], "not measured", None),
    ],
)
def test_an_outcome_follows_the_paired_test_over_seeds(a, b, outcome, differences):
    rows = [(loss, seed, value) for loss, values in (("a", a), ("b", b)) for seed, value in enumerate(values)]
    frame = pd.DataFrame(rows, columns=["loss", "seed", "rsum"]).assign(images=500)
    judged = evidence.judged(frame, pd.concat([CLAIM] * 9, ignore_index=True))
    assert judged["outcome"].tolist() == [outcome] * 9
    if differences:
        p = stats.ttest_1samp(differences, 0).pvalue
        assert judged["p"].tolist() == pytest.approx([p] * 9)
        assert judged["holm"].tolist() == pytest.approx([min(9 * p, 1)] * 9)


@pytest.mark.parametrize("name", [*STUDIES, *WITHOUT_CLAIMS])
def test_rendering_a_study_again_changes_nothing(name, tmp_path):
    own, copy = EXPERIMENTS / name, tmp_path / name
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns("__pycache__"))
    page = copy / "README.md"
    bare = re.sub(r"(<!-- generated.*? -->).*?(<!-- end)", r"\1\n\2", page.read_text(), flags=re.DOTALL)
    assert bare != page.read_text()
    page.write_text(bare)
    if name not in WITHOUT_CLAIMS:
        shutil.rmtree(copy / "figures")
    main([name, "render", str(copy)])
    for path in sorted(path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert (copy / path.relative_to(own)).read_bytes() == path.read_bytes(), path.name

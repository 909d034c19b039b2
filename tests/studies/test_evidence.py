"""Claims held against results, and the pages of studies against their tables."""

import math
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
WITHOUT_CLAIMS = ("pretrained",)
COLUMNS = ["claim", "source", "metric", "higher", "lower", "published_higher", "published_lower"]
CLAIM = pd.DataFrame([["a leads b", "paper, table 1", "rsum", "a", "b", 10.0, None]], columns=COLUMNS).assign(
    named=True
)


@looped(
    ("a", "b", "outcome", "differences"),
    [
        ([30, 32, 31, 9], [1, 3, 2.5], "holds over seeds", [29, 29, 28.5]),  # only common seeds are paired
        ([1, 3, 2.5], [30, 32, 31], "contradicted over seeds", [-29, -29, -28.5]),
        ([10, 12, 14], [9, 14, 11], "undecided", [1, -2, 3]),
        ([3, 3, 3], [3, 3, 3], "equal within ±2 rsum", None),  # a tie, no deviation at all
        ([3, 5, 4], [4, 4, 4], "undecided", [-1, 1, 0]),
        ([4, 4.6, 4.1], [4, 4.2, 4.2], "equal within ±2 rsum", [0, 0.4, -0.1]),
        ([4, 5, 6], [3, 4, 5], "undecided", [0.8, 1, 1.2]),  # never below a step of rsum of 500 images, 0.2
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
        test = stats.ttest_1samp(differences, 0)
        p = test.pvalue
        assert judged["p"].tolist() == pytest.approx([p] * 9)
        assert judged["holm"].tolist() == pytest.approx([min(9 * p, 1)] * 9)
        low, high = test.confidence_interval()
        sides = [
            stats.ttest_1samp(differences, bound, alternative=side) for bound, side in ((-2, "greater"), (2, "less"))
        ]
        equal = max(side.pvalue for side in sides)
        assert judged[["low", "high", "p_equal"]].iloc[0].tolist() == pytest.approx([low, high, equal])
        named = evidence.judged(frame, pd.concat([CLAIM, CLAIM.assign(named=False)]))
        assert named["holm"].tolist() == pytest.approx([p, math.nan], nan_ok=True)
        assert named["outcome"][1] == "–"


@pytest.mark.long
@pytest.mark.parametrize("name", [*STUDIES, *WITHOUT_CLAIMS])
def test_the_page_of_a_study_follows_from_its_tables(name, undrawn, tmp_path):
    copy = shutil.copytree(EXPERIMENTS / name, tmp_path / name, ignore=shutil.ignore_patterns("*.png", "__pycache__"))
    page = (copy / "README.md").read_text()
    bare = re.sub(r"(<!-- generated.*? -->).*?(<!-- end)", r"\1\n\2", page, flags=re.DOTALL)
    assert bare != page
    (copy / "README.md").write_text(bare)
    main([name, "render", str(copy)])
    assert (copy / "README.md").read_text() == page

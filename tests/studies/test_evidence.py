"""Claims held against results, and every study rendered again from its tables: not one byte may change."""

import itertools
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from looped import looped
from scipy import stats

from experiments import evidence
from experiments.claims.curves import correlation, plateau
from vsehub.checks import InputError

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/results.csv"))
WITHOUT_CLAIMS = ("demo", "pretrained", "strong")


def results(**cases):
    rows = [(loss, seed, value) for loss, values in cases.items() for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["loss", "seed", "rsum"]).assign(images=500)


COLUMNS = ["claim", "source", "metric", "higher", "lower", "published_higher", "published_lower"]
CLAIM = pd.DataFrame([["a leads b", "paper, table 1", "rsum", "a", "b", 10.0, None]], columns=COLUMNS)


@looped(
    ("a", "b", "outcome"),
    [
        ([30, 32, 31], [1, 3, 2.5], "holds over seeds"),
        ([1, 3, 2.5], [30, 32, 31], "contradicted over seeds"),
        ([10, 12, 14], [9, 14, 11], "not told apart"),
        ([3, 3, 3], [3, 3, 3], "not told apart"),  # a tie, no deviation at all
        ([10, 12], [1, 2], "too few seeds"),
        ([10, 11, 12], [], "not measured"),
    ],
)
def test_an_outcome_follows_the_paired_test_over_seeds(a, b, outcome):
    assert evidence.judged(results(a=a, b=b), CLAIM)["outcome"].tolist() == [outcome]


def test_claims_are_tested_seed_by_seed_and_corrected_over_the_table():
    frame = results(a=[100.0, 200.0, 300.0, 9.0], b=[97.0, 196.0, 296.5])  # only common seeds are paired
    line = evidence.judged(frame, CLAIM).iloc[0]
    assert (line["seeds"], line["difference"], line["deviation"]) == (3, pytest.approx(3.5), pytest.approx(0.5))
    assert line["p"] == line["holm"] == pytest.approx(stats.ttest_1samp([3.0, 4.0, 3.5], 0).pvalue)
    many = evidence.judged(frame, pd.concat([CLAIM] * 9, ignore_index=True))
    assert many["holm"].tolist() == pytest.approx([9 * line["p"]] * 9)
    with pytest.raises(InputError, match="a seed twice"):
        evidence.judged(pd.concat([frame] * 2), CLAIM)


def test_seeds_that_agree_are_floored_at_a_step_of_the_metric():
    line = evidence.judged(results(a=[4.0, 5.0, 6.0], b=[3.0, 4.0, 5.0]), CLAIM).iloc[0]
    assert line["p"] == pytest.approx(stats.ttest_1samp([0.8, 1.0, 1.2], 0).pvalue)  # rsum of 500 images: 0.2


@looped(
    ("curve", "tolerance", "epoch"),
    [
        ([50, 98.9, 99.0, 100, 99], 0.01, 3),  # 99 is within, 98.9 is not
        ([100, 50, 60], 0.01, 1),  # collapsed after its first epoch
        ([10, 20, 30], 0.0, 3),  # still rising
        ([0, 0, 0], 0.01, 1),
    ],
)
def test_plateau(curve, tolerance, epoch):
    assert plateau(curve, tolerance) == epoch


def test_correlation_equals_scipy_with_ties_and_its_p_all_orders():
    x, y = [1.0, 2.0, 3.0, 3.0, 5.0], [9.0, 7.0, 8.0, 3.0, 1.0]
    found, rho = correlation(x, y), stats.spearmanr(x, y).statistic
    assert (found.pearson, found.spearman) == pytest.approx((stats.pearsonr(x, y).statistic, rho))
    orders = [abs(stats.spearmanr(x, list(order)).statistic) for order in itertools.permutations(y)]
    assert found.p == pytest.approx(np.mean([one >= abs(rho) - 1e-12 for one in orders]), abs=0.01)


@pytest.mark.parametrize("name", [*STUDIES, *WITHOUT_CLAIMS])
def test_rendering_a_study_again_changes_nothing(name, study, tmp_path):
    own, copy = EXPERIMENTS / name, tmp_path / name
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns("__pycache__"))
    page = copy / "README.md"
    bare = re.sub(r"(<!-- generated.*? -->).*?(<!-- end)", r"\1\n\2", page.read_text(), flags=re.DOTALL)
    assert bare != page.read_text()
    page.write_text(bare)
    if name not in WITHOUT_CLAIMS:
        shutil.rmtree(copy / "figures")
    study(name, "render", copy)
    for path in sorted(path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert (copy / path.relative_to(own)).read_bytes() == path.read_bytes(), path.name

"""What the papers' figures show: the numbers behind them, and the whole way from run folders to the page."""

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from looped import looped
from scipy import stats

from experiments.claims import judging
from experiments.claims.curves import compared, correlation, digest, gaps, place, plateau, swept
from experiments.claims.study import STUDY
from vsehub.checks import InputError

ROOT = Path(__file__).parents[2]


@looped(
    ("curve", "tolerance", "epoch"),
    [
        ([50, 98.9, 99.0, 100, 99], 0.01, 3),  # 99 is within, 98.9 is not
        ([100, 50, 60], 0.01, 1),  # collapsed after its first epoch
        ([10, 20, 30], 0.0, 3),  # still rising
        ([0, 0, 0], 0.01, 1),
        ([7], 0.5, 1),
        ([90, 96, 100], 0.05, 2),
    ],
)
def test_plateau(curve, tolerance, epoch):
    assert plateau(curve, tolerance) == epoch


@pytest.mark.parametrize(
    ("curve", "tolerance", "message"),
    [([], 0.01, "empty"), ([1, float("nan")], 0.01, "not finite"), ([1, 2], 1.0, "tolerance is 1")],
)
def test_plateau_refuses(curve, tolerance, message):
    with pytest.raises(InputError, match=message):
        plateau(curve, tolerance)


def test_correlation_equals_scipy_with_ties():
    rng = np.random.default_rng(1)
    x = rng.integers(0, 6, 30).astype(float)
    y = -x + rng.normal(0, 2, 30)
    found = correlation(x, y)
    assert found.pearson == pytest.approx(stats.pearsonr(x, y).statistic)
    assert found.spearman == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.points == 30
    assert found.p < 0.01
    assert correlation(y, x).p == pytest.approx(found.p, abs=0.001)


def test_permutation_p_against_all_orders():
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 7.0, 8.0, 3.0, 1.0]
    rho = abs(stats.spearmanr(x, y).statistic)
    orders = [abs(stats.spearmanr(x, list(order)).statistic) for order in itertools.permutations(y)]
    exact = np.mean([one >= rho - 1e-12 for one in orders])
    assert correlation(x, y).p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(
    ("x", "y", "points"), [([1, 2], [2, 1], 2), ([1, 1, 1], [1, 2, 3], 3), ([1, 2, np.nan], [1, 2, 3], 2)]
)
def test_no_correlation_is_nan(x, y, points):
    found = correlation(x, y)
    assert np.isnan(found[:3]).all()
    assert found.points == points


def run(loss, seed, epochs=13, **settings):
    """A row as `collect.py` makes it, of a run with these settings."""
    names = {"batch_size": "loader.batch_size", "k": "loss.k", "bank": "bank.fraction", "lr": "optimizer.lr"}
    recipe = {"loader.batch_size": "128", "loss._target_": loss, "embedding_dim": "512"}
    recipe |= {"trainer.max_epochs": str(epochs), "loader.word_vectors": "None"}
    recipe |= {names.get(name, name): str(value) for name, value in settings.items()}
    return {"loss": loss, "seed": seed, "epochs": epochs} | place(recipe)


def test_a_null_setting_is_as_good_as_none_and_a_study_is_no_recipe():
    assert digest({"a": "1", "b": "None", "study": "mine"}) == digest({"a": "1"}) != digest({"a": "1", "b": "0"})
    assert digest({"a": "1", "b": "2"}, ["b"]) == digest({"a": "1"})


def test_losses_are_compared_under_one_budget():
    rows = [run("sum", seed, lr=0.001) for seed in (0, 1)] + [run("hal", 0), run("hal+mb", 0, bank=0.05)]
    rows += [run("knn_margin", 0, k=3), *(run("knn_margin", seed, k=5) for seed in (0, 1, 2))]  # the papers' k stands
    rows += [run("max", seed, lr=lr) for seed, lr in ((0, 0.1), (1, 0.1), (0, 0.2))]  # the rate with more seeds
    others = [run(loss, seed, epochs=30) for loss in ("sum", "hal", "max") for seed in range(5)]  # fewer losses
    frame = pd.DataFrame(others + rows)
    chosen = frame.loc[compared(frame)]
    assert set(chosen["epochs"]) == {13}
    assert chosen.groupby("loss")["seed"].apply(list).to_dict() == {
        "sum": [0, 1], "hal": [0], "hal+mb": [0], "knn_margin": [0], "max": [0, 1],
    }  # fmt: skip
    assert chosen.loc[chosen["loss"] == "knn_margin", "k"].tolist() == [3]
    assert len(compared(frame[:0])) == 0


def test_a_sweep_changes_one_setting_alone():
    rows = [run("hal", seed, batch_size=size) for size in (32, 128, 512) for seed in (0, 1)]
    rows += [run("hal", 0, batch_size=64, lr=0.1), run("hal", 0, batch_size=128, lr=0.1)]  # fewer values
    rows += [run("sum", 0, batch_size=size) for size in (128, 512)] + [run("max", 0), run("max", 1)]
    frame = pd.DataFrame(rows).drop(index=3)  # hal at 128, seed 1
    found = frame.loc[swept(frame, "batch_size")]
    assert found.groupby("loss")["batch_size"].apply(lambda values: sorted(set(values))).to_dict() == {
        "hal": [32, 128, 512], "sum": [128, 512],
    }  # fmt: skip
    own = found[found["loss"] == "hal"]
    assert gaps(own, "batch_size") == [("hal", 128.0, 1)]
    assert gaps(found, "batch_size")[1:] == [("sum", 32.0, 0)] + [("sum", size, 1) for size in (32.0, 128.0, 512.0)]
    assert len(swept(frame, "k")) == 0


def test_lambda_is_chosen_on_val_by_direction():
    columns = ["loss", "seed", "recipe", "split", "relaxation", "i2t_r10", "t2i_r10", "rsum"]
    rows = [("sum", 0, "a", "val", lam, *val, 0) for lam, val in ((1.0, (5, 6)), (2.0, (7, 6)), (3.0, (7, 8)))]
    rows += [
        ("sum", 0, "a", "test", lam, *test, 0) for lam, test in ((1.0, (50, 60)), (2.0, (40, 99)), (3.0, (90, 30)))
    ]
    rows += [("sum", 1, "a", "test", 1.0, 50, 60, 0)]  # no val: nothing was chosen
    chosen = judging.chosen_lambdas(pd.DataFrame(rows, columns=columns))
    assert chosen.to_dict("records") == [
        {"loss": "sum", "seed": 0, "recipe": "a", "i2t": 2.0, "i2t_r10": 40, "t2i": 3.0, "t2i_r10": 30}
    ]


def test_published_figures_are_those_of_the_tables():
    papers = {"AAAI": "aaai2020", "ACL": "acl-srw2019", "EMNLP": "emnlp2019-submission"}
    printed = pd.read_csv(ROOT / "experiments/papers/paper_tables.csv", dtype={"table": str, "line": str})
    printed["rsum"] = printed["rsum"].fillna(printed.filter(regex="_r(1|5|10)$").sum(axis=1, skipna=False))
    rows = printed.set_index(["paper", "table", "line"])
    expected = pd.read_csv(STUDY.folder / "expected.csv")
    held = 0
    for _, claim in expected.iterrows():
        if found := re.match(r"(\w+) table (\d), ([\d.]+) and ([\d.]+)", claim["source"]):
            lines = [rows.loc[(papers[found[1]], found[2], found[number])] for number in (3, 4)]
            figures = [line[claim["metric"]] for line in lines]
            assert figures == pytest.approx(claim[["published_higher", "published_lower"]].tolist()), claim["claim"]
            held += 1
    assert held >= 12
    rows = printed[(printed["paper"] == "emnlp2019-submission") & (printed["table"] == "2")].dropna(subset=["hs_sum"])
    rho = expected.loc[expected["metric"] == "spearman", "published_higher"].item()
    assert rho == pytest.approx(correlation(rows["hs_sum"], rows["rsum"]).spearman, abs=0.001)


@pytest.mark.parametrize("data", ["scenes", "flickr8k"])
def test_a_training_changes_what_its_folder_says(data):
    runs = STUDY.trainings["results"].on(data).runs(Path("out"), seeds=[4])
    seen = set()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for folder, (case, overrides) in runs.items():
            (sweep, _, value), loss = folder.parent.name.rpartition("-"), case.partition("/")[2]
            if (sweep, loss) in seen:
                continue
            seen.add((sweep, loss))
            config = compose("train", overrides)
            group, name = {"batch_size": ("loader", "batch_size"), "k": ("loss", "k"), "bank": ("bank", "fraction")}[
                sweep
            ]
            assert (config[group][name], config.seed) == (float(value), 4), folder
    assert len(runs) == (12 if data == "scenes" else 35)

"""The study's claims held against its tables."""

import json

import pandas as pd

from experiments.claims.curves import Correlation, correlation, plateau
from experiments.evidence import judged

SWEEPS = ("batch_size", "k", "bank")
RUN = ["loss", "seed", "recipe"]
KIND = ["criterion", "reference", "settings"]
DEFAULT_LAMBDA = 2.0
ENDS = ("", "_before_decay")


def drawn_in(frame: pd.DataFrame, figure: str) -> pd.DataFrame:
    """The rows of results.csv that belong to a figure: "losses" or one of SWEEPS."""
    return frame[[figure in str(names).split() for names in frame["figures"]]]


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of nearest-neighbour search, a run each."""
    return frame[frame["criterion"] == "nns"]


def of_runs(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of epochs.csv or lambda.csv that are of `runs`."""
    return table.merge(runs[RUN].drop_duplicates(), on=RUN)


def plateaus(epochs: pd.DataFrame) -> pd.DataFrame:
    """Epochs to the plateau of each run: of the whole curve, and of the epochs before the learning rate falls."""
    rows = []
    for run, of_run in epochs.sort_values("epoch", kind="stable").groupby(RUN, sort=False):
        before = of_run if of_run["decay"].isna().all() else of_run[of_run["epoch"] <= of_run["decay"]]
        line = dict(zip(RUN, run, strict=True)) | {"epochs": len(of_run), "decay": of_run["decay"].iloc[0]}
        curves = {"plateau": of_run["val_rsum"], "plateau_before_decay": before["val_rsum"]}
        rows.append(line | {name: plateau(curve.tolist()) for name, curve in curves.items()})
    return pd.DataFrame(rows, columns=[*RUN, "epochs", "decay", *(f"plateau{end}" for end in ENDS)])


def chosen_lambdas(table: pd.DataFrame) -> pd.DataFrame:
    """For each run and direction the λ with the largest R@10 on val, the smallest of equal ones, and what it gives on
    test; a row a run, with `i2t`, `t2i` and the recalls.
    """
    rows = []
    for run, of_run in table.groupby(RUN, sort=False):
        val, test = (of_run[of_run["split"] == split].set_index("relaxation").sort_index() for split in ("val", "test"))
        if val.empty or not set(val.index) <= set(test.index):
            continue
        line = dict(zip(RUN, run, strict=True))
        for side in ("i2t", "t2i"):
            line[side] = val[f"{side}_r10"].idxmax()
            line[f"{side}_r10"] = test.loc[line[side], f"{side}_r10"]
        rows.append(line)
    return pd.DataFrame(rows, columns=[*RUN, "i2t", "i2t_r10", "t2i", "t2i_r10"])


def cases(results: pd.DataFrame, epochs: pd.DataFrame, lambdas: pd.DataFrame) -> pd.DataFrame:
    """All that expected.csv may compare: a row a run and case, such as "hal", "hal at k 3", "hal with csls"."""
    main = drawn_in(results, "losses")
    plains = plain(main)
    lengths = plateaus(of_runs(epochs, plains))[[*RUN, *(f"plateau{end}" for end in ENDS)]]
    frames = [plains.merge(lengths, on=RUN, how="left").assign(case=plains["loss"].to_numpy())]
    transductive = main[(main["reference"] != "inductive") & (main["criterion"] != "rgm")]
    transductive = transductive[transductive["settings"] == "default"]
    frames.append(transductive.assign(case=transductive["loss"] + " with " + transductive["criterion"]))
    for name in SWEEPS:
        rows = plain(drawn_in(results, name))
        labels = [f"{loss} at {name} {value:g}" for loss, value in zip(rows["loss"], rows[name], strict=True)]
        frames.append(rows.assign(case=labels))
    relaxed = of_runs(lambdas, main)
    greedy = relaxed[(relaxed["split"] == "test") & (relaxed["relaxation"] == 1)]
    chosen = chosen_lambdas(relaxed)
    frames += [
        greedy.assign(case=greedy["loss"] + " with λ = 1"),
        chosen.assign(case=chosen["loss"] + " with λ chosen"),
    ]
    return pd.concat(frames, ignore_index=True)


def correlations(results: pd.DataFrame, published: pd.DataFrame) -> list[tuple[str, Correlation]]:
    """rsum against hs_sum: (of what, how they go together), a point a recipe, the mean over its seeds."""
    everything = points(plain(results))
    groups = [("all recipes, nns", everything)]
    groups.append(("recipes with at least half of the best rsum, nns", learned(everything)))
    main = drawn_in(results, "losses")
    kinds = one_lambda(main).groupby(KIND, sort=False)
    groups += [(f"the losses, {kind_text(*kind)}", points(rows)) for kind, rows in kinds]
    groups += [
        (f"published, EMNLP table {table} ({rows['dataset'].iloc[0]}), nns", rows)
        for table, rows in published.groupby("table")
    ]
    return [(name, correlation(rows["hs_sum"], rows["rsum"])) for name, rows in groups]


def points(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds, a row a recipe, loss and evaluation."""
    return rows.groupby(["loss", "recipe", *KIND], sort=False)[["rsum", "hs_sum"]].mean()


def learned(rows: pd.DataFrame) -> pd.DataFrame:
    """Those whose rsum is at least half of the best: a collapsed run is a hub of its own kind."""
    return rows[rows["rsum"] >= rows["rsum"].max() / 2]


def one_lambda(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows without those of other λ than the default and the fitted ones."""
    values = rows["parameters"].map(lambda text: json.loads(text).get("relaxation"))
    return rows[(rows["criterion"] != "rgm") | (rows["settings"] == "tuned") | (values == DEFAULT_LAMBDA)]


def kind_text(criterion: str, reference: str, settings: str) -> str:
    """Name of a ranking's criterion in the tables."""
    words = [reference] * (reference == "inductive") + [settings] * (settings == "tuned")
    return ", ".join([criterion, *words])


def held(results: pd.DataFrame, epochs: pd.DataFrame, lambdas: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """expected.csv's claims with outcomes."""
    images = int(results["images"].min()) if len(results) else 1
    return judged(cases(results, epochs, lambdas), expected, "case", images)

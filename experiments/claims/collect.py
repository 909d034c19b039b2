"""results.csv and the tables beside it, from run folders and measurements.

Runs that are not finished, and measurements of runs that are not among those given, are named and left out. Beside
results.csv, a row a run and evaluation on test: epochs.csv, lambda.csv, occurrences.csv, published.csv, of figures
alone.
"""

import json
from pathlib import Path

import pandas as pd

from experiments.claims.curves import SWEPT, compared, digest, place, swept
from experiments.published import published_table
from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.recipes import label_rank, recipe
from vsehub.report.runs import Run, find_runs, read_run

HERE = Path(__file__).parent

FIGURES = {f"{side}_r{k}": f"{side}/r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)} | {
    "rsum": "rsum",
    "hs_sum": "hubness/hs_sum",
}
RESULTS = [
    "loss", "seed", "dataset", "setting", "figures", *SWEPT, "epochs", "best_epoch", "val_rsum", "recipe", "criterion",
    "reference", "settings", "parameters", "protocol", "images", "texts", *FIGURES,
]  # fmt: skip
OCCURRENCES_K = 10


def trainings(folders: list[Path]) -> tuple[dict[str, Run], pd.DataFrame]:
    """The finished runs by path, and a row for each as `curves` takes them, by loss, seed and recipe.

    Raises InputError where none is finished, or where they are of several data sets.
    """
    runs = {str(path): read_run(path, path.name) for path in find_runs(folders)}
    rows = []
    for path, run in runs.items():
        if run.finished:
            config = run.record["config"]
            row = {"path": path, "loss": run.record["label"], "seed": run.record["seed"]}
            row |= {"dataset": run.record["dataset"], "setting": setting(config), "epochs": len(curve(run))}
            rows.append(row | place(recipe(run)))
        else:
            print(f"{path} is {run.record['status']}, not finished: left out")
    require(bool(rows), "none of the runs is finished; wait for one, or run the training's command again")
    frame = pd.DataFrame(rows)
    names = sorted(set(frame["dataset"]))
    require(len(names) == 1, f"the runs are of several data sets, {', '.join(names)}; give those of one")
    frame = frame.sort_values(["seed", "recipe", "path"]).sort_values(
        "loss", key=lambda names: names.map(label_rank), kind="stable", ignore_index=True
    )
    for path in frame.loc[frame.duplicated(["loss", "recipe", "seed"]), "path"]:
        print(f"{path} repeats another run's recipe and seed: left out")
    return runs, frame.drop_duplicates(["loss", "recipe", "seed"], ignore_index=True)


def setting(config: dict) -> str:
    """The budget in words."""
    return (
        f"{config['embedding_dim']}-d, {config['trainer']['max_epochs']} epochs, decay after "
        f"{config['scheduler'].get('step_size', 'none')}, batches of {config['loader']['batch_size']}"
    )


def curve(run: Run) -> pd.Series:
    """Validation rsum by epoch, counted from 1; a resumed run's last word on an epoch counts."""
    if not {"epoch", "val/rsum"} <= set(run.history):
        return pd.Series(dtype=float)
    rows = run.history.dropna(subset=["epoch", "val/rsum"])
    return rows.groupby(rows["epoch"].astype(int) + 1)["val/rsum"].last()


def figures_of(frame: pd.DataFrame) -> pd.Series:
    """The figures that show a run: "losses batch_size", say; all are points of the correlation."""
    members = {"losses": compared(frame)} | {name: swept(frame, name) for name in SWEPT}
    return pd.Series(
        [" ".join(name for name, index in members.items() if row in index) for row in frame.index], frame.index
    )


def measurements(folders: list[Path], frame: pd.DataFrame) -> dict[int, list[dict]]:
    """The measurements of each run, by its row, from `measure` here or the grid's; those of other runs are named."""
    rows = {(row["loss"], row["seed"], row["recipe"]): index for index, row in frame.iterrows()}
    by_index: dict[int, list[dict]] = {}
    others = set()
    for file in sorted(file for folder in folders for file in folder.rglob("*.json")):
        record = json.loads(file.read_text())
        run_name = record.get("run")
        if run_name is None:
            continue
        key = (run_name["label"], run_name["seed"], digest(recipe(Run("", run_name, {}, pd.DataFrame()))))
        if key in rows:
            by_index.setdefault(rows[key], []).append(record)
        else:
            others.add(file.parent)
    for folder in sorted(others):
        print(f"{folder} belongs to none of the runs, or to one trained otherwise: left out")
    return by_index


def results(frame: pd.DataFrame, runs: dict[str, Run], measured: dict[int, list[dict]]) -> pd.DataFrame:
    """One row a run and evaluation on test."""
    rows = []
    for index, row in frame.iterrows():
        run = runs[row["path"]]
        best = run.record["best"]
        line = row.to_dict() | {"best_epoch": best["epoch"] + 1, "val_rsum": best["val/rsum"]}
        for record in [*run.evaluations.values(), *measured.get(index, [])]:
            if record["split"] == "test" and not record.get("ensemble"):
                line |= {name: record[name] for name in ("criterion", "reference", "protocol", "images", "texts")}
                line |= {"settings": "tuned" if record["tuned"] else "default"}
                line |= {"parameters": json.dumps(record["parameters"], sort_keys=True)}
                line |= {name: record["metrics"][key] for name, key in FIGURES.items()}
                rows.append({name: line[name] for name in RESULTS})
    table = pd.DataFrame(rows, columns=RESULTS)
    kinds = table.value_counts(["protocol", "images", "texts"], sort=True)
    for protocol, images, texts in kinds.index[1:]:
        print(f"evaluations of {images} images and {texts} texts, protocol {protocol}, are fewer: left out")
    if len(kinds) > 1:
        table = table.merge(pd.DataFrame([kinds.index[0]], columns=kinds.index.names))
    keys = ["loss", "seed", "recipe", "criterion", "reference", "settings", "parameters"]
    return table.drop_duplicates(keys, ignore_index=True)


def epochs(frame: pd.DataFrame, runs: dict[str, Run]) -> pd.DataFrame:
    """Validation rsum after each epoch; `decay` is the last epoch before the learning rate falls first."""
    columns = ["loss", "seed", "recipe", "decay", "epoch", "val_rsum"]
    rows = []
    for _, row in frame.iterrows():
        run = runs[row["path"]]
        recipe_of = [*row[columns[:3]], run.record["config"]["scheduler"].get("step_size")]
        rows += [(*recipe_of, epoch, value) for epoch, value in curve(run).items()]
    return pd.DataFrame(rows, columns=columns)


def published() -> pd.DataFrame:
    """The papers' rows that print hubness beside the recalls."""
    tables = [published_table("emnlp2019-submission", table).assign(table=table) for table in ("1", "2")]
    frame = pd.concat(tables).rename(columns={"hubness/hs_sum": "hs_sum"}).dropna(subset=["rsum", "hs_sum"])
    return frame[["paper", "table", "line", "dataset", "architecture", "loss", "criterion", "rsum", "hs_sum"]]


def over_lambda(frame: pd.DataFrame, measured: dict[int, list[dict]]) -> pd.DataFrame:
    """Recalls at 10 for each λ, on val and on test."""
    columns = ["loss", "seed", "recipe", "split", "relaxation", "i2t_r10", "t2i_r10", "rsum"]
    rows = []
    for index, row in frame.iterrows():
        line = row[columns[:3]].to_dict()
        for record in sorted(measured.get(index, []), key=lambda evaluation: evaluation["split"]):
            relaxation = record["parameters"].get("relaxation")
            if record["criterion"] == "rgm" and isinstance(relaxation, float) and not record["tuned"]:
                recalls = {name: record["metrics"][FIGURES[name]] for name in columns[5:]}
                rows.append(line | {"split": record["split"], "relaxation": relaxation} | recalls)
    return pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:5], ignore_index=True)


def occurrences(frame: pd.DataFrame, runs: dict[str, Run], measured: dict[int, list[dict]]) -> pd.DataFrame:
    """Items by N_10 on test, added over the seeds, of the runs that compare the losses; of λ the default."""
    columns = ["loss", "criterion", "direction", "occurrences", "items"]
    rows = []
    for index in compared(frame):
        chosen = {}
        for record in [*runs[frame.loc[index, "path"]].evaluations.values(), *measured.get(index, [])]:
            plain = record["split"] == "test" and record["reference"] != "inductive" and not record["tuned"]
            plain = plain and record["parameters"].get("relaxation", 2.0) == 2.0 and not record.get("ensemble")
            if plain and record.get("histograms"):
                chosen[record["criterion"]] = record["histograms"]
        for criterion, histograms in chosen.items():
            for side, by_k in histograms.items():
                counts = by_k[str(OCCURRENCES_K)]
                key = (frame.loc[index, "loss"], criterion, side)
                rows += [(*key, *pair) for pair in zip(counts["occurrences"], counts["items"], strict=True)]
    return pd.DataFrame(rows, columns=columns).groupby(columns[:4], sort=False, as_index=False).sum()


PAGE = """# The papers' figures

## Claim

That of experiments/claims/README.md, which says what is compared and how.

## Command

The commands there, with `collect --to FOLDER` and `render FOLDER`.

## Outcome

<!-- generated: verdict -->
<!-- end of the generated part -->

## Figures

<!-- generated: figures -->
<!-- end of the generated part -->
"""


def write(folders: list[Path], measured_in: list[Path], out: Path) -> None:
    """Write all tables into `out`, and where it has none the page's frame and the claims."""
    runs, frame = trainings(folders)
    frame["figures"] = figures_of(frame)
    measured = measurements(measured_in, frame)
    tables = {
        "results": results(frame, runs, measured),
        "epochs": epochs(frame, runs),
        "lambda": over_lambda(frame, measured),
        "occurrences": occurrences(frame, runs, measured),
        "published": published(),
    }
    for name, table in tables.items():
        write_text(out / f"{name}.csv", table.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    for name, text in (("README.md", PAGE), ("expected.csv", (HERE / "expected.csv").read_text())):
        if not (out / name).exists():
            write_text(out / name, text)
    print(f"{len(frame)} runs, {len(tables['results'])} evaluations on test in {out / 'results.csv'}")

"""Checkpoints under every criterion: transductive and inductive, at default settings and tuned on val.

    python -m experiments criteria measure RUNS... --out FOLDER
    python -m experiments criteria collect FOLDER
    python -m experiments criteria render

RUNS: run folders or folders of them. Each split is encoded once a run. Differences to nns are taken run by run, so that
what a seed does to both is not counted as spread.
"""

import json
from pathlib import Path

import matplotlib
import pandas as pd
from tqdm import tqdm

from experiments.checkpoints import chosen, restored
from experiments.evidence import judged, judged_table, read_expected, renew, spread, verdict
from experiments.grid.measure import cells, file_name
from experiments.plots import save
from experiments.study import DATA_ROOT, MEASURED, RUNS, TO, Given, Study, option, verb
from vsehub.checks import require
from vsehub.components import conf_folder
from vsehub.evaluation.measurement import Measurement
from vsehub.evaluation.measurement import measure as measured
from vsehub.io.files import write_json, write_text
from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure
from vsehub.report.plots import render as drawn
from vsehub.report.recipes import label_rank
from vsehub.report.runs import find_runs, read_run
from vsehub.report.tables import ReportTable, spread_text

SIDES = ("i2t", "t2i")
COLUMNS = {f"{side}_r{k}": f"{side}/r{k}" for side in SIDES for k in (1, 5, 10)} | {
    "rsum": "rsum",
    "map_r_i2t": "i2t/map_r",
    "meanr_i2t": "i2t/meanr",
    "meanr_t2i": "t2i/meanr",
    "hs_sum": "hubness/hs_sum",
}
CASE = ["loss", "criterion", "reference", "settings"]


def names() -> list[str]:
    """All criteria that have a yaml."""
    return sorted(path.stem for path in (conf_folder() / "criterion").glob("*.yaml"))


@verb(
    RUNS, MEASURED, DATA_ROOT, option("--criteria", nargs="+", default=names(), help="default: all of conf/criterion")
)
def measure(given: Given) -> None:
    """Measure runs under every criterion, as far as that is not done."""
    for run in find_runs(given.runs):
        record = read_run(run, run.name).record
        measure_run(run, given.measured / f"{record['label']}-{record['seed']}", given.criteria, given.root)


def measure_run(run: Path, out: Path, criteria: list[str], root: str | None) -> None:
    """Write every measurement of one run that `out` lacks."""
    model = None
    protocol = chosen("protocol", "single")
    for name, reference, fitted in tqdm([*cells(criteria)], out.name):
        path = out / file_name(name, reference, fitted)
        if not path.exists():
            model = model or restored(run, root)
            asked = Measurement("test", chosen("criterion", name), name, protocol, reference, fitted)
            write_json(path, measured(model, asked))


@verb(option("measured", type=Path, help="the folder that `measure` wrote"), TO)
def collect(given: Given) -> None:
    """Write results.csv, a row a measurement."""
    write_text(given.folder / "results.csv", results(given.measured).to_csv(index=False, float_format="%.6g"))


def results(folder: Path) -> pd.DataFrame:
    """One row a measurement."""
    rows = []
    for file in sorted(folder.glob("*/*.json")):
        record = json.loads(file.read_text())
        loss, _, seed = file.parent.name.rpartition("-")
        rows.append(
            {
                "loss": loss,
                "seed": int(seed),
                "criterion": record["criterion"],
                "reference": record["reference"],
                "settings": "tuned" if record["tuned"] else "default",
                "parameters": json.dumps(record["parameters"]),
                "val_rsum": record["tuned"]["rsum"] if record["tuned"] else None,
                "split": record["split"],
                "images": record["images"],
                "texts": record["texts"],
                "protocol": record["protocol"],
                "seconds": record["ranking_seconds"],
            }
            | {name: record["metrics"][key] for name, key in COLUMNS.items()}
        )
    frame = pd.DataFrame(rows)
    frame["r1"] = frame["i2t_r1"] + frame["t2i_r1"]
    frame["r10"] = frame["i2t_r10"] + frame["t2i_r10"]
    frame = frame.sort_values(["seed", "criterion", "reference", "settings"])
    return frame.sort_values("loss", key=lambda names: names.map(label_rank), kind="stable", ignore_index=True)


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Each case's means over the seeds, and its difference to nns of the same runs: mean and sample deviation."""
    base = frame[frame["criterion"] == "nns"].set_index(["loss", "seed"])
    lacking = sorted(set(zip(frame["loss"], frame["seed"], strict=True)) - set(base.index))
    require(not lacking, f"no nns of {lacking}; measure these runs to the end")
    told = []
    for case, rows in frame.groupby(CASE, sort=False):
        own = rows.set_index(["loss", "seed"])
        line = dict(zip(CASE, case, strict=True)) | {"seeds": len(own)}
        for name in ("rsum", "r1", "r10", "meanr_t2i", "hs_sum"):
            change = own[name] - base.loc[own.index, name]
            line |= {f"d_{name}": change.mean(), f"d_{name}_sd": change.std()}
        numeric = [*COLUMNS, "seconds", "r1", "r10"]
        told.append(line | own[numeric].mean().to_dict() | {"rsum_sd": own["rsum"].std()})
    return pd.DataFrame(told)


def table(frame: pd.DataFrame) -> str:
    """The cases of one loss as markdown, the largest rsum first."""
    head = ["criterion", "reference", "settings", "i2t R@1", "R@5", "R@10", "t2i R@1", "R@5", "R@10", "rsum"]
    head += ["rsum − nns", "R@1 − nns", "R@10 − nns", "t2i mean r − nns", "hs_sum", "seconds"]
    rows = []
    for _, row in frame.sort_values("rsum", ascending=False, kind="stable").iterrows():
        cells = [row["criterion"], row["reference"], row["settings"]]
        cells += [f"{row[f'{side}_r{k}']:.1f}" for side in SIDES for k in (1, 5, 10)]
        cells.append(spread_text(row["rsum"], row["rsum_sd"], 1))
        for name in ("rsum", "r1", "r10", "meanr_t2i"):
            cells.append("" if row["criterion"] == "nns" else spread(row[f"d_{name}"], row[f"d_{name}_sd"]))
        rows.append([*cells, f"{row['hs_sum']:.2f}", f"{row['seconds']:.2f}"])
    caption = "Means over the seeds ± one sample deviation; differences are taken run by run, R@1 and R@10 of both "
    return ReportTable(head, rows, f"{caption}directions added.", words=3).markdown()


def orders(frame: pd.DataFrame) -> str:
    """The order of the criteria by mean rsum, tuned on val where there is something to tune, as markdown."""
    tuned = frame[
        (frame["settings"] == "tuned") | frame["criterion"].isin(["nns", "gm", "assignment", "mutual_proximity"])
    ].sort_values("rsum", ascending=False, kind="stable")
    kinds = {"transductive": "inductive", "inductive": "transductive"}  # each without the other; nns has no reference
    rows = [[kind, " > ".join(tuned.loc[tuned["reference"] != other, "criterion"])] for kind, other in kinds.items()]
    return ReportTable(["reference", "order by mean rsum"], rows, words=2).markdown()


def picture(frame: pd.DataFrame) -> Picture:
    """R@1 against R@10, both as differences to nns, with deviations; one panel a loss."""
    losses = list(dict.fromkeys(frame["loss"]))
    criteria = [name for name in dict.fromkeys(frame["criterion"]) if name != "nns"]
    with matplotlib.rc_context(RC):
        figure = new_figure(4.6 * len(losses) + 2, 4.4)
        for axes, loss in zip(figure.subplots(1, len(losses), sharey=True, squeeze=False)[0], losses, strict=True):
            for number, name in enumerate(criteria):
                rows = frame[
                    (frame["loss"] == loss) & (frame["criterion"] == name) & (frame["reference"] == "transductive")
                ]
                best = rows[(rows["settings"] == "tuned") | (len(rows) == 1)]
                axes.errorbar(
                    best["d_r1"],
                    best["d_r10"],
                    xerr=best["d_r1_sd"],
                    yerr=best["d_r10_sd"],
                    fmt=MARKERS[number % len(MARKERS)],
                    color=COLOURS[number % len(COLOURS)],
                    markerfacecolor="white" if number >= len(COLOURS) else None,
                    elinewidth=0.8,
                    label=name,
                )
            axes.axhline(0, color="#555555", linewidth=0.8)
            axes.axvline(0, color="#555555", linewidth=0.8)
            axes.set(title=loss, xlabel="R@1 - nns, both directions added")
        figure.axes[0].set_ylabel("R@10 - nns, both directions added")
        figure.axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = "R@1 and R@10 of each criterion, transductive, tuned on val: mean and deviation over seeds."
        return drawn(figure, "r1-against-r10", caption, None)


def best_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Each run's transductive figures, fitted where there is something to fit: one row a loss, criterion and seed."""
    own = frame[frame["reference"] != "inductive"].sort_values("settings")  # "default" before "tuned"
    own = own.drop_duplicates(["loss", "criterion", "seed"], keep="last")
    return own.assign(case=own["loss"] + " " + own["criterion"])


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from results.csv and expected.csv."""
    frame = pd.read_csv(folder / "results.csv")
    means = differences(frame)
    claims = judged(best_settings(frame), read_expected(folder), "case")
    parts = [judged_table(claims).markdown()]
    for loss, rows in means.groupby("loss", sort=False):
        seeds = ", ".join(str(seed) for seed in sorted(set(frame.loc[frame["loss"] == loss, "seed"])))
        parts.append(f"### Trained with {loss}, seeds {seeds}\n\n{orders(rows)}\n\n{table(rows)}")
    text = "\n\n".join(parts)
    save(folder, picture(means))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


STUDY = Study(__file__, render=render, verbs={"measure": measure, "collect": collect})

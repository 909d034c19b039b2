"""The adapters' page: claims tested over overlapping folds, tables and the figure."""

import math
from pathlib import Path

import matplotlib
import pandas as pd
from scipy import stats

from experiments.evidence import STEPS, concluded, pair, read_expected, renew, verdict
from experiments.plots import save
from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure
from vsehub.report.plots import render as drawn
from vsehub.report.tables import ReportTable, probability_text, spread_text

MODELS = {"frozen": "frozen", "sum": "SUM", "infonce": "InfoNCE", "hal": "HAL", "hal+mb": "HAL, bank"}
CRITERIA = {"nns": "plain", "csls": "CSLS", "sinkhorn": "Sinkhorn"}
LEVEL = 0.05


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from results.csv, settings.csv and expected.csv."""
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False)
    claims = judged(frame, read_expected(folder))
    renew(folder / "README.md", claims_table(claims).markdown(), "claims")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", cases(frame).markdown(), "cases")
    renew(folder / "README.md", settings(pd.read_csv(folder / "settings.csv")).markdown(), "settings")
    save(folder, picture(frame))


def judged(frame: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """The claims with what was measured, the interval of the difference, p, Holm's p and the outcome.

    A case is "SET, MODEL, CRITERION". Differences are paired fold by fold. Folds of one draw share most of their
    training images, so that the error of the mean is that of the corrected resampled t-test (Nadeau and Bengio 2003,
    for repeated cross-validation Bouckaert and Frank 2004): s² (1/n + tested / trained) instead of s² / n, s being no
    smaller than one step of the metric.
    """
    case = frame["set"] + ", " + frame["model"] + ", " + frame["criterion"]
    values = frame.assign(case=case).set_index(["case", "seed", "fold"]).sort_index()
    lines = []
    for _, row in expected.iterrows():
        one, other = (values.loc[row[side], row["metric"]] for side in ("higher", "lower"))
        differences = one - other
        count, folds = len(differences), differences.index.get_level_values("fold").nunique()
        step = STEPS.get(row["metric"], 100 / values.loc[row["higher"], "images"].min())
        error = max(differences.std(), step) * math.sqrt(1 / count + 1 / (folds - 1))
        reach = stats.t.ppf(1 - LEVEL / 2, count - 1) * error
        lines.append(
            {
                "measured_higher": one.mean(),
                "measured_lower": other.mean(),
                "difference": differences.mean(),
                "low": differences.mean() - reach,
                "high": differences.mean() + reach,
                "seeds": differences.index.get_level_values("seed").nunique(),
                "p": 2 * stats.t.sf(abs(differences.mean()) / error, count - 1),
            }
        )
    return concluded(pd.concat([expected.reset_index(drop=True), pd.DataFrame(lines)], axis=1))


def claims_table(frame: pd.DataFrame) -> ReportTable:
    """The judged claims."""
    rows = [
        [
            row["claim"],
            row["metric"],
            row["outcome"],
            pair(row["measured_higher"], row["measured_lower"]),
            f"{row['difference']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]",
            probability_text(row["p"]),
            probability_text(row["holm"]),
        ]
        for _, row in frame.iterrows()
    ]
    caption = (
        "Claims: corrected resampled t-test over the folds of all draws, with its 95 % interval; p corrected by Holm "
        "over the table's claims."
    )
    return ReportTable(["claim", "metric", "outcome", "measured", "difference", "p", "Holm"], rows, caption, words=3)


def cases(frame: pd.DataFrame) -> ReportTable:
    """Means over the draws with the deviation of a draw's mean over its folds, a row a set, model and criterion."""
    rows = []
    for name in dict.fromkeys(frame["set"]):
        for model, criterion in ((model, criterion) for model in MODELS for criterion in CRITERIA):
            own = frame[(frame["set"] == name) & (frame["model"] == model) & (frame["criterion"] == criterion)]
            means = own.groupby("seed")[["i2t_r1", "t2i_r1", "rsum", "hs_sum"]].mean()
            cells = [spread_text(means[one].mean(), means[one].std(), 1) for one in means]
            rows.append([name, MODELS[model], CRITERIA[criterion], *cells])
    head = ["set", "adapter", "correction", "image to text R@1", "text to image R@1", "rsum", "hs_sum"]
    return ReportTable(head, rows, "Means over the folds of all draws ± the deviation of a draw's mean.", words=3)


def settings(frame: pd.DataFrame) -> ReportTable:
    """The chosen settings."""
    rows = [
        [
            row["set"],
            MODELS[row["loss"]],
            f"{row['val_rsum']:.1f}",
            f"{row['lr']:g}",
            f"{row['setting']} {row['value']:g}",
        ]
        for _, row in frame.iterrows()
    ]
    return ReportTable(
        ["set", "loss", "val rsum", "learning rate", "its own"],
        rows,
        "The best of those tried, by rsum on validation.",
        words=2,
    )


def picture(frame: pd.DataFrame) -> Picture:
    """What each model and correction gains on the frozen vectors in plain search, a panel a set; a faint dot a draw."""
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.6)
        names = list(dict.fromkeys(frame["set"]))
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        for axes, name in zip(panels, names, strict=True):
            own = frame[frame["set"] == name]
            start = own[(own["model"] == "frozen") & (own["criterion"] == "nns")].set_index(["seed", "fold"])["rsum"]
            for place, (criterion, label) in enumerate(CRITERIA.items()):
                look = {"color": COLOURS[place], "marker": MARKERS[place]}
                for at, model in enumerate(MODELS):
                    rows = own[(own["model"] == model) & (own["criterion"] == criterion)].set_index(["seed", "fold"])
                    draws = (rows["rsum"] - start).groupby("seed").mean()
                    where = at + 0.2 * (place - 1)
                    axes.plot([where] * len(draws), draws, linestyle="none", alpha=0.35, markersize=4, **look)
                    axes.plot(where, draws.mean(), linestyle="none", label=label if at == 0 else None, **look)
            axes.axhline(0, color="0.5", linewidth=0.8)
            axes.set_xticks(range(len(MODELS)), list(MODELS.values()), rotation=30, ha="right")
            axes.set(title=name)
        panels[0].set_ylabel("gain in rsum over frozen, plain")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        return drawn(figure, "gains", "What an adapter, a correction and both gain in rsum", None)

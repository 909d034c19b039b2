"""The grid's figures, from the same tables."""

import matplotlib
import pandas as pd

from experiments.grid.tables import criteria, view
from vsehub.report.plots import RC, Picture, literal_text, new_figure, render
from vsehub.report.recipes import Series
from vsehub.report.run_plots import styles
from vsehub.report.statistics import APART, IMAGES

FILLS = {APART: ("#0072B2", "#0072B2"), IMAGES: ("#0072B2", "white")}
KINDS = (("transductive", "tuned"), ("inductive", "tuned"))


def looks(losses: list[str]) -> dict[str, dict]:
    """Colour and marker of each loss, without a line."""
    look_of = styles(Series("", "", loss, "") for loss in losses)
    return {loss: {key: look_of[loss][key] for key in ("color", "marker")} for loss in losses}


def forest(tests: pd.DataFrame) -> Picture:
    """All pairs of losses: difference in rsum with its interval over images."""
    rows = tests[tests["family"] == "losses under nns"].sort_values("difference", ascending=False, kind="stable")
    with matplotlib.rc_context(RC):
        figure = new_figure(8.2, 1.4 + 0.27 * max(len(rows), 1))
        axes = figure.add_subplot()
        for place, (_, row) in enumerate(rows.iterrows()):
            edge, fill = FILLS.get(row["outcome"], ("#888888", "white"))
            axes.plot([row["low"], row["high"]], [place, place], color=edge, linewidth=1.4)
            axes.plot(row["difference"], place, "o", color=edge, markerfacecolor=fill, markersize=6)
        axes.axvline(0, color="#555555", linewidth=0.9)
        axes.set_yticks(
            range(len(rows)), [literal_text(f"{row['one']} − {row['other']}") for _, row in rows.iterrows()]
        )
        axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="difference in rsum under nns")
        axes.grid(axis="y", visible=False)
        caption = (
            "Losses against each other under nns: mean difference in rsum over the seeds, 95 % bootstrap interval over "
            "test images. Filled: both corrected tests tell them apart; blue and open: only that over images; "
            "grey: no claim. The interval knows nothing of other trainings."
        )
        return render(figure, "losses", caption)


def gains(frame: pd.DataFrame, tests: pd.DataFrame) -> Picture:
    """Gain of each criterion over nns, by loss, with intervals over images."""
    losses, names = list(dict.fromkeys(frame["loss"])), criteria(frame)[1:]
    look = looks(losses)
    by_pair = {(row["family"], row["one"]): row for _, row in tests.iterrows()}
    with matplotlib.rc_context(RC):
        figure = new_figure(11.0, 1.6 + len(names) * (0.16 + 0.11 * len(losses)))
        for axes, (reference, settings) in zip(figure.subplots(1, 2, sharey=True, sharex=True), KINDS, strict=True):
            for number, loss in enumerate(losses):
                label = literal_text(loss)
                for place, name in enumerate(names):
                    cells = [(f"criteria after {loss}", f"{name} {reference} {kind}") for kind in (settings, "default")]
                    row = next((by_pair[cell] for cell in cells if cell in by_pair), None)
                    if row is None:
                        continue
                    height = place + ((number + 0.5) / len(losses) - 0.5) * 0.8
                    axes.plot([row["low"], row["high"]], [height, height], color=look[loss]["color"], linewidth=1.1)
                    axes.plot(row["difference"], height, linestyle="none", markersize=5, label=label, **look[loss])
                    label = None
            axes.axvline(0, color="#555555", linewidth=0.9)
            axes.set(title=reference, xlabel="rsum beyond nns", ylim=(len(names) - 0.5, -0.5))
            axes.set_yticks(range(len(names)), map(literal_text, names))
            axes.grid(axis="y", visible=False)
            for edge in range(1, len(names)):
                axes.axhline(edge - 0.5, color="#c8c8c8", linewidth=0.8)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=min(len(losses), 8))
        caption = (
            "What each criterion, tuned on val, adds to plain search by loss: mean over the seeds, 95 % bootstrap "
            "interval over test images. Criteria that match have no inductive form; transductive qb_norm is `is` with "
            "the same beta, and left out."
        )
        return render(figure, "criteria", caption)


def hubness(frame: pd.DataFrame) -> Picture:
    """hs_sum against rsum, a point a loss and criterion; what matches bounds N_k itself and is left out."""
    losses = list(dict.fromkeys(frame["loss"]))
    look = looks(losses)
    with matplotlib.rc_context(RC):
        figure = new_figure(11.0, 4.6)
        for axes, (reference, settings) in zip(figure.subplots(1, 2, sharey=True, sharex=True), KINDS, strict=True):
            rows = view(frame[frame["inductive_form"]], reference, settings)
            means = rows.groupby(["loss", "criterion"], sort=False)[["rsum", "hs_sum"]].mean().reset_index()
            for loss in losses:
                of_loss = means[means["loss"] == loss]
                start, rest = of_loss[of_loss["criterion"] == "nns"], of_loss[of_loss["criterion"] != "nns"]
                axes.plot(
                    rest["hs_sum"],
                    rest["rsum"],
                    linestyle="none",
                    markersize=5.5,
                    label=literal_text(loss),
                    **look[loss],
                )
                axes.plot(
                    start["hs_sum"],
                    start["rsum"],
                    linestyle="none",
                    markersize=9,
                    markerfacecolor="white",
                    **look[loss],
                )
            axes.set(title=reference, xlabel="hs_sum: sum of the skews of N_k")
        figure.axes[0].set_ylabel("rsum")
        figure.axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = (
            "Hubness against rsum, means over the seeds, a point a criterion (tuned on val); large and open: nns. "
            "Criteria that match bound how often an item is found, so their hubness is another matter; left out."
        )
        return render(figure, "hubness", caption)

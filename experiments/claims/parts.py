"""The parts of the study's page: a text and a figure each, from the tables alone."""

from collections.abc import Callable

import pandas as pd

from experiments.claims import pictures
from experiments.claims.curves import TOLERANCE
from experiments.claims.judging import (
    ENDS,
    RUN,
    SWEEPS,
    correlations,
    drawn_in,
    of_runs,
    one_lambda,
    plain,
    plateaus,
)
from experiments.evidence import over_seeds
from vsehub.report.pictures import Picture
from vsehub.report.tables import ReportTable

HEAD_HUBNESS = ["recipes, criterion", "Pearson's r", "Spearman's ρ", "p", "points"]
SWEEP_TITLES = {
    "batch_size": "rsum over the batch size",
    "bank": "rsum over the size of the bank",
    "k": "rsum over k, of the rescaled losses and of kNN-margin",
}
Data = dict[str, pd.DataFrame]
Part = tuple[str, Picture | None]


def table(head: list[str], rows: list[list[str]], words: int = 1) -> str:
    """Markdown; the first `words` columns are text."""
    return ReportTable(head, rows, text_left=words).markdown()


def seeds(rows: pd.DataFrame) -> str:
    """ "0, 1, 2"."""
    return ", ".join(str(seed) for seed in sorted(set(rows["seed"])))


def data_text(results: pd.DataFrame) -> str:
    """What was measured."""
    kinds = results[["dataset", "protocol", "images", "texts"]].drop_duplicates()
    words = [
        f"{row.dataset}, {row.images:,} images and {row.texts:,} texts, protocol {row.protocol}"
        for row in kinds.itertuples()
    ]
    runs = results.drop_duplicates(RUN)
    text = f"Test split of {'; '.join(words)}. {len(runs)} runs, seeds {seeds(runs)}."
    alone = runs.loc[runs["figures"] == "", "setting"].value_counts().sort_index()
    others = "; ".join(f"{count} of {setting}" for setting, count in alone.items())
    return text + (f" Points of the correlation alone are {others}." if others else "")


def epochs_part(data: Data) -> Part:
    """Curves of the losses, and epochs to the plateau."""
    runs = plain(drawn_in(data["results"], "losses"))
    epochs_of = of_runs(data["epochs"], runs)
    if epochs_of.empty:
        return "", None
    lengths = plateaus(epochs_of)
    rows = []
    for loss, part in lengths.groupby("loss", sort=False):
        rows.append([loss, *(over_seeds(part[f"plateau{end}"]) for end in ENDS)])
    head = ["loss", "epochs to the plateau", "before the rate falls"]
    settings = "; ".join(dict.fromkeys(runs["setting"]))
    last = int((runs["best_epoch"] == runs["epochs"]).sum())
    falls = (lengths["plateau"] == lengths["decay"] + 1).sum()
    text = (
        f"The plateau is the first epoch within {100 * TOLERANCE:g} % of the run's best val rsum. {falls} of "
        f"{len(lengths)} runs reach it in the epoch after the rate falls, so there the schedule determines it. "
        f"The last epoch is the best in {last} of {len(runs)} runs."
        f"\n\n{settings}.\n\n{table(head, rows)}"
    )
    return text, pictures.over_epochs(epochs_of)


def sweep_part(data: Data, name: str) -> Part:
    """rsum over one setting; a dash where there is no run."""
    runs = plain(drawn_in(data["results"], name))
    if runs.empty:
        return "", None
    values = sorted(set(runs[name]))
    rows = []
    for loss, part in runs.groupby("loss", sort=False):
        cells = [part.loc[part[name] == value, "rsum"] for value in values]
        rows.append([loss, seeds(part), *(over_seeds(cell) for cell in cells)])
    head = ["loss", "seeds", *(f"{value:g}" for value in values)]
    return table(head, rows, 2), pictures.over_setting(runs, name)


def occurrences_part(data: Data, case: str) -> Part:
    """Distribution of N_10: by loss under nns, or by criterion for HAL, or the first loss without HAL."""
    frame = data["occurrences"]
    if case == "loss":
        shown, words = frame[frame["criterion"] == "nns"], "Plain nearest neighbours."
    else:
        losses = list(dict.fromkeys(frame["loss"]))
        loss = "hal" if "hal" in losses else next(iter(losses), None)
        shown, words = (
            frame[frame["loss"] == loss],
            f"Runs of {loss}, under transductive criteria at their default settings.",
        )
    if shown.empty or (case == "criterion" and shown["criterion"].nunique() == 1):
        return "", None
    return words, pictures.found_how_often(shown, case, f"occurrences-by-{case}")


def lambda_part(data: Data) -> Part:
    """R@10 over λ on test, a figure without a table."""
    main = drawn_in(data["results"], "losses")
    relaxed = of_runs(data["lambda"], main)
    test = relaxed[relaxed["split"] == "test"]
    return "", None if test.empty else pictures.over_lambda(test, plain(main))


def hubness_part(data: Data) -> Part:
    """rsum against hs_sum."""
    results = data["results"]
    if results.empty:
        return "", None
    rows = []
    for name, correlation in correlations(results, data["published"]):
        figures = zip(correlation[:3], (2, 2, 4), strict=True)
        rows.append(
            [
                name,
                *("–" if pd.isna(figure) else f"{figure:.{digits}f}" for figure, digits in figures),
                f"{correlation.points}",
            ]
        )
    main = one_lambda(drawn_in(results, "losses"))
    main = main[(main["settings"] == "default") & (main["reference"] != "inductive")]
    text = (
        "In the table a point is a recipe, the mean over its seeds. p is two-sided, from 10,000 permutations. It is "
        "too small, because recipes share data, network and seeds. Criteria have their default settings. Matching "
        "limits how often an item is found, so its hs_sum cannot be compared."
        f"\n\n{table(HEAD_HUBNESS, rows)}"
    )
    return text, pictures.hubness_and_rsum(plain(results), main)


PARTS: dict[str, tuple[str, Callable[[Data], Part]]] = {
    "epochs": ("rsum over epochs, and epochs to the plateau", epochs_part),
    **{name.replace("_", "-"): (SWEEP_TITLES[name], lambda data, name=name: sweep_part(data, name)) for name in SWEEPS},
    "occurrences-by-loss": ("How often items are found, by loss", lambda data: occurrences_part(data, "loss")),
    "occurrences-by-criterion": (
        "How often items are found, by criterion",
        lambda data: occurrences_part(data, "criterion"),
    ),
    "lambda": ("R@10 over λ, by direction", lambda_part),
    "hubness": ("rsum against hubness", hubness_part),
}

"""The grid's tables: text from results.csv, comparisons.csv and recipes.csv."""

import pandas as pd

from experiments.evidence import over_seeds
from vsehub.report.statistics import APART, IMAGES, SEEDS
from vsehub.report.tables import ReportTable, probability_text

CRITERIA = ("nns", "is", "csls", "nnn", "qb_norm", "sinkhorn", "gm", "rgm", "csls+rgm")
LOSSES = "losses under nns"  # the family's name in comparisons.csv
RECALLS = [f"{side}_r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)]
RECALL_HEADS = ["i2t R@1", "R@5", "R@10", "t2i R@1", "R@5", "R@10"]
VIEWS = [(reference, settings) for reference in ("transductive", "inductive") for settings in ("tuned", "default")]
MARKS = {APART: " **", IMAGES: " *", SEEDS: " '"}
MARKED = "**: apart by both tests, *: only over images, ': only over seeds"


def repeated(criterion: str, reference: str) -> bool:
    """True for a cell that repeats another and would count twice: of transductive QB-Norm every query is active, as in
    `is`.
    """
    return criterion == "qb_norm" and reference == "transductive"


def view(frame: pd.DataFrame, reference: str, settings: str) -> pd.DataFrame:
    """Of that reference and those settings, a row a loss, criterion and seed; what cannot be fitted as it is."""
    rows = frame[frame["reference"].isin([reference, "none"])]
    fittable = rows.groupby(["loss", "criterion"])["settings"].transform("nunique") > 1
    return rows[(rows["settings"] == settings) | ~fittable]


def criteria(frame: pd.DataFrame, reference: str = "transductive") -> list[str]:
    """Those measured, in the order of CRITERIA; inductive only those that have such a form."""
    rows = frame[frame["inductive_form"]] if reference == "inductive" else frame
    return [name for name in CRITERIA if name in set(rows["criterion"])]


def heat(frame: pd.DataFrame, reference: str, settings: str, metric: str = "rsum", digits: int = 1) -> ReportTable:
    """Loss x criterion: mean and sample deviation over seeds, in how many runs where some lack."""
    rows, columns = view(frame, reference, settings), criteria(frame, reference)
    full = frame["seed"].nunique()
    texts = []
    for loss in dict.fromkeys(frame["loss"]):
        texts.append([loss])
        for name in columns:
            values = rows[(rows["loss"] == loss) & (rows["criterion"] == name)][metric]
            lacking = f" (n {len(values)})" if len(values) < full else ""
            shown = over_seeds(values, digits) + lacking if len(values) else "not measured"
            texts[-1].append(shown)
    caption = f"{metric}, {reference}, settings {settings}: mean ± sample deviation over {full} seeds."
    return ReportTable(["loss", *columns], texts, caption)


def gains(frame: pd.DataFrame, tests: pd.DataFrame, reference: str, settings: str) -> ReportTable:
    """Loss x criterion: rsum beyond nns of the same runs, marked by what the tests say."""
    rows, columns = view(frame, reference, settings), criteria(frame, reference)[1:]
    outcomes = {
        (row["family"].removeprefix("criteria after "), row["one"]): row["outcome"] for _, row in tests.iterrows()
    }
    full = frame["seed"].nunique()
    texts = []
    for loss in dict.fromkeys(frame["loss"]):
        texts.append([loss])
        of_loss = rows[rows["loss"] == loss].set_index("seed")
        plain = of_loss.loc[of_loss["criterion"] == "nns", "rsum"]
        for name in columns:
            gain = (of_loss.loc[of_loss["criterion"] == name, "rsum"] - plain).dropna()
            shown = "not measured"
            if len(gain):
                cells = [f"{name} {reference} {kind}" for kind in (settings, "default")]  # gm has no settings to tune
                outcome = next((outcomes[loss, cell] for cell in cells if (loss, cell) in outcomes), "")
                lacking = f" (n {len(gain)})" if len(gain) < full else ""
                shown = f"{gain.mean():+.1f}{MARKS.get(outcome, '')}{lacking}"
            texts[-1].append(shown)
    untested = "; qb_norm is not tested" if reference == "transductive" else ""
    caption = f"Gain in rsum over nns, {reference}, settings {settings}. {MARKED}{untested}."
    return ReportTable(["loss", *columns], texts, caption)


def ranking(frame: pd.DataFrame, tests: pd.DataFrame) -> ReportTable:
    """The losses under nns, best first, with the letters of those that cannot be told apart."""
    rows = frame[frame["criterion"] == "nns"]
    order = list(rows.groupby("loss")["rsum"].mean().sort_values(ascending=False, kind="stable").index)
    both, images = (grouped(order, tests, outcomes) for outcomes in ((APART,), (APART, IMAGES)))
    lines = []
    for loss in order:
        of_loss = rows[rows["loss"] == loss]
        recalls = [f"{of_loss[name].mean():.1f}" for name in RECALLS]
        rest = [over_seeds(of_loss["rsum"]), f"{of_loss['map_r_i2t'].mean():.1f}", over_seeds(of_loss["hs_sum"], 2)]
        lines.append([loss, both[loss], images[loss], *recalls, *rest])
    head = ["loss", "group", "by images", *RECALL_HEADS, "rsum", "i2t mAP@R", "hs_sum"]
    caption = (
        'Losses under nns, best first. Two losses without a common letter are apart: in the column "group" by both '
        'tests, in the column "by images" by the test over images.'
    )
    return ReportTable(head, lines, caption, 3)


def grouped(order: list[str], tests: pd.DataFrame, outcomes: tuple[str, ...]) -> dict[str, str]:
    """Each loss's letters, two being apart where the outcome of their pair is one of `outcomes`."""
    rows = tests[(tests["family"] == LOSSES) & tests["outcome"].isin(outcomes)]
    return letters(order, list(zip(rows["one"], rows["other"], strict=True)))


def letters(names: list[str], apart: list[tuple[str, str]]) -> dict[str, str]:
    """Compact letters (Piepho 2004): two names share a letter unless they are `apart`.

    names: in the order of the letters, best first. Starts from one group of all names and splits it at each pair; a
    group inside another one is dropped.
    """
    groups = [frozenset(names)]
    for first, second in apart:
        split = [
            part
            for group in groups
            for part in ([group - {first}, group - {second}] if {first, second} <= group else [group])
        ]
        distinct = list(dict.fromkeys(split))
        groups = [group for group in distinct if not any(group < other for other in distinct)]
    groups.sort(key=lambda group: [name not in group for name in names])
    marks = [chr(ord("a") + n) if n < 26 else f"({n + 1})" for n in range(len(groups))]
    return {name: "".join(mark for mark, group in zip(marks, groups, strict=True) if name in group) for name in names}


def pairs(tests: pd.DataFrame, family: str) -> ReportTable:
    """A family's comparisons: effect, interval, both p, raw and corrected."""
    rows = tests[tests["family"] == family]
    lines = []
    for _, row in rows.iterrows():
        cells = [
            row["one"],
            row["other"],
            row["outcome"],
            f"{row['difference']:+.1f}",
            f"{row['low']:+.1f} to {row['high']:+.1f}",
        ]
        cells += [probability_text(row[name]) for name in ("p_images", "holm_images", "p_seeds", "holm_seeds")]
        lines.append([*cells, f"{row['seeds']}"])
    head = ["one", "other", "outcome", "difference", "95 % over images", "p images", "Holm", "p seeds", "Holm", "seeds"]
    return ReportTable(head, lines, f"{family}: {len(rows)} paired comparisons of rsum.", 3)

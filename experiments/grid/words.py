"""The grid's tables in sentences."""

import pandas as pd

from experiments.evidence import verdict  # in experiments/, which render.py has put on the path
from experiments.grid.tables import LOSSES, VIEWS
from vsehub.report.statistics import APART, IMAGES

RULE = (
    "Measured: transductive; the papers' settings are β 30, k 10 and λ from validation (csls+rgm: λ 2). Published "
    "values are of other data and features: the order counts. These claims are tested over seeds only."
)


def summary(tests: pd.DataFrame, claims: pd.DataFrame) -> str:
    """The differences that the tests find, then the outcome of the papers' claims."""
    rows = tests[tests["family"] == LOSSES]
    both, images = (rows["outcome"] == APART).sum(), (rows["outcome"] == IMAGES).sum()
    return (
        f"Under nns, {both} of {len(rows)} pairs of losses are apart by both corrected tests, and {images} more by the "
        f"test over images only, which does not apply to other trainings. {verdict(claims)}"
    )


def on_criteria(tests: pd.DataFrame) -> list[str]:
    """For each criterion after how many losses the tests tell it from nns, best mean gain first."""
    rows = tests[tests["family"] != LOSSES]
    sentences = []
    rows = rows.assign(**named(rows))
    for reference, settings in VIEWS:
        chosen = rows[(rows["reference"] == reference) & (rows["settings"] == settings)]
        means = chosen.groupby("criterion")["difference"].mean().sort_values(ascending=False, kind="stable")
        lines = []
        for name, gain in means.items():
            outcomes = chosen.loc[chosen["criterion"] == name, "outcome"]
            both, images = (outcomes == APART).sum(), outcomes.isin([APART, IMAGES]).sum()
            lines.append(f"{name} {gain:+.1f} ({both}, {images} of {len(outcomes)})")
        sentences += [f"{reference}, {settings}: {', '.join(lines)}."] if lines else []
    return [
        "Mean gain in rsum over nns. In brackets: the number of losses after which the gain passes both tests, then "
        "the number after which it passes the test over images. Transductive qb_norm is omitted.",
        *sentences,
    ]


def named(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """The cell's three names as columns."""
    parts = rows["one"].str.split(" ")
    return {name: parts.str[place] for place, name in enumerate(("criterion", "reference", "settings"))}


def protocol(frame: pd.DataFrame) -> list[str]:
    """Data, protocol, what each test tests, and the files of all values."""
    first = frame.iloc[0]
    seeds = ", ".join(str(seed) for seed in sorted(set(frame["seed"])))
    return [
        f"{first['dataset']}, {first['architecture']}; {first['split']} split, {first['images']} images, "
        f"{first['texts']} texts, protocol {first['protocol']}; seeds {seeds}; the epoch is chosen on val.",
        "Transductive: the test queries are the criterion's reference; inductive: all training queries.",
        "Tuned: settings with the largest rsum on val, under the same reference; the test split is measured once.",
        "Over images: sign flips of the images' differences in rsum, an image with its captions being one unit, "
        "averaged over the seeds; it speaks for other images, of these trainings. Over seeds: paired t-test of rsum, "
        "its deviation no smaller than 100 / number of images. Both corrected by Holm within the family.",
        "Every cell: results.csv. Every test: comparisons.csv. Where the trainings differ: recipes.csv.",
    ]

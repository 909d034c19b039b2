"""A published table line by line, with what was measured for each line: no guess which run answers which line."""

from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.published import METRICS, PLACE, measured_lines, order_notes, other_data, published_table
from vsehub.report.results import DIRECTIONS
from vsehub.report.tables import criterion_text, distinct_seeds, seeds_text, spread_text

NEVER, HUB = "N_1 = 0, %", "largest hub"
SHARES = {NEVER: "share_0", "N_1 = 1, %": "share_1"} | {f"N_1 ≥ {least}, %": f"share_{least}" for least in (2, 5, 10)}
SHARE_HEADINGS = [*SHARES, HUB]
OCCURRENCE_PLACE = ["line", *PLACE[2:], "direction", "shares of"]


def reproduced(paper: str, table: str, measured: Mapping[str, Sequence[dict]]) -> pd.DataFrame:
    """The frame that `published_beside_table` shows: a line "published", then those of `measured_lines`.

    measured: the lines to show, and for each the evaluations of its runs, one a seed, with "dataset", "architecture",
    "label" and "seed" of the run beside what evaluation wrote. A line without any keeps only its published values.
    Raises InputError on an unknown paper or table.
    """
    lines = []
    for _, row in published_table(paper, table).iterrows():
        if row["line"] in measured:
            lines.append({"value": "published", "seeds": "", **row[["note", *METRICS, *PLACE[:1], *PLACE[2:-1]]]})
            if evaluations := measured[row["line"]]:
                values = pd.DataFrame([evaluation["metrics"] for evaluation in evaluations]).reindex(columns=METRICS)
                place = {"line": row["line"], **described(evaluations)}
                lines += measured_lines(row, place, values.mean(), values.std(ddof=1))
    return pd.DataFrame(lines, columns=[*PLACE, *METRICS, "note"])


def described(evaluations: Sequence[dict]) -> dict[str, str]:
    """The data and models of a line's evaluations, as text; settings that differ between seeds are side by side."""
    settings = list(dict.fromkeys(filter(None, map(_settings, evaluations))))
    fitted = ["tuned on val"] if any(evaluation.get("tuned") for evaluation in evaluations) else []
    seeds = distinct_seeds(evaluation["seed"] for evaluation in evaluations)
    first = evaluations[0]
    return {
        **{key: first[key] for key in ("dataset", "architecture", "protocol")},
        "loss": first["label"],
        "criterion": criterion_text(first["criterion"], "; ".join([*settings, *fitted])),
        "seeds": seeds_text(len(evaluations), seeds),
    }


def _settings(evaluation: dict) -> str:
    """A criterion's settings; those of several k as "2.5/1.0/1.0"."""
    parts = []
    for key, value in (evaluation.get("parameters") or {}).items():
        parts.append(f"{key} {'/'.join(map(str, value.values())) if isinstance(value, dict) else value}")
    return ", ".join(parts)


def occurrence_table(measured: Mapping[str, Sequence[dict]]) -> pd.DataFrame:
    """ACL table 5: how often items are the nearest one, N_1, and the largest hub; means and deviations over seeds.

    `measured` as in `reproduced`. Shares are of the items that are there, then, text to image, "of 5 copies": ACL
    counts each image five times among 25,000 items, of which only the first copy is ever nearest.
    """
    lines = []
    for line, evaluations in measured.items():
        if not evaluations:
            continue
        text = described(evaluations)
        values = pd.DataFrame([evaluation["metrics"] for evaluation in evaluations])
        for side, direction in DIRECTIONS.items():
            shares = {heading: 100 * values[f"hubness/{side}/{key}"] for heading, key in SHARES.items()}
            kinds = {"items": shares} | (
                {"of 5 copies": {name: share / 5 + 80 * (name == NEVER) for name, share in shares.items()}}
                if side == "t2i"
                else {}
            )
            for kind, columns in kinds.items():
                place = {"line": line, **text, "direction": direction, "shares of": kind}
                spreads = {heading: _spread(share, 2) for heading, share in columns.items()}
                lines.append(place | spreads | {HUB: _spread(values[f"hubness/{side}/largest_hub_1"], 1)})
    return pd.DataFrame(lines, columns=[*OCCURRENCE_PLACE, *SHARE_HEADINGS])


def remarks(frame: pd.DataFrame) -> list[str]:
    """The notes without which a frame of published and measured lines would mislead."""
    printed, measured = (frame[frame["value"] == value] for value in ("published", "measured"))
    if measured.empty:
        return ["nothing was measured: published values only"]
    notes = [
        f"measured: means over seeds ± one sample standard deviation; seeds {'; '.join(sorted(set(measured['seeds'])))}"
    ]
    strangers = other_data(set(measured["dataset"]), set(printed["dataset"]))
    notes += strangers
    if strangers:
        for architecture, lines in measured.groupby("architecture", sort=False)["line"]:
            notes.append(f"measured with {architecture}, not with the published encoders: {', '.join(lines)}")
        notes.append(
            "of other data the rows keep loss, similarity, positives and criterion, and the learning rate except on "
            "scenes, where it is that of experiment=demo; rows that differ only in their features show the same "
            "measurement"
        )
        notes += order_notes(frame)
    notes += transductive({text.partition(" ")[0] for text in measured["criterion"]})
    if measured["criterion"].str.contains("relaxation ").any():
        notes.append("relaxation: λ of the matching; a/b/c: of those for R@1, R@5 and R@10, each tuned by itself")
    return [*notes, *unmeasured([line for line in printed["line"] if line not in set(measured["line"])])]


def occurrence_remarks(measured: Mapping[str, Sequence[dict]]) -> list[str]:
    """The notes that `occurrence_table` needs."""
    evaluations = [evaluation for several in measured.values() for evaluation in several]
    notes = ["no values of ACL's table 5 are among those that ship with vsehub: measured ones only"]
    notes += [
        f"measured on {name}, protocol {protocol}; ACL's are of COCO, all 5,000 test images in one ranking (full5k)"
        for name, protocol in sorted({(evaluation["dataset"], evaluation["protocol"]) for evaluation in evaluations})
        if (name, protocol) != ("coco", "full5k")
    ]
    if evaluations:
        notes.append(
            "means over seeds ± one sample standard deviation. ACL counts each image five times, once a caption, and "
            'of equal items only the first is ever nearest: compare its text to image shares with "of 5 copies"'
        )
    notes += transductive({evaluation["criterion"] for evaluation in evaluations})
    return [*notes, *unmeasured([line for line, several in measured.items() if not several])]


def transductive(criteria: set[str]) -> list[str]:
    """A note on what the corrections among the criteria saw."""
    names = ", ".join(sorted(criteria - {"nns"}))
    return [f"transductive, as in the papers, the test queries being the reference: {names}"] if names else []


def unmeasured(lines: Sequence[str]) -> list[str]:
    """A note on the lines without a measurement."""
    return [f"not measured: {', '.join(lines)}"] if lines else []


def _spread(values: pd.Series, decimals: int) -> str:
    return spread_text(values.mean(), values.std(ddof=1), decimals)

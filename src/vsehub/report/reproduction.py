"""A published table line by line, with what was measured for each line: no guess which run answers which line."""

from collections.abc import Mapping, Sequence

import pandas as pd

from vsehub.report.published import FIGURES, PLACE, published_table
from vsehub.report.tables import DIRECTIONS, criterion_text, seeds_text, spread_text

SHARES = {"= 0": "share_0", "= 1": "share_1", "≥ 2": "share_2", "≥ 5": "share_5", "≥ 10": "share_10"}


def reproduced(paper: str, table: str, measured: Mapping[str, Sequence[dict]]) -> pd.DataFrame:
    """The frame that `published.display` shows: "published", then "measured", "std", "difference" for each line.

    measured: the lines to show, and for each the evaluations of its runs, one a seed, with "dataset", "architecture",
    "label" and "seed" of the run beside what evaluation wrote. A line without any keeps its published figures alone.
    Raises InputError on an unknown paper or table.
    """
    found = []
    for _, row in published_table(paper, table).iterrows():
        if row["line"] in measured:
            found.append({"figure": "published", "seeds": "", **row[["note", *FIGURES, *PLACE[:1], *PLACE[2:-1]]]})
            found += _measured(row, measured[row["line"]]) if measured[row["line"]] else []
    return pd.DataFrame(found, columns=[*PLACE, *FIGURES, "note"])


def _measured(row: pd.Series, evaluations: Sequence[dict]) -> list[dict]:
    figures = pd.DataFrame([evaluation["metrics"] for evaluation in evaluations]).reindex(columns=FIGURES)
    means, deviations = figures.mean(), figures.std(ddof=1)
    place = {"line": row["line"], **described(evaluations)}
    return [
        {"figure": "measured", **place, **means},
        {"figure": "std", **place, **deviations},
        {"figure": "difference", **place, **(means - row[FIGURES].astype(float))},
    ]


def described(evaluations: Sequence[dict]) -> dict[str, str]:
    """What a line's evaluations are of, as text; settings that differ between seeds stand side by side."""
    settings = [_settings(evaluation) for evaluation in evaluations]
    seeds = ", ".join(str(seed) for seed in sorted(evaluation["seed"] for evaluation in evaluations))
    first = evaluations[0]
    return {
        **{key: first[key] for key in ("dataset", "architecture", "protocol")},
        "loss": first["label"],
        "criterion": criterion_text(first["criterion"], "; ".join(dict.fromkeys(filter(None, settings)))),
        "seeds": seeds_text(len(evaluations), seeds),
    }


def _settings(evaluation: dict) -> str:
    """A criterion's settings, marked where they were fitted on validation."""
    told = ", ".join(f"{key} {value}" for key, value in (evaluation.get("parameters") or {}).items())
    return f"{told}, fitted on val" if evaluation.get("fit") else told


def occurrence_table(measured: Mapping[str, Sequence[dict]]) -> pd.DataFrame:
    """ACL table 5: how often items are the nearest one, N_1, and the largest hub; means and deviations over seeds.

    Shares are of the items that are there. ACL counts each image five times among 25,000 text-to-image items, of which
    only the first copy is ever nearest: its shares with N_1 ≥ 1 are those of "of 5 copies", a fifth of ours.
    """
    lines = []
    for evaluations in measured.values():
        place = described(evaluations)
        figures = pd.DataFrame([evaluation["metrics"] for evaluation in evaluations])
        for direction, name in DIRECTIONS.items():
            shares = {sign: 100 * figures[f"hubness/{direction}/{key}"] for sign, key in SHARES.items()}
            kinds = {"items": shares}
            if direction == "t2i":
                kinds["of 5 copies"] = {
                    sign: (80 if sign == "= 0" else 0) + share / 5 for sign, share in shares.items()
                }
            for kind, columns in kinds.items():
                line = {key: place[key] for key in ("dataset", "loss", "criterion", "protocol", "seeds")}
                line |= {"direction": name, "shares of": kind}
                line |= {f"N_1 {sign}, %": _spread(share, 2) for sign, share in columns.items()}
                lines.append(line | {"largest hub": _spread(figures[f"hubness/{direction}/largest_hub_1"], 1)})
    return pd.DataFrame(lines)


def _spread(values: pd.Series, decimals: int) -> str:
    return spread_text(values.mean(), values.std(ddof=1), decimals)

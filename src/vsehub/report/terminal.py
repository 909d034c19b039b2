"""A comparison of rankings in the terminal: the table, and lines on truth, choice and verdict."""

from typing import Any

from vsehub.report.health import (
    choice_text,
    gain_text,
    queries_left_out,
    rounding_text,
    verdict_text,
)
from vsehub.report.tables import ReportTable

TRUTH = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_r": "mAP@R", "r_precision": "R-Prec"}


def table(record: dict[str, Any]) -> str:
    """The rankings for the terminal: recalls if the truth is known, hubness, and changes to the plain ranking."""
    k, queries, items, seconds = record["ks"][-1], record["queries"], record["items"], record["seconds"]
    scores, truth, choice = (record[name] for name in ("scores", "truth", "choice"))
    sides = f"{items['dim']} dimensions" if scores is None else f"scores of {scores['path']}"
    lines = [f"{queries['rows']:,} queries, {items['rows']:,} items, {sides}; {_reference(record)}"]
    if truth is not None:
        left_out = "".join(f"; {one}" for one in queries_left_out(truth, choice))
        lines.append(f"truth: {truth['pairs']:,} pairs of {truth['measured_queries']:,} queries{left_out}")
    if choice is not None:
        lines += [f"{name}: {text}" for name, text in choice_text(choice)]
    lines.append(_rankings(record).terminal())
    if len(record["rankings"]) > 1:
        plain = record["rankings"][0]["criterion"]
        lines.append(
            f"1st moved: queries whose first item is another than under {plain}; top {record['k']} kept: share of the "
            f"list under {plain} that stays in the list, in any order"
        )
    if choice is None and truth is not None:
        for ranking in record["rankings"][1:]:
            lines.append(f"gain of {ranking['criterion']} in R@1: {gain_text(ranking['gain'])}")
    for ranking in record["rankings"]:
        if "rounding" in ranking:
            lines.append(f"precision: {rounding_text(ranking['criterion'], ranking['rounding'])}")
    lines.append(f"verdict: {verdict_text(record['verdict'])}")
    if record["kind"] == "rerank" and record["verdict_corrected"] is not None:
        lines.append(f"verdict on the corrected ranking: {verdict_text(record['verdict_corrected'])}")
    spent = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in seconds.items())
    fair = k * queries["rows"] / items["rows"]
    return "\n".join([*lines, f"a fair share is {fair:.3g} queries per item; seconds: {spent}"])


def _rankings(record: dict[str, Any]) -> ReportTable:
    """A row for each ranking. The changes are to the plain ranking, which is not compared with itself."""
    k, rankings = record["ks"][-1], record["rankings"]
    columns = [
        (f"skew N_{k}", "hubness", f"skew_{k}", ".2f"),
        ("Gini", "hubness", f"gini_{k}", ".2f"),
        ("antihubs", "hubness", f"antihub_rate_{k}", ".1%"),
        ("largest hub", "hubness", f"largest_hub_{k}", ",.0f"),
    ]
    if record["truth"]:
        recalls = [(heading, "truth", key, ".1f") for key, heading in TRUTH.items()]
        columns = [*recalls, *columns, (f"wrong in top {k}", "hubness", f"bad_share_{k}", ".1%")]
    if len(rankings) > 1:
        columns += [("1st moved", "changed", "first", ".1%"), (f"top {record['k']} kept", "changed", "overlap", ".1%")]
    rows = []
    for number, ranking in enumerate(rankings):
        own = ranking if number else ranking | {"changed": {}}
        values = [(own[part].get(key), form) for _, part, key, form in columns]
        rows.append([ranking["criterion"], *("-" if value is None else format(value, form) for value, form in values)])
    return ReportTable(["", *(heading for heading, *_ in columns)], rows)


def _reference(record: dict[str, Any]) -> str:
    reference, bank = record["reference"], record["reference_items"]
    if reference["kind"] == "none":
        return "no reference"
    further = "" if bank is None else f"; reference items: {bank['set']}, {bank['rows']:,}"
    return f"reference: {reference['set']}, {reference['rows']:,} ({reference['kind']}){further}"

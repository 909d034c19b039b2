"""A comparison of rankings in the terminal: the table, and lines on truth, choice, verdict and index."""

from typing import Any

from vsehub.report.health import choice_text, queries_left_out, rounding_text, suspect_text, verdict_text
from vsehub.report.tables import ReportTable

TRUTH = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_r": "mAP@R", "r_precision": "R-Prec"}


def table(record: dict[str, Any]) -> str:
    """The rankings for the terminal: recalls if the truth is known, hubness, and changes to the plain ranking."""
    k, rankings = record["ks"][-1], record["rankings"]
    queries, items = record["queries"], record["items"]
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
        columns += [
            ("1st moved", "changed", "first", ".1%"),
            (f"top {record['k']} kept", "changed", "overlap", ".1%"),
        ]
    rows = []
    for ranking in rankings:
        own = ranking if ranking is not rankings[0] else ranking | {"changed": {}}  # itself is not compared
        rows.append([ranking["criterion"], *(_cell(own[part].get(key), form) for _, part, key, form in columns)])
    seconds = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in record["seconds"].items())
    return "\n".join(
        [
            f"{queries['rows']:,} queries, {items['rows']:,} items, {_compared_by(record)}; {_reference(record)}",
            *_truth(record["truth"], record["choice"]),
            *_choice(record["choice"]),
            ReportTable(["", *(heading for heading, *_ in columns)], rows).terminal(),
            *_rounding(record),
            *_verdict(record),
            *_index(record["index"]),
            f"a fair share is {k * queries['rows'] / items['rows']:.3g} queries per item; seconds: {seconds}",
        ]
    )


def _compared_by(record: dict[str, Any]) -> str:
    scores = record["scores"]
    return f"{record['items']['dim']} dimensions" if scores is None else f"scores of {scores['path']}"


def _reference(record: dict[str, Any]) -> str:
    reference = record["reference"]
    if reference["kind"] == "none":
        return "no reference"
    bank = record["reference_items"]
    further = "" if bank is None else f"; reference items: {bank['set']}, {bank['rows']:,}"
    return f"reference: {reference['set']}, {reference['rows']:,} ({reference['kind']}){further}"


def _truth(truth: dict[str, Any] | None, choice: dict[str, Any] | None) -> list[str]:
    if truth is None:
        return []
    left_out = "".join(f"; {one}" for one in queries_left_out(truth, choice))
    return [f"truth: {truth['pairs']:,} pairs of {truth['measured_queries']:,} queries{left_out}"]


def _verdict(record: dict[str, Any]) -> list[str]:
    """The verdict on plain search, with what is beyond a threshold, and the items that look planted."""
    return [f"verdict: {verdict_text(record['verdict'])}", *map(suspect_text, record["suspects"])]


def _rounding(record: dict[str, Any]) -> list[str]:
    rounded = [one for one in record["rankings"] if "rounding" in one]
    return [f"precision: {rounding_text(one['criterion'], one['rounding'])}" for one in rounded]


def _choice(choice: dict[str, Any] | None) -> list[str]:
    if choice is None:
        return []
    return [f"{name}: {text}" for name, text in choice_text(choice)]


def _index(index: dict[str, Any] | None) -> list[str]:
    if index is None:
        return []
    recall, times = index["recall"], index["milliseconds"]
    return [
        f"index ({index['kind']}): it finds {recall['corrected']:.1%} of the {recall['k']} best, "
        f"{recall['plain']:.1%} of the plain ranking's; {times['corrected']:.3g} ms a query, plain {times['plain']:.3g}"
    ]


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)

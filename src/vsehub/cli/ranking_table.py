"""The figures of `rerank` and `diagnose` as a small table for the terminal."""

from typing import Any

TRUTH = {"r1": "R@1", "r5": "R@5", "r10": "R@10", "map_r": "mAP@R", "r_precision": "R-Prec"}


def table(record: dict[str, Any]) -> str:
    """A line a ranking: what is found where that is known, how unevenly the items are shared out, what changed."""
    k = record["ks"][-1]
    queries, items = record["queries"], record["items"]
    lines = [
        f"{queries['rows']:,} queries, {items['rows']:,} items, {items['dim']} dimensions; {_reference(record)}",
        *_truth(record["truth"]),
    ]
    width = max(len(ranking["criterion"]) for ranking in record["rankings"])
    heading = "".join(f"{name:>8}" for name in TRUTH.values()) if record["truth"] else ""
    skew = f"skew N_{k}"
    heading += f"{skew:>11}{'Gini':>7}{'antihubs':>10}{'largest hub':>13}"
    heading += f"{'wrong':>8}" if record["truth"] else ""
    kept = f"top {record['k']} kept"
    heading += f"{'1st moved':>11}{kept:>13}" if len(record["rankings"]) > 1 else ""
    lines.append(f"{'':<{width}}{heading}")
    for ranking in record["rankings"]:
        found, hubness = ranking["truth"], ranking["hubness"]
        line = "".join(_number(found[name], 8, ".1f") for name in TRUTH) if found else ""
        line += f"{hubness[f'skew_{k}']:11.2f}{hubness[f'gini_{k}']:7.2f}{hubness[f'antihub_rate_{k}']:10.1%}"
        line += f"{hubness[f'largest_hub_{k}']:13,.0f}"
        line += f"{hubness[f'bad_share_{k}']:8.1%}" if found else ""
        if ranking is not record["rankings"][0]:
            line += f"{ranking['changed']['first']:11.1%}{ranking['changed']['overlap']:13.1%}"
        lines.append(f"{ranking['criterion']:<{width}}{line}")
    seconds = record["seconds"]
    return "\n".join(
        [
            *lines,
            *_index(record["index"]),
            f"a fair share is {k * queries['rows'] / items['rows']:.3g} queries an item; seconds: "
            + ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in seconds.items()),
        ]
    )


def _reference(record: dict[str, Any]) -> str:
    reference = record["reference"]
    if reference["kind"] == "none":
        return "no reference"
    return f"reference: {reference['set']}, {reference['rows']:,} ({reference['kind']})"


def _truth(truth: dict[str, Any] | None) -> list[str]:
    if truth is None:
        return []
    without = truth["queries_without"]
    left_out = f"; {without:,} without a pair are left out of the recalls" if without else ""
    return [f"truth: {truth['pairs']:,} pairs of {truth['measured_queries']:,} queries{left_out}"]


def _index(index: dict[str, Any] | None) -> list[str]:
    if index is None or index["recall"] is None:
        return []
    recall = index["recall"]
    return [
        f"the {index['kind']} index finds {recall['corrected']:.1%} of the {recall['k']} best, "
        f"{recall['plain']:.1%} of the plain ranking's"
    ]


def _number(value: float | None, width: int, form: str) -> str:
    return f"{'-' if value is None else format(value, form):>{width}}"

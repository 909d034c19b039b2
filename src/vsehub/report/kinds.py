"""The kinds of items in a collection, such as pictures and texts: a table of each ranking's, and lines of text."""

from typing import Any

from vsehub.report.tables import ReportTable

FIRST = 0.1  # share of the lists' places beyond a kind's own from which it is said to be found first
COLUMNS = (("R@1", "r1"), ("R@5", "r5"), ("R@10", "r10"))


def kinds_found_first(record: dict[str, Any]) -> list[str]:
    """The kinds with more of the plain lists' places than their share by `FIRST`.

    Their share is that of the true pairs where these are known, else that of the items.
    """
    kinds, plain = record["kinds"], record["rankings"][0]["kinds"]
    expected = _shares(kinds["pairs"] or kinds["items"])
    return [
        name for name, own, share in zip(kinds["names"], plain, expected, strict=True) if own["places"] - share > FIRST
    ]


def all_rankings(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The rankings of a record, after the plain one of vectors as they were given where these are without means."""
    given = record.get("as_given")
    return [*([] if given is None else [given]), *record["rankings"]]


def kinds_text(record: dict[str, Any]) -> list[str]:
    """In words: whether means are removed, how far they are apart, and the kinds that are found first."""
    kinds, plain, k = record["kinds"], record["rankings"][0], record["ks"][-1]
    names, first = kinds["names"], kinds_found_first(record)
    from_queries = ", ".join(f"{name} {gap:.2f}" for name, gap in zip(names, kinds["from_queries"], strict=True))
    apart = f"; the kinds' own are up to {kinds['widest']:.2f} apart" if len(names) > 1 else ""
    lines = [f"distance of the kinds' means from that of the queries: {from_queries}{apart}"]
    if kinds["means_removed"]:
        whose = "the queries themselves" if kinds["query_mean"] == "transductive" else "the reference"
        lines.append(f"each item is ranked without the mean of its kind, each query without that of {whose}")
    if record.get("as_given"):
        lines.append(
            f"{record['as_given']['criterion']}: the plain search of the vectors with their means. The other rankings "
            f"are without, {plain['criterion']} too, with which the verdict and the gains compare"
        )
    shares = dict(zip(names, _shares(kinds["items"]), strict=True))
    places = {name: own["places"] for name, own in zip(names, plain["kinds"], strict=True)}
    for name in first:
        lines.append(
            f"{name} is found first: {shares[name]:.1%} of the items have {places[name]:.1%} of the places in the top "
            f"{k} of the {plain['criterion']} ranking"
        )
    if len(names) > 1 and not first:
        lines.append(f"no kind is found first: none has {100 * FIRST:.0f} points more of the places than its share")
    return lines


def kinds_table(record: dict[str, Any]) -> ReportTable:
    """A row for each ranking and kind: items, places, recalls where truth is known, largest hub and skewness."""
    kinds, k = record["kinds"], record["ks"][-1]
    known = kinds["pairs"] is not None
    head = ["ranking", "kind", "items", "of the items", f"of top {k}"]
    head += ["queries", *(name for name, _ in COLUMNS)] if known else []
    rows, starts = [], []
    for ranking in all_rankings(record):
        parts = zip(kinds["names"], kinds["items"], _shares(kinds["items"]), ranking["kinds"], strict=True)
        for number, (name, items, share, own) in enumerate(parts):
            row = [ranking["criterion"], name, f"{items:,}", f"{share:.1%}", f"{own['places']:.1%}"]
            if known:
                recalls = [own[key] for _, key in COLUMNS]
                row += [f"{own['queries']:,}", *("-" if one is None else f"{one:.1f}" for one in recalls)]
            rows.append([*row, f"{own['largest_hub']:,}", f"{own['skew']:.2f}"])
            starts.append(number == 0)
    return ReportTable([*head, "largest hub", f"skew N_{k}"], rows, words=2, starts=starts)


def _shares(counts: list[int]) -> list[float]:
    return [one / max(1, sum(counts)) for one in counts]

"""What a record of `vsehub rerank` or `vsehub diagnose` says, in sentences and figures for its page."""

from pathlib import Path
from typing import NamedTuple

from vsehub.report.occurrence_curves import share_text

REFERENCES = {
    "transductive": "the corrections saw the very queries that they rank. For queries that come one at a time, give "
    "reference queries of their own",
    "inductive": "the corrections saw none of the queries that they rank",
    "none": "no ranking here looks at other queries",
}


class Tile(NamedTuple):
    """A figure in large type: what it is, before, and after the correction that is named, or None."""

    name: str
    before: str
    after: str | None


def neighbourhood(record: dict) -> int:
    """The largest k at which occurrences were counted: 10 as a rule, less with fewer items."""
    return max(int(k) for k in record["rankings"][0]["histograms"])


def fair_share(record: dict) -> float:
    """How many queries would find each item if all were found equally often."""
    return neighbourhood(record) * record["queries"]["rows"] / record["items"]["rows"]


def parameters(ranking: dict) -> str:
    """A criterion's parameters as a reader sees them; nothing where they are a structure of their own."""
    given = (ranking.get("parameters") or {}).items()
    return ", ".join(f"{name} {value}" for name, value in given if not isinstance(value, dict | list))


def gentlest(record: dict) -> int | None:
    """Which ranking but the first has the smallest of largest hubs; None where the plain one is alone."""
    key = f"largest_hub_{neighbourhood(record)}"
    return min(range(1, len(record["rankings"])), key=lambda n: record["rankings"][n]["hubness"][key], default=None)


def spoken(name: str) -> str:
    """A criterion's name within a sentence: short names are acronyms, so that "is" is told from the verb."""
    parts = name.split("+")
    return "+".join(part.upper() if len(part) <= 4 else part.replace("_", " ") for part in parts)


def findings(record: dict) -> str:
    """What was found, for a reader of nothing else."""
    k, best = neighbourhood(record), gentlest(record)
    rankings, queries = record["rankings"], record["queries"]["rows"]
    place = "the nearest item" if k == 1 else f"among the {k} nearest items"
    told = [
        f"The worst hub is {place} of {_largest(record, 0):,} of {queries:,} queries; a fair share is "
        f"{share_text(fair_share(record))}."
    ]
    if best is None:
        return " ".join([*told, _unseen(record, None)])
    name = spoken(rankings[best]["criterion"])
    then, hubs = _largest(record, best), record.get("hubs") or []
    now = hubs[0]["occurrences"][best] if hubs else None
    if now in (None, then):
        told.append(f"With {name} the worst is found by {then:,}.")
    else:
        told.append(f"{name[0].upper()}{name[1:]} takes it to {now:,}, and no item is found by more than {then:,}.")
    return " ".join([*told, _unseen(record, best), *_recalls(rankings, best)])


def _unseen(record: dict, best: int | None) -> str:
    """How many items no query finds, before and, where it is another number, after."""
    items, before = record["items"]["rows"], _never(record, 0)
    after = before if best is None else _never(record, best)
    if before == after == 0:
        return "Every item is found by some query."
    told = f"{before:,} of {items:,} items ({100 * before / items:.1f} %) are found by no query"
    return f"{told}." if before == after else f"{told}; with {spoken(record['rankings'][best]['criterion'])} {after:,}."


def _largest(record: dict, ranking: int) -> int:
    return int(record["rankings"][ranking]["hubness"][f"largest_hub_{neighbourhood(record)}"])


def _never(record: dict, ranking: int) -> int:
    rate = record["rankings"][ranking]["hubness"][f"antihub_rate_{neighbourhood(record)}"]
    return round(rate * record["items"]["rows"])


def _recalls(rankings: list[dict], best: int) -> list[str]:
    """R@1 before and after, and whose is the highest where it is another correction's; nothing without truth."""
    found = [(ranking.get("truth") or {}).get("r1") for ranking in rankings]
    if found[0] is None or found[best] is None:
        return []
    told = [f"R@1 goes from {found[0]:.1f} % to {found[best]:.1f} %."]
    highest = max(range(len(found)), key=lambda n: -1.0 if found[n] is None else found[n])
    if found[highest] > found[best]:
        told.append(f"The highest R@1 is that of {spoken(rankings[highest]['criterion'])}, {found[highest]:.1f} %.")
    return told


def tiles(record: dict) -> list[Tile]:
    """The figures to see first, before and after the correction that leaves the smallest largest hub."""
    k, best = neighbourhood(record), gentlest(record)
    chosen = [record["rankings"][n] for n in ([0] if best is None else [0, best])]
    asked = [
        ("Largest hub", "hubness", f"largest_hub_{k}", "{:,.0f}", 1),
        ("Items never found", "hubness", f"antihub_rate_{k}", "{:.1f}\N{NO-BREAK SPACE}%", 100),
        (f"Skew of N at k = {k}", "hubness", f"skew_{k}", "{:.2f}", 1),
        ("R@1", "truth", "r1", "{:.1f}\N{NO-BREAK SPACE}%", 1),
    ]
    found = []
    for name, part, key, form, scale in asked:
        values = [(ranking.get(part) or {}).get(key) for ranking in chosen]
        if values[0] is not None:
            texts = ["–" if value is None else form.format(scale * value) for value in values]
            found.append(Tile(name, texts[0], texts[1] if best is not None else None))
    return found


def reference_sentence(record: dict) -> str:
    """Whose scores the corrections saw; always said."""
    reference = record.get("reference") or {}
    kind = reference.get("kind") or "none"
    if kind == "none":
        return f"Reference: none; {REFERENCES['none']}."
    rows = f" ({reference['rows']:,} rows)" if reference.get("rows") else ""
    shared = reference.get("queries_in_it")
    known = f" {shared:,} of the queries stand in it all the same." if shared else ""
    return f"Reference: {kind}, {reference.get('set') or 'not recorded'}{rows}: {REFERENCES[kind]}.{known}"


def truth_sentence(record: dict) -> str | None:
    """By what the recalls were measured; None without truth."""
    truth = record.get("truth")
    if not truth:
        return None
    without = truth.get("queries_without") or 0
    left_out = f"; {without:,} queries without a pair are left out of the figures" if without else ""
    return (
        f"Truth: {truth['pairs']:,} pairs in {truth.get('path') or 'memory'} for {truth['measured_queries']:,} "
        f"queries{left_out}."
    )


def page_title(record: dict) -> str:
    """Whose hubness it is, by the names of the files."""
    names = [Path(str(record[side].get("path") or side)).name for side in ("queries", "items")]
    return f"Hubness of {names[1]} searched with {names[0]}"

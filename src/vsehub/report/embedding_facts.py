"""What a record of `vsehub rerank` or `vsehub diagnose` was made of, in sentences and figures for its page."""

from pathlib import Path

REFERENCES = {
    "transductive": "the corrections saw the very queries that they rank. For queries that come one at a time, give "
    "reference queries of their own",
    "inductive": "the corrections saw none of the queries that they rank",
    "none": "no ranking here looks at other queries",
}


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


def spoken(name: str) -> str:
    """A criterion's name within a sentence: short names are acronyms, so that "is" is told from the verb."""
    parts = name.split("+")
    return "+".join(part.upper() if len(part) <= 4 else part.replace("_", " ") for part in parts)


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

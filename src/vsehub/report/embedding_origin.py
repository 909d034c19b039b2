"""Where the figures of a record come from: files, machine, code, and the index that was built."""

from vsehub.report.notes import code_text, hardware_text, versions_text
from vsehub.report.tables import duration

STEPS = {"look_through": "looking through the files", "reference": "reference", "search": "search", "total": "in all"}


def sides(record: dict) -> list[dict[str, str]]:
    """A line for each file of vectors: queries, items, and reference queries of their own."""
    lines = []
    for name in ("queries", "items", "reference"):
        facts = record.get(name) or {}
        if facts.get("path") or (name != "reference" and facts):
            lines.append(
                {
                    "vectors": name,
                    "file": str(facts.get("path") or "in memory"),
                    "shape": " × ".join(f"{facts[key]:,}" for key in ("rows", "dim") if facts.get(key)),
                    "type": str(facts.get("dtype") or "–"),
                    "norms": _norms(facts.get("norms")),
                    "fingerprint": str(facts.get("fingerprint") or "–"),
                }
            )
    return lines


def _norms(norms: dict | None) -> str:
    if not norms:
        return "–"
    spread = "{:.4g}".format(norms["least"])
    if norms["most"] != norms["least"]:
        spread += f" to {norms['most']:.4g}"
    return f"{spread}, {100 * norms['unit_share']:.4g} % are 1" if norms.get("unit_share") is not None else spread


def made_with(record: dict) -> list[tuple[str, str]]:
    """When, where and with what the record was made: (name, text)."""
    seconds = record.get("seconds") or {}
    spent = [f"{STEPS.get(name, name)} {_time(value)}" for name, value in seconds.items() if value is not None]
    told = [
        ("started", record.get("started")),
        ("time", ", ".join(spent)),
        ("hardware", hardware_text(record.get("hardware") or {})),
        ("code", code_text(record)),
        ("versions", versions_text(record.get("versions"))),
    ]
    return [(name, str(text)) for name, text in told if text]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def index_facts(record: dict) -> list[tuple[str, str]]:
    """What is known of the search index that was built: (name, text); nothing where none was."""
    return [(name, _fact(name, value)) for name, value in (record.get("index") or {}).items() if value is not None]


def _fact(name: str, value: object) -> str:
    if name == "bytes" and isinstance(value, int):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(key, part)}" for key, part in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else str(value)

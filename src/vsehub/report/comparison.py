"""A comparison of rankings in words and tables, from its record: for the page and the terminal."""

from typing import Any, NamedTuple

from vsehub.report.tables import Cell, ReportTable

REFERENCES = {
    "transductive": "the corrections saw the very queries that they rank; give reference queries if queries come one "
    "at a time",
    "inductive": "the corrections saw none of the queries that they rank",
    "none": "no ranking here looks at other queries",
}

# Criteria and settings that `tried_text` shows even if they are not among the best.
BASELINES: dict[str, dict[str, Any]] = {"csls": {"k": 10}, "nns": {}}


def table(record: dict[str, Any]) -> str:
    """The comparison for the terminal: sizes, metadata, the rankings and the seconds of each step."""
    queries, items = record["queries"]["rows"], record["items"]["rows"]
    head = f"{queries:,} queries, {items:,} items, a fair share is {fair_share(record):.3g} queries an item"
    spent = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in record["seconds"].items())
    full = rankings_table(record)
    columns = [column for column, name in enumerate(full.head) if name not in ("reference", "Robin Hood %")]
    rows = [[row[column][0] for column in columns] for row in full.rows]  # the values without their notes
    rankings = ReportTable(["", *(full.head[column] for column in columns[1:])], rows).terminal()
    return "\n".join([head, *(f"{name}: {text}" for name, text in evidence(record)), rankings, f"seconds: {spent}"])


def largest_k(record: dict) -> int:
    """The largest counted k: usually 10, less with fewer items."""
    return max(int(k) for k in record["rankings"][0]["histograms"])


def fair_share(record: dict) -> float:
    """The number of queries that would find each item if all were found equally often."""
    return largest_k(record) * record["queries"]["rows"] / record["items"]["rows"]


def evidence(record: dict) -> list[tuple[str, str]]:
    """Lines (name, text) on the rankings: reference, truth, choice, verdict, gains and losses, calibration."""
    reference_items, truth, choice = (record[name] for name in ("reference_items", "truth", "choice"))
    facts = [("warning", warning) for warning in record.get("warnings", ())]
    if record["queries"].get("within"):
        facts.append(("queries", "the items themselves, each among the others"))
    if not record.get("ranking"):
        facts.append(("reference", reference_text(record["reference"])))
    if reference_items is not None:
        facts.append(("reference items", f"{reference_items['set']} ({reference_items['rows']:,} rows)"))
    if truth is not None:
        measured = f"{truth['pairs']:,} pairs in {truth['path']} for {truth['measured_queries']:,} queries"
        if without := truth["queries_without"]:
            measured += f"; {without:,} queries without a pair are left out of the recalls"
        facts.append(("truth", measured))
    if choice is not None:
        facts.append(("chosen", choice_text(choice)))
        if choice["queries"]:
            facts.append(("chosen among", tried_text(choice)))
    facts.append(("verdict on hubs", verdict_text(record["verdict"])))
    if corrected := shown_correction(record):
        facts.append((f"verdict on hubs under {corrected['criterion']}", verdict_text(corrected["verdict"])))
        if truth is None:
            facts.append(("gain", "unknown without known answers; give them as truth=FILE"))
    facts += effects(record)
    if calibration := record["calibration"]:
        rates = [
            f"above {rate['threshold']:.4g} for {rate['false_accept']:g} false accepts ({rate['accepted']:.1%} of the "
            "queries with answers are accepted)"
            for rate in calibration["rates"]
        ]
        facts.append(
            ("calibration", f"first score {', '.join(rates)}; by {calibration['queries']:,} calibration queries")
        )
    return facts


def reference_text(reference: dict) -> str:
    """The kind of the reference, its set and what it means."""
    kind = reference["kind"]
    rows = "" if kind == "none" else f", {reference['set']} ({reference['rows']:,} rows)"
    if left_out := reference.get("left_out"):
        rows += f", without {left_out:,} that equal a query"
    return f"{kind}{rows}: {REFERENCES[kind]}"


def effects(record: dict) -> list[tuple[str, str]]:
    """The gain of the choice, and the gain, new hubs and unfindable items of each correction: (name, text)."""
    facts = []
    choice, antihub_counts = record["choice"], record["antihubs"]["count"]
    items, plain = record["items"]["rows"], record["rankings"][0]["criterion"]
    if choice is not None and choice.get("gain"):
        by = "other queries" if record["inputs"].get("tune_queries") else "the other four fifths"
        facts.append(gain_text("the choice", choice["gain"], f", each ranked by what {by} choose"))
    for ranking, absent in zip(record["rankings"][1:], antihub_counts[1:], strict=True):
        if ranking["gain"] and choice is None:
            facts.append(gain_text(ranking["criterion"], ranking["gain"], ""))
        if made := ranking["hubs_made"]:
            largest = f"the largest found by {made[0]['after']} queries, {made[0]['before']} before"
            facts.append((f"new among the largest hubs of {ranking['criterion']}", f"{len(made)}, {largest}"))
        if absent > antihub_counts[0]:
            shares = f"{absent / items:.1%} of the items are in no list, {antihub_counts[0] / items:.1%} under {plain}"
            facts.append((f"unfindable under {ranking['criterion']}", shares))
    return facts


def shown_correction(record: dict) -> dict | None:
    """The ranking that the top of the page compares with the plain one: CSLS if measured, else the first correction."""
    corrections = record["rankings"][1:]
    return next((ranking for ranking in corrections if ranking["criterion"] == "csls"), next(iter(corrections), None))


def gain_text(name: str, gain: dict, detail: str) -> tuple[str, str]:
    """A gain or loss in R@1 with its interval, (name, text); `detail` follows the numbers of queries and answers."""
    points = f"{gain['r1']:+.1f} points [{gain['low']:+.1f}, {gain['high']:+.1f}]"
    queries = f"{gain['queries']:,} queries, {gain['groups']:,} answers{detail}"
    return f"{'loss' if gain['high'] < 0 else 'gain'} of {name} in R@1", f"{points} over {queries}, p {gain['p']:.2g}"


def tried_text(choice: dict) -> str:
    """R@1 and mean rank of the three leading criteria, CSLS and plain search, on the queries to choose by."""
    applied = sorted(
        (candidate for candidate in choice["tried"] if candidate["rank"] is not None),
        key=lambda candidate: candidate["rank"],
    )
    best = dict[str, dict]()  # each criterion in its best setting
    for candidate in applied:
        best.setdefault(candidate["name"], candidate)
    shown = list(best.values())[:3]
    baselines = [candidate for candidate in applied if BASELINES.get(candidate["name"]) == candidate["parameters"]]
    shown += [candidate for candidate in baselines if candidate not in shown]
    cells = [
        f"{candidate['name']}{parameters_in_brackets(candidate)} {candidate['r1']:.1f} ({candidate['rank']:.2f})"
        for candidate in shown
    ]
    return f"R@1 (geometric mean rank): {', '.join(cells)}; chosen without a query's own fifth {choice['held_out']:.1f}"


def choice_text(choice: dict) -> str:
    """The choice of `criterion=auto`, and the queries used for it."""
    name = choice["criterion"] + parameters_in_brackets(choice)
    if choice["queries"] == 0:
        return f"{name}: the default, since no answers are known to choose by"
    folds = f" in {choice['folds']} folds, since the reference holds them" if choice["folds"] else ""
    keeps = "keeps" if choice["added_to"] else "cannot keep"
    return (
        f"{name}, of {len(choice['tried'])} criteria and settings, by the mean logarithm of the answer's rank over "
        f"{choice['queries']:,} queries{folds}; vsehub add {keeps} it current"
    )


def parameters_in_brackets(ranking: dict) -> str:
    """A criterion's parameters, if there are any, in brackets after a space."""
    settings = parameters(ranking)
    return f" ({settings})" if settings else ""


def verdict_text(verdict: dict) -> str:
    """The level, the skewness, and each check that is beyond a threshold, all with their levels by chance.

    "warn: skewness of N_10 2.4, by chance 0.3 (warn above 1.4 beyond chance)".
    """
    parts = []
    for check in verdict["checks"]:
        bad = check["level"] != "ok"
        limit = f" ({check['level']} above {check[check['level']]:g} beyond chance)" if bad else ""
        if bad or check["name"] == "skewness":
            parts.append(f"{check['meaning']} {check['value']:.2g}, by chance {check['chance']:.2g}{limit}")
    return f"{verdict['level']}: {'; '.join(parts)}"


def parameters(ranking: dict) -> str:
    """A criterion's parameters as text; empty if they are nested."""
    values = (ranking.get("parameters") or {}).items()
    return ", ".join(f"{name} {value}" for name, value in values if not isinstance(value, dict | list))


class Metric(NamedTuple):
    """A metric of a ranking: its part and key in the record, its name and its meaning.

    decimals: number of decimals. better: 1 if more is better, -1 if less is, 0 if neither. scale: factor of the value
    in the record.
    """

    part: str
    key: str
    name: str
    note: str
    decimals: int = 1
    better: int = 1
    scale: float = 1

    def value(self, ranking: dict) -> float | None:
        """The scaled and rounded value of a ranking, None if it was not measured."""
        value = (ranking.get(self.part) or {}).get(self.key)
        return None if value is None else round(self.scale * value, self.decimals) + 0.0  # no negative zero

    def text(self, ranking: dict) -> str:
        """The value of a ranking as text."""
        value = self.value(ranking)
        return "–" if value is None else f"{value:,.{self.decimals}f}".replace("-", "−")

    def cell(self, plain: dict, ranking: dict) -> Cell:
        """The value as text, and its difference from the plain ranking's; "worse" if it is."""
        before, after = self.value(plain), self.value(ranking)
        if self.part == "changed":
            return ("–" if ranking is plain else self.text(ranking), "")
        if before is None or after is None or before == after:
            return (self.text(ranking), "")
        worse = " worse" if (after - before) * self.better < 0 else ""
        return (self.text(ranking), f"{after - before:+,.{self.decimals}f}{worse}".replace("-", "−"))


METRICS = (
    Metric("truth", "r1", "R@1", "%, queries whose nearest item answers them"),
    Metric("truth", "r5", "R@5", "%, queries with an answer among the 5 nearest items"),
    Metric("truth", "r10", "R@10", "%, queries with an answer among the 10 nearest items"),
    Metric("truth", "map_r", "mAP@R", "%, mean average precision of the first R items, R answer the query"),
    Metric("truth", "r_precision", "R-Prec", "%, share of a query's first R items that answer it"),
    Metric(
        "hubness", "largest_hub_{k}", "largest hub", "how many lists the most found item is in", decimals=0, better=-1
    ),
    Metric(
        "hubness",
        "skew_{k}",
        "skew N_{k}",
        "skewness of how often items are found; high with hubs",
        decimals=2,
        better=-1,
    ),
    Metric("hubness", "antihub_rate_{k}", "never %", "items that are in no list", better=-1, scale=100),
    Metric(
        "hubness",
        "robin_hood_{k}",
        "Robin Hood %",
        "list places that would have to move to be fair",
        better=-1,
        scale=100,
    ),
    Metric(
        "hubness",
        "gini_{k}",
        "Gini",
        "inequality of how often items are found: 0 if all are equal",
        decimals=3,
        better=-1,
    ),
    Metric(
        "hubness", "bad_share_{k}", "wrong %", "list places of items that do not answer the query", better=-1, scale=100
    ),
    Metric(
        "changed", "first", "1st moved %", "queries whose first item is not the first ranking's", better=0, scale=100
    ),
    Metric("changed", "overlap", "kept %", "mean share of the first ranking's list that stays", better=0, scale=100),
)


def metrics(record: dict) -> list[Metric]:
    """The metrics that some ranking has a value for."""
    k, rankings = largest_k(record), record["rankings"]
    named = [metric._replace(key=metric.key.format(k=k), name=metric.name.format(k=k)) for metric in METRICS]
    parts = ("truth", "hubness", "changed") if len(rankings) > 1 else ("truth", "hubness")
    return [
        metric
        for metric in named
        if metric.part in parts and any(metric.value(ranking) is not None for ranking in rankings)
    ]


def rankings_table(record: dict) -> ReportTable:
    """The table of the rankings: each value, its difference from the plain ranking's, and whether that is worse."""
    plain, shown = record["rankings"][0], metrics(record)
    rows: list[list[Cell]] = [
        [
            (ranking["criterion"], parameters(ranking)),
            str(ranking.get("reference") or "none"),
            *(metric.cell(plain, ranking) for metric in shown),
        ]
        for ranking in record["rankings"]
    ]
    return ReportTable(["ranking", "reference", *(metric.name for metric in shown)], rows, text_left=2)

"""The head of the page of `vsehub rerank` and `vsehub diagnose`: hubness before and after, better or worse."""

from typing import NamedTuple

from vsehub.report.embedding_facts import fair_share, neighbourhood, spoken
from vsehub.report.occurrence_curves import share_text

PERCENT = "\N{NO-BREAK SPACE}%"


class Measure(NamedTuple):
    """A figure by which a ranking is judged: where the record holds it, and how it is shown."""

    name: str
    part: str
    key: str
    scale: float = 1
    decimals: int = 0
    unit: str = ""
    more_is_better: bool = False

    def text(self, value: float) -> str:
        """The value as a reader sees it."""
        return f"{self._shown(value):,.{self.decimals}f}{self.unit}".replace("-", "−")

    def verdict(self, before: float, after: float) -> str:
        """Whether `after` is "better" or "worse" than `before`; "unchanged" where the two are shown alike."""
        gain = self._shown(after) - self._shown(before)
        if not gain:
            return "unchanged"
        return "better" if (gain > 0) == self.more_is_better else "worse"

    def of(self, ranking: dict) -> float | None:
        """The figure of a ranking, None where it was not measured."""
        return (ranking.get(self.part) or {}).get(self.key)

    def _shown(self, value: float) -> float:
        return round(self.scale * value, self.decimals) + 0.0  # no negative zero


class Change(NamedTuple):
    """A measure under plain similarity and after a correction, as a reader sees them, with the verdict."""

    name: str
    before: str
    after: str
    verdict: str


class Tile(NamedTuple):
    """A figure in large type: what it is, before, and after the correction that is named, or None."""

    name: str
    before: str
    after: str | None


def judged(record: dict) -> tuple[Measure, ...]:
    """The measures on which a correction can be better or worse than plain similarity."""
    k = neighbourhood(record)
    return (
        Measure("largest hub", "hubness", f"largest_hub_{k}"),
        Measure(f"skewness of N_{k}", "hubness", f"skew_{k}", decimals=2),
        Measure("R@1", "truth", "r1", decimals=1, unit=PERCENT, more_is_better=True),
    )


def changes(record: dict, number: int) -> list[Change]:
    """What the correction `number` (1 is the first) makes of each measure that plain similarity and it have."""
    plain, ranking = record["rankings"][0], record["rankings"][number]
    found = []
    for measure in judged(record):
        before, after = measure.of(plain), measure.of(ranking)
        if before is not None and after is not None:
            verdict = measure.verdict(before, after)
            found.append(Change(measure.name, measure.text(before), measure.text(after), verdict))
    return found


def gentlest(record: dict) -> int | None:
    """The correction with the smallest largest hub, better than plain similarity or not; None without corrections."""
    key = f"largest_hub_{neighbourhood(record)}"
    return min(range(1, len(record["rankings"])), key=lambda n: record["rankings"][n]["hubness"][key], default=None)


def findings(record: dict) -> str:
    """What was found, for a reader of nothing else."""
    k, best = neighbourhood(record), gentlest(record)
    rankings, queries = record["rankings"], record["queries"]["rows"]
    largest, place = judged(record)[0], "the nearest item" if k == 1 else f"among the {k} nearest items"
    told = [
        f"The largest hub is {place} of {largest.text(largest.of(rankings[0]))} of {queries:,} queries; a fair share "
        f"is {share_text(fair_share(record))}."
    ]
    if best is None:
        return " ".join([*told, _unseen(record, None)])
    figures = (f"{one.name} from {one.before} to {one.after} ({one.verdict})" for one in changes(record, best))
    told.append(f"With {spoken(rankings[best]['criterion'])}: {', '.join(figures)}.")
    return " ".join([*told, *_unimproved(record), _unseen(record, best), *_highest_recall(rankings, best)])


def worsened(record: dict) -> str:
    """The corrections under which some measure is worse than under plain similarity, each with what it became."""
    told = []
    for number, ranking in enumerate(record["rankings"][1:], 1):
        worse = [f"{one.name} {one.before} → {one.after}" for one in changes(record, number) if one.verdict == "worse"]
        if worse:
            told.append(f"{spoken(ranking['criterion'])} ({', '.join(worse)})")
    return "; ".join(told)


def tiles(record: dict) -> list[Tile]:
    """The figures to see first, before and after the correction with the smallest largest hub."""
    k, best = neighbourhood(record), gentlest(record)
    largest, skew, recall = judged(record)
    never = Measure("items never found", "hubness", f"antihub_rate_{k}", 100, 1, PERCENT)
    found = []
    for measure in (largest, never, skew, recall):
        before = measure.of(record["rankings"][0])
        after = None if best is None else measure.of(record["rankings"][best])
        if before is not None:
            shown = None if best is None else "–" if after is None else measure.text(after)
            found.append(Tile(measure.name[0].upper() + measure.name[1:], measure.text(before), shown))
    return found


def _unimproved(record: dict) -> list[str]:
    """The measures that not one of several corrections improves."""
    every = [changes(record, number) for number in range(1, len(record["rankings"]))]
    better = {one.name for found in every for one in found if one.verdict == "better"}
    names = [one.name for one in every[0] if one.name not in better]
    if len(every) == 1 or not names:
        return []
    return [f"No better under any of the {len(every)} corrections: {', '.join(names)}."]


def _unseen(record: dict, best: int | None) -> str:
    """How many items no query finds, before and, where it is another number, after."""
    items, before = record["items"]["rows"], _never(record, 0)
    after = before if best is None else _never(record, best)
    if before == after == 0:
        return "Every item is found by some query."
    told = f"{before:,} of {items:,} items ({100 * before / items:.1f} %) are found by no query"
    return f"{told}." if before == after else f"{told}; with {spoken(record['rankings'][best]['criterion'])} {after:,}."


def _never(record: dict, ranking: int) -> int:
    rate = record["rankings"][ranking]["hubness"][f"antihub_rate_{neighbourhood(record)}"]
    return round(rate * record["items"]["rows"])


def _highest_recall(rankings: list[dict], best: int) -> list[str]:
    """Whose R@1 is the highest, where it is not that of the correction that is shown; nothing without truth."""
    found = [(ranking.get("truth") or {}).get("r1") for ranking in rankings]
    if found[0] is None or found[best] is None:
        return []
    highest = max(range(len(found)), key=lambda n: -1.0 if found[n] is None else found[n])
    if found[highest] <= found[best]:
        return []
    name = spoken(rankings[highest]["criterion"]) if highest else "plain similarity"
    return [f"The highest R@1 is that of {name}, {found[highest]:.1f} %."]

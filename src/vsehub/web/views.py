"""Items, queries and lists as plain values, for the pages and the interface."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from vsehub.web.catalogue import DEPTH, PLAIN, Catalogue
from vsehub.web.searching import Lists

FINDERS = 20  # of an item's queries that are shown at a time


class Views:
    """Items, queries and lists of a catalogue as dictionaries of plain values.

    pictured: whether there are pictures.
    """

    def __init__(self, catalogue: Catalogue, pictured: bool):
        self._catalogue, self.pictured = catalogue, pictured

    def item(self, row: int) -> dict[str, Any]:
        """An item: id, label, N_k under each ranking, whether it is a hub, and where its page and picture are."""
        one = self._catalogue
        own, name = one.contents.inputs.item_names.of(row), one.id_of(row)
        counts = {ranking.name: int(ranking.counts[row]) for ranking in one.rankings.values()}
        address = "/items/" + quote(name, safe="")
        return {
            "id": name,
            "label": own["label"],
            "found_by": counts,
            "hub": counts[PLAIN] >= one.hub_level,
            "picture": f"/pictures/{row}" if self.pictured else None,
            "page": address,
            "interface": f"/api{address}",
        }

    def query(self, query: int) -> dict[str, Any]:
        """A known query: its number, its text, and where its lists are."""
        return {"query": query, "text": self._catalogue.query_name(query), "page": f"/?query={query}"}

    def lists(self, lists: Lists, criterion: str, answers: Sequence[int] = ()) -> dict[str, Any]:
        """Both lists of a query. answers: items that answer it, if they are known."""
        right, known = set(answers), bool(answers)

        def entry(rank: int, row: int, value: float) -> dict[str, Any]:
            return {"rank": rank, "score": value, "right": row in right if known else None, **self.item(row)}

        plain = [
            entry(rank, row, value)
            for rank, (value, row) in enumerate(zip(*(side.tolist() for side in lists.plain), strict=True), 1)
        ]
        corrected = []
        stays = set(lists.corrected[1].tolist())
        for rank, (value, row) in enumerate(zip(*(side.tolist() for side in lists.corrected), strict=True), 1):
            before = lists.ranks.get(row)
            moved = None if before is None else before - rank
            corrected.append(entry(rank, row, value) | {"plain_rank": before, "moved": moved})
        for one, row in zip(plain, lists.plain[1].tolist(), strict=True):
            one["stays"] = row in stays
        return {
            "criterion": criterion,
            "k": len(plain),
            "looked": max(DEPTH, len(plain)),
            "milliseconds": round(1000 * lists.seconds, 2),
            "nothing_at": self._nothing_at(lists, criterion),
            "plain": plain,
            "corrected": corrected,
        }

    def _nothing_at(self, lists: Lists, criterion: str) -> list[float]:
        """The rates of `vsehub calibrate` at which the first corrected item is not accepted; [] without any."""
        contents = self._catalogue.contents
        if criterion not in contents.stored:
            return []
        best = float(lists.corrected[0][0])
        return sorted(rate for rate, threshold in contents.thresholds.items() if best <= threshold)

    def displaced(self, row: int, criterion: str, first: int = 0, count: int = FINDERS) -> list[dict[str, Any]]:
        """Known queries that find an item, from number `first` on: its rank, and that of their right answer."""
        one = self._catalogue
        found = []
        for query, rank in one.finders(row)[first : first + count]:
            entry = self.query(query) | {"rank": rank, "answer": None, "right": None}
            answer = one.rank_of_answer(query, PLAIN)
            if answer is not None:
                after = one.rank_of_answer(query, criterion)
                is_answer = row in one.answers(query)
                entry["right"] = is_answer
                entry["answer"] = (
                    None
                    if is_answer
                    else self.item(answer[0])
                    | {
                        "plain_rank": answer[1],
                        "corrected_rank": None if after is None else after[1],
                    }
                )
            found.append(entry)
        return found

    def hubness(self) -> list[dict[str, Any]]:
        """Hubness and recalls of each ranking."""
        k = self._catalogue.k
        return [
            {
                "criterion": one.name,
                "skewness": one.hubness[f"skew_{k}"],
                "largest_hub": one.hubness[f"largest_hub_{k}"],
                "antihubs": one.hubness[f"antihub_rate_{k}"],
                "recalls": one.recalls,
            }
            for one in self._catalogue.rankings.values()
        ]

"""Which new items would be hubs: those that enter the lists of too many sentinel queries (arXiv 2606.19692).

A planted item is near to almost everything that is asked (arXiv 2412.14113). Found before it is added, it misleads no
one.
"""

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.neighbors.tiles import score_columns
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.corrected import last_components
from vsehub.serving.databases.collection import Items, with_last
from vsehub.serving.databases.living import Living

RANKINGS = ("plain", "corrected")
FALSE_ALARMS = 0.001  # share of a collection's own items that may be beyond the budget that is taken from them


@dataclass(frozen=True)
class Gate:
    """What a new item must not exceed.

    sentinels: queries (R, D). k: the length of their lists. least: for each ranking, the inner product (R,) of a
    sentinel's k-th best item, which a new item must exceed to enter its list. budget: for each ranking, the largest
    share of the sentinels whose lists an item may enter. items: of the collection.
    """

    sentinels: Tensor
    k: int
    least: dict[str, Tensor]
    budget: dict[str, float]
    items: int

    @classmethod
    def of(
        cls,
        collection: Living,
        sentinels: Tensor,
        k: int = 10,
        budget: float | None = None,
        false_alarms: float = FALSE_ALARMS,
    ) -> "Gate":
        """The gate of a collection, from the lists of the sentinels (R, D) in it.

        budget: for both rankings; None: for each the least share that at most `false_alarms` of the collection's own
        items exceed. Raises InputError if the collection has fewer than k items.
        """
        held = len(collection)
        require(
            held >= k, f"{collection.place.address} holds {held} items, fewer than k={k}, so that every new item would "
            "enter every list; give a smaller k"
        )  # fmt: skip
        least, budgets = {}, {}
        for name in RANKINGS:
            ones = torch.full((len(sentinels),), float(name == "corrected"))
            lists = collection.database.search(with_last(sentinels, ones), k)
            # An approximate index may find fewer: nothing is known of what would enter such a list.
            last = [hits[-1][1] if len(hits) == k else torch.inf for hits in lists]
            least[name] = torch.tensor(last, dtype=torch.float32)
            found = Counter(one for hits in lists for one, _ in hits)
            budgets[name] = _usual(found, len(sentinels), held, false_alarms) if budget is None else budget
        return cls(sentinels, k, least, budgets, held)

    def shares(self, items: Items, scale: float, mean_bias: float) -> dict[str, Tensor]:
        """For each ranking, the share (n,) of the sentinels whose list each new item would enter, alone."""
        last = {"plain": torch.zeros(len(items.vectors)), "corrected": last_components(items.bias, scale, mean_bias)[0]}
        found: dict[str, list[Tensor]] = {name: [] for name in RANKINGS}
        first = 0
        for scores in score_columns(as_vectors("sentinels", self.sentinels), items.vectors)():
            rows = slice(first, first + scores.shape[1])
            for name in RANKINGS:
                entered = scores + last[name][rows].to(scores) > self.least[name].to(scores)[:, None]
                found[name].append(entered.double().mean(dim=0).cpu())
            first = rows.stop
        return {name: torch.cat(parts) for name, parts in found.items()}

    def beyond(self, shares: dict[str, Tensor]) -> Tensor:
        """Whether each item (n,) is beyond the budget of either ranking."""
        return torch.stack([shares[name] > self.budget[name] for name in RANKINGS]).any(dim=0)

    def reason(self, shares: dict[str, Tensor], row: int) -> str:
        """Why the item of that row is beyond the budget, in words."""
        return "; ".join(
            f"among the {self.k} best of {shares[name][row]:.2%} of {len(self.sentinels):,} sentinel queries ({name}), "
            f"budget {self.budget[name]:.2%}"
            for name in RANKINGS
            if shares[name][row] > self.budget[name]
        )


def _usual(found: Counter[str], sentinels: int, items: int, false_alarms: float) -> float:
    """The least share of the sentinels' lists that at most `false_alarms` of the items have a larger one than."""
    shares = sorted((count / sentinels for count in found.values()), reverse=True)
    allowed = int(false_alarms * items)
    return shares[allowed] if allowed < len(shares) else 0.0

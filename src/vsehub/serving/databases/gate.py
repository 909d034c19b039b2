"""Which new items would be hubs: those that enter the lists of too many sentinel queries (arXiv 2606.19692).

A planted item is near to almost every query (arXiv 2412.14113), and does no harm if found before it is added. Many
items that each enter few lists do harm as well. Items in the same lists, such as copies of one planted item, are
therefore counted in groups, and the new items may not have many more large groups than the collection has.
"""

from dataclasses import dataclass

import torch
from scipy import stats
from torch import Tensor

from vsehub.checks import require
from vsehub.neighbors.tiles import score_columns
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.corrected import last_components
from vsehub.serving.databases.collection import Items, with_last
from vsehub.serving.databases.living import Living

RANKINGS = ("plain", "corrected")
FALSE_ALARMS = 0.001  # share of a collection's own items that may exceed any of the budgets
SHARES = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)  # shares of the items, those in the most lists
MOST = 2048  # items that are grouped: those in the most lists


@dataclass(frozen=True)
class SentinelLists:
    """The sentinels' lists that items enter, each item alone.

    shares: for each ranking, the share (n,) of the sentinels whose list an item enters. together: for each ranking and
    size of a group, the sum (n,) of the shares of the item and of the others that share the most lists with it.
    """

    shares: dict[str, Tensor]
    together: dict[str, dict[int, Tensor]]


@dataclass(frozen=True)
class Gate:
    """The limits for new items.

    sentinels: queries (R, D). k: the length of their lists. least: for each ranking, the inner product (R,) of a
    sentinel's k-th best item, which a new item must exceed to enter its list. budget: for each ranking, the largest
    share of the sentinels whose lists an item may enter. groups: for each ranking and size of a group that shares
    lists, the largest sum of these shares. tails: for each ranking and share of the items, the share of the lists that
    this share of the collection's items exceeds; of new items not many more may exceed it. false_alarms: the
    probability with which a random part of the collection has too many. items: of the collection.
    """

    sentinels: Tensor
    k: int
    least: dict[str, Tensor]
    budget: dict[str, float]
    groups: dict[str, dict[int, float]]
    tails: dict[str, dict[float, float]]
    false_alarms: float
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

        budget: of one item in both rankings; None: the budgets are the least that at most `false_alarms` of the
        collection's own items exceed, all of them together: half of it is divided between the two rankings of one item,
        half between the rankings and sizes of groups. With a budget, those of groups are in proportion. Raises
        InputError if the collection has fewer than k items.
        """
        held = len(collection)
        require(
            held >= k, f"{collection.place.address} holds {held} items, fewer than k={k}, so that every new item would "
            "enter every list; give a smaller k"
        )  # fmt: skip
        least, budgets, groups, tails = {}, {}, {}, {}
        for name in RANKINGS:
            asked = with_last(sentinels, torch.full((len(sentinels),), float(name == "corrected")))
            lists = collection.database.search(asked, k)
            # An approximate index may find fewer than k: no limit is known for such a list.
            last = [hits[-1][1] if len(hits) == k else torch.inf for hits in lists]
            least[name] = torch.tensor(last, dtype=torch.float32)
            numbers: dict[str, int] = {}
            pairs = [(numbers.setdefault(one, len(numbers)), row) for row, hits in enumerate(lists) for one, _ in hits]
            item, sentinel = torch.tensor(pairs).T if pairs else torch.empty(2, 0, dtype=torch.int64)
            shares = torch.bincount(item, minlength=max(1, len(numbers))).double() / len(sentinels)
            usual = _usual(shares, int(false_alarms * held / 4))
            together = _together(item, sentinel, shares, len(sentinels))
            allowed = int(false_alarms * held / (4 * max(1, len(together))))
            budgets[name] = usual if budget is None else budget
            scale = budgets[name] / usual if usual else torch.inf
            groups[name] = {
                size: min(size * budgets[name], scale * _usual(sums, allowed)) for size, sums in together.items()
            }
            tails[name] = {one: min(1.0, scale * _usual(shares, int(one * held))) for one in SHARES if one * held >= 1}
        return cls(sentinels, k, least, budgets, groups, tails, false_alarms, held)

    def entries(self, items: Items, scale: float, mean_bias: float) -> SentinelLists:
        """The sentinels' lists that the new items would enter."""
        last = {"plain": torch.zeros(len(items.vectors)), "corrected": last_components(items.bias, scale, mean_bias)[0]}
        found: dict[str, list[Tensor]] = {name: [] for name in RANKINGS}
        first = 0
        for scores in score_columns(as_vectors("sentinels", self.sentinels), items.vectors)():
            rows = slice(first, first + scores.shape[1])
            for name in RANKINGS:
                entered = scores + last[name][rows].to(scores) > self.least[name].to(scores)[:, None]
                found[name].append(entered.T.nonzero().cpu() + torch.tensor([first, 0]))
            first = rows.stop
        shares, together = {}, {}
        for name in RANKINGS:
            item, sentinel = torch.cat(found[name]).T
            shares[name] = torch.bincount(item, minlength=first).double() / len(self.sentinels)
            together[name] = _together(item, sentinel, shares[name], len(self.sentinels))
        return SentinelLists(shares, together)

    def beyond(self, entries: SentinelLists) -> Tensor:
        """Whether each item (n,) is beyond a budget of either ranking: alone, in a group, or one of too many."""
        found = [entries.shares[name] > self.budget[name] for name in RANKINGS]
        for name in RANKINGS:
            found += [beyond for _, beyond in (*self._grouped(entries, name), *self._too_many(entries, name))]
        return torch.stack(found).any(dim=0)

    def _too_many(self, entries: SentinelLists, name: str) -> list[tuple[float, Tensor]]:
        """For each of `SHARES` of which too many items exceed the collection's tail, those (n,) that are too many.

        They are those in the most lists, down to as many as are expected. Of n items more than the binomial
        distribution allows are too many.
        """
        shares = entries.shares[name]
        order = shares.argsort(descending=True, stable=True)
        found = []
        rare = max(self.false_alarms, 1e-9) / (2 * len(SHARES))
        for share, least in self.tails[name].items():
            count = int((shares > least).sum())
            if count > stats.binom.isf(rare, len(shares), share):
                beyond = torch.zeros(len(shares), dtype=torch.bool)
                beyond[order[: count - int(share * len(shares))]] = True
                found.append((share, beyond))
        return found

    def _grouped(self, entries: SentinelLists, name: str) -> list[tuple[int, Tensor]]:
        """For each size, whether the group of each item (n,) is beyond its budget, and the item no bystander in it.

        An item in less than half as many lists as its group has on the mean is one.
        """
        shares = entries.shares[name]
        return [
            (size, (sums > self.groups[name][size]) & (shares >= sums / size / 2))
            for size, sums in entries.together[name].items()
            if size in self.groups[name]
        ]

    def reason(self, entries: SentinelLists, row: int) -> str:
        """The reason, in words, why the item of a row exceeds a budget."""
        told = []
        for name in RANKINGS:
            if entries.shares[name][row] > self.budget[name]:
                told.append(
                    f"among the {self.k} best of {entries.shares[name][row]:.2%} of {len(self.sentinels):,} sentinel "
                    f"queries ({name}), budget {self.budget[name]:.2%}"
                )
                continue
            for size, beyond in self._grouped(entries, name):
                if beyond[row]:
                    told.append(
                        f"with {size - 1:,} other new items that enter the same lists: "
                        f"{entries.together[name][size][row]:.2%} in all ({name}), "
                        f"budget of so many {self.groups[name][size]:.2%}"
                    )
                    break
            else:
                told += [
                    f"one of {int((entries.shares[name] > self.tails[name][share]).sum()):,} new items that enter more "
                    f"than {self.tails[name][share]:.2%} of the lists ({name}), where {share * len(beyond):,.0f} would "
                    "be usual"
                    for share, beyond in self._too_many(entries, name)
                    if beyond[row]
                ][:1]
        return "; ".join(told)


def _together(item: Tensor, sentinel: Tensor, shares: Tensor, sentinels: int) -> dict[int, Tensor]:
    """For groups of 2, 4, 8, ... items, the sum (n,) of the shares of each item and of those that share lists with it.

    item, sentinel: (p,) which items enter which lists. shares: (n,) of all items. A group holds the others that share
    the most lists with the item, and none that shares no list. Only the `MOST` items in the most lists are grouped;
    that of another item is the item alone.
    """
    kept = shares.argsort(descending=True, stable=True)[:MOST]
    kept = kept[shares[kept] > 0]
    if len(kept) < 2:
        return {}
    place = torch.full((len(shares),), -1)
    place[kept] = torch.arange(len(kept))
    among = place[item] >= 0
    entered = torch.zeros(len(kept), sentinels)
    entered[place[item[among]], sentinel[among]] = 1
    shared = entered @ entered.T
    own = shares[kept].expand(len(kept), -1)
    # Of items that share equally many lists, those in more lists come first.
    order = (shared + 0.5 * own.float() / own.max()).fill_diagonal_(torch.inf).argsort(dim=1, descending=True)
    sums = (own * (shared > 0)).gather(1, order).cumsum(dim=1)
    found = {}
    size = 2
    while size <= len(kept):
        found[size] = shares.clone()
        found[size][kept] = sums[:, size - 1]
        size *= 2
    return found


def _usual(shares: Tensor, allowed: int) -> float:
    """The least share that `allowed` of these (n,) exceed."""
    ordered = shares.sort(descending=True).values
    return ordered[allowed].item() if allowed < len(ordered) else 0.0

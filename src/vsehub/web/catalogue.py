"""A catalogue of the items, made before the first request: rankings of the known queries, N_k, hubs; and searches."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import quote

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import ItemBias, fit_all
from vsehub.metrics.occurrences import occurrence_metrics
from vsehub.neighbors.screened import KeptItems
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Affine, VectorSource, as_vectors, drawn, sampled
from vsehub.ranking.inputs import Names
from vsehub.ranking.verdict import hub_level, verdict
from vsehub.web.contents import Contents

log = logging.getLogger(__name__)

PLAIN = "nns"
K = 10  # of N_k
DEPTH = 100  # length of the lists that are searched for displaced answers
LISTS = 3  # side by side
MOST = 200  # items in a list or on a page


@dataclass(frozen=True, eq=False)
class KnownRanking:
    """The lists of the known queries under one criterion.

    correction: a and b (M,) of a·s - b; None for plain similarity. positions: (Q, depth). counts: N_k (M,). wrong: BN_k
    (M,), lists of queries that the item does not answer. hubness: metrics of N_k. recalls: R@1, R@5 and R@10 in %.
    answered: (Q,) the rank of each query's best ranked answer, from 1, 0 beyond the lists. Without known answers wrong,
    recalls and answered are None.
    """

    correction: Affine | None
    positions: Tensor
    counts: Tensor
    hubness: dict[str, float]
    wrong: Tensor | None = None
    recalls: dict[str, float] | None = None
    answered: Tensor | None = None


class Catalogue:
    """Contents with the rankings of their known queries. Nothing changes after it is made.

    criteria: name -> criterion, each a term of the item. sample: the most known queries; of more, a sample is drawn by
    `seed`. contents: the collection. vectors: the items (M, D), float32, in memory; items: the same, as they are
    searched. k: k of N_k. rows: positions of the sampled queries (n,). Raises InputError for a criterion that is not a
    bias of each item.
    """

    @torch.no_grad()
    def __init__(self, contents: Contents, criteria: Mapping[str, Any], sample: int = 10_000, seed: int = 0):
        for name, criterion in criteria.items():
            require(
                isinstance(criterion, ItemBias),
                f"criteria: {name} does not rank by the score minus a term of the item, which a page can switch at "
                "once; choose others, such as csls or is",
            )
        sides = contents.inputs.sides
        self.contents, self.k = contents, min(K, len(sides.items))
        self.vectors = sides.items.rows(0, len(sides.items)).float().cpu()
        self.items = KeptItems(as_vectors("items", self.vectors))
        queries, self.rows = sampled(sides.queries, sample, seed)
        self.queries: VectorSource = as_vectors("queries", queries.float().cpu())
        self.positives = None if sides.positives is None else sides.positives.of(self.rows)
        log.info("fitting %s and ranking %s queries", ", ".join(criteria) or "no criterion", f"{len(self.queries):,}")
        fitted = {name: criterion for name, criterion in criteria.items() if name not in contents.stored}
        reference = self.queries if sides.reference is None else sides.reference
        terms = fit_all(list(fitted.values()), self.items, reference, sides.reference_items) if fitted else []
        corrections: dict[str, Affine | None] = {name: None for name in (PLAIN, *criteria)}
        for name, (scale, bias) in contents.stored.items():
            corrections[name] = Affine(scale, bias.float().cpu())
        for (name, criterion), item_terms in zip(fitted.items(), terms, strict=True):
            corrections[name] = Affine(
                criterion.scale, (item_terms[0] if item_terms else torch.zeros(len(self.items))).float().cpu()
            )
        lists = nearest(self.queries, self.items, min(DEPTH, len(self.items)), list(corrections.values()))
        self.rankings = {
            name: self._ranking(correction, positions)
            for (name, correction), (_, positions) in zip(corrections.items(), lists, strict=True)
        }
        plain = self.rankings[PLAIN]
        self.sizes = self.k, len(self.queries), len(self.items)
        self.verdict: dict[str, Any] = verdict(plain.hubness, *self.sizes)
        self.hub_level = hub_level(*self.sizes)
        never = (plain.counts == 0).nonzero().flatten()
        self.antihubs = never[drawn(len(never), 1000, seed)].tolist() if len(never) else []
        self.ordered = plain.counts.argsort(descending=True, stable=True).tolist()
        self.hubs = self._hubs(plain)
        self.made = {
            name: [row for row in self._hubs(ranking) if plain.counts[row] < self.hub_level]
            for name, ranking in self.rankings.items()
        }

    def _ranking(self, correction: Affine | None, positions: Tensor) -> KnownRanking:
        shallow = positions[:, : self.k]
        counts = torch.bincount(shallow.flatten(), minlength=len(self.items))
        if self.positives is None:
            return KnownRanking(correction, positions, counts, occurrence_metrics({self.k: counts}))
        hits, judged = self.positives.hits(positions), self.positives.counts > 0
        wrong = (~hits[:, : self.k]) & judged[:, None]
        bad = torch.bincount(shallow[wrong], minlength=len(self.items))
        metrics = occurrence_metrics({self.k: counts}, {self.k: bad}, int(judged.sum()))
        recalls = {f"R@{k}": 100 * hits[judged, :k].any(1).double().mean().item() for k in (1, 5, 10)}
        answered = torch.where(hits.any(1), hits.int().argmax(1) + 1, 0)
        return KnownRanking(correction, positions, counts, metrics, bad, recalls, answered)

    def _hubs(self, ranking: KnownRanking) -> list[int]:
        """The rows of a ranking's hubs, the largest first."""
        hubs = int((ranking.counts >= self.hub_level).sum())
        return ranking.counts.argsort(descending=True, stable=True)[:hubs].tolist()

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each id."""
        return {self.id_of(row): row for row in range(len(self))}

    def id_of(self, row: int) -> str:
        """The id of an item, its row number if it has none."""
        ids = self.contents.inputs.item_names.ids
        return str(row if ids is None else ids[row])

    def answers(self, query: int) -> list[int]:
        """The items that answer a known query."""
        if self.positives is None:
            return []
        here = slice(*torch.searchsorted(self.positives.query, torch.tensor([query, query + 1])).tolist())
        return self.positives.item[here].tolist()

    def query_name(self, query: int) -> str:
        """The text of a known query, else its id, else its row."""
        row = int(self.rows[query])
        names = self.contents.inputs.query_names.of(row)
        return str(names["label"] or names["id"] or f"query {row}")

    def item(self, row: int) -> dict[str, Any]:
        """An item: id, label, N_k under each ranking, whether it is a hub, and where its page and picture are."""
        name, wrong = self.id_of(row), self.rankings[PLAIN].wrong
        counts = {ranked: int(ranking.counts[row]) for ranked, ranking in self.rankings.items()}
        return {
            "id": name,
            "label": self.contents.inputs.item_names.of(row)["label"],
            "found_by": counts,
            "wrong": None if wrong is None else int(wrong[row]),
            "hub": counts[PLAIN] >= self.hub_level,
            "picture": f"/pictures/{row}" if self.contents.picture(row) is not None else None,
            "page": "/items/" + quote(name, safe=""),
        }

    @torch.inference_mode()
    def search(self, vector: Tensor, k: int, criterion: str, answers: Sequence[int] = ()) -> dict[str, Any]:
        """The lists of a query (1, D): plain, under a criterion, and under one more. answers: known right items.

        The ranks of an item are those in the `looked` first of each list, None beyond them.
        """
        k = min(k, len(self))
        query = as_vectors("queries", vector, columns=self.vectors.shape[1])
        depth = min(len(self), max(DEPTH, k))
        names = list(dict.fromkeys([PLAIN, criterion, *self.rankings]))[:LISTS]
        nearby = nearest(query, self.items, depth, [self.rankings[name].correction for name in names])
        lists = {
            name: (values[0].tolist(), positions[0].tolist())
            for name, (values, positions) in zip(names, nearby, strict=True)
        }
        ranks = {name: {row: rank for rank, row in enumerate(rows, 1)} for name, (_, rows) in lists.items()}

        def entry(row: int) -> dict[str, Any]:
            return {
                "ranks": {name: rank_of.get(row) for name, rank_of in ranks.items()},
                "right": row in answers if answers else None,
                **self.item(row),
            }

        thresholds = self.contents.thresholds if criterion in self.contents.stored else {}
        best = lists[criterion][0][0]
        return {
            "criterion": criterion,
            "k": k,
            "looked": max(DEPTH, k),
            # the rates of `vsehub calibrate` that do not accept the first corrected item
            "nothing_at": sorted(rate for rate, threshold in thresholds.items() if best <= threshold),
            "answers": [entry(row) for row in answers[:MOST]],
            "lists": {
                name: [{"score": score, **entry(row)} for score, row in zip(scores[:k], rows[:k], strict=True)]
                for name, (scores, rows) in lists.items()
            },
        }

    def finders(self, row: int, criterion: str) -> list[dict[str, Any]]:
        """The known queries whose plain k nearest hold an item: its rank, and the ranks of their right answer.

        Queries whose right answer ranks lower than the item come first, then those with the best ranks.
        """
        plain, after = self.rankings[PLAIN], self.rankings[criterion]
        entries = []
        for query, place in (plain.positions[:, : self.k] == row).nonzero().tolist():
            answers, rank = self.answers(query), place + 1
            entry = {"query": query, "text": self.query_name(query), "page": f"/?query={query}", "rank": rank}
            entry |= {"right": row in answers if answers else None, "answer": None, "displaced": False}
            if answers and plain.answered is not None and after.answered is not None:
                first, second = int(plain.answered[query]), int(after.answered[query])
                entry["displaced"] = not 0 < first <= rank
                if row not in answers:
                    best = int(plain.positions[query, first - 1]) if first else answers[0]
                    entry["answer"] = self.item(best) | {"plain_rank": first or None, "corrected_rank": second or None}
            entries.append(entry)
        return sorted(entries, key=lambda entry: (not entry["displaced"], entry["rank"]))

    def hubness(self) -> list[dict[str, Any]]:
        """Hubness and recalls of each ranking."""
        named = {"skewness": "skew", "largest_hub": "largest_hub", "antihubs": "antihub_rate"}
        return [
            {"criterion": name, "recalls": ranking.recalls, "verdict": verdict(ranking.hubness, *self.sizes)["level"]}
            | {shown: ranking.hubness[f"{key}_{self.k}"] for shown, key in named.items()}
            for name, ranking in self.rankings.items()
        ]


def matching(names: Names, rows: Sequence[int], text: str) -> list[int]:
    """The positions in `rows` of the rows whose id (their number without ids) or label has a text, in any case."""
    named = ((row, names.of(row)) for row in rows)
    texts = [f"{row if name['id'] is None else name['id']}\n{name['label'] or ''}".casefold() for row, name in named]
    return [position for position, known in enumerate(texts) if text.strip().casefold() in known]

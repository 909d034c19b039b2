"""A catalogue of the items, made before the first request: rankings of the known queries, N_k, hubs."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail
from vsehub.criteria.base import Criterion, ItemBias, fit_all
from vsehub.io.progress import stage
from vsehub.metrics.occurrences import histogram, occurrence_metrics
from vsehub.neighbors.screened import Affine, KeptItems
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import VectorSource, as_vectors, drawn, sampled
from vsehub.rerank.verdict import hub_level, verdict
from vsehub.web.contents import Contents

log = logging.getLogger(__name__)

PLAIN = "nns"
K = 10  # of N_k
UNIT = 1e-3  # largest difference of a norm from 1
DEPTH = 100  # of the lists in which displaced answers are looked for


@dataclass(frozen=True, eq=False)
class KnownRanking:
    """The lists of the known queries under one criterion.

    correction: a and b (M,) of a·s - b; None for plain similarity. positions: (Q, depth). counts: N_k (M,). wrong: BN_k
    (M,), lists of queries that the item does not answer; None without known answers. hubness: metrics of N_k. recalls:
    R@1, R@5 and R@10 in %, None without known answers. answered: (Q,) the rank of each query's best ranked answer, from
    1, 0 beyond the lists; None without known answers.
    """

    name: str
    correction: Affine | None
    positions: Tensor
    counts: Tensor
    wrong: Tensor | None
    hubness: dict[str, float]
    recalls: dict[str, float] | None
    answered: Tensor | None


class Catalogue:
    """Contents with the rankings of their known queries. Nothing changes after it is made.

    criteria: name -> criterion, each a term of the item. sample: the most known queries; of more, a sample is drawn by
    `seed`. contents: of the catalogue. vectors: the items (M, D), float32, in memory; items: the same, as they are
    searched. normalizes: whether query vectors are divided by their norms; by default if all items have norm 1. k: of
    N_k. rows: of the sampled queries (n,). Raises InputError for a criterion that is no term of the item.
    """

    @torch.no_grad()
    def __init__(self, contents: Contents, criteria: Mapping[str, Criterion], sample: int = 10_000, seed: int = 0):
        known = terms_of_items(criteria)
        sides = contents.inputs.sides
        self.contents, self.k = contents, min(K, len(sides.items))
        self.vectors = sides.items.rows(0, len(sides.items)).float().cpu()
        self.items = KeptItems(as_vectors("items", self.vectors))
        norms = self.vectors.norm(dim=1)
        self.normalizes = bool(((norms - 1).abs() < UNIT).all()) if contents.normalize is None else contents.normalize
        queries, self.rows = sampled(sides.queries, sample, seed)
        self.queries: VectorSource = as_vectors("queries", queries.float().cpu())
        positives = None if sides.positives is None else sides.positives.of(self.rows)
        self.positives = positives
        stage(log, f"fitting {', '.join(known) or 'no criterion'} and ranking {len(self.queries):,} queries")
        fitted = [one for name, one in known.items() if name not in contents.stored]
        seen = self.queries if sides.reference is None else sides.reference
        terms = iter(fit_all(fitted, self.items, seen, sides.reference_items) if fitted else [])
        corrections: dict[str, Affine | None] = {PLAIN: None}
        for name, one in known.items():
            if name in contents.stored:
                scale, bias = contents.stored[name]
            else:
                own = next(terms)
                scale, bias = one.scale, own[0] if own else torch.zeros(len(self.items))
            corrections[name] = Affine(scale, bias.float().cpu())
        depth = min(DEPTH, len(self.items))
        lists = nearest(self.queries, self.items, depth, list(corrections.values()))
        self.rankings = {
            name: self._ranking(name, correction, positions)
            for (name, correction), (_, positions) in zip(corrections.items(), lists, strict=True)
        }
        plain = self.rankings[PLAIN]
        self.verdict: dict[str, Any] = verdict(plain.hubness, self.k, len(self.queries), len(self.items))
        self.hub_level = hub_level(self.k, len(self.queries), len(self.items))
        never = int((plain.counts == 0).sum())
        self.antihubs = (plain.counts == 0).nonzero().flatten()[drawn(never, 1000, seed)] if never else torch.zeros(0)

    def _ranking(self, name: str, correction: Affine | None, positions: Tensor) -> KnownRanking:
        shallow = positions[:, : self.k]
        counts = torch.bincount(shallow.flatten(), minlength=len(self.items))
        if self.positives is None:
            return KnownRanking(
                name, correction, positions, counts, None, occurrence_metrics({self.k: counts}), None, None
            )
        hits, judged = self.positives.hits(positions), self.positives.counts > 0
        wrong = (~hits[:, : self.k]) & judged[:, None]
        bad = torch.bincount(shallow[wrong], minlength=len(self.items))
        metrics = occurrence_metrics({self.k: counts}, {self.k: bad}, int(judged.sum()))
        found = hits[judged]
        recalls = {f"R@{k}": 100 * found[:, :k].any(1).double().mean().item() for k in (1, 5, 10)}
        answered = torch.where(hits.any(1), hits.int().argmax(1) + 1, 0)
        return KnownRanking(name, correction, positions, counts, bad, metrics, recalls, answered)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each id; where items have none, row numbers are ids."""
        ids = self.contents.inputs.item_names.ids
        return {str(one): row for row, one in enumerate(ids if ids is not None else range(len(self)))}

    def id_of(self, row: int) -> str:
        """The id of an item, its row number if it has none."""
        ids = self.contents.inputs.item_names.ids
        return str(row if ids is None else ids[row])

    @cached_property
    def by_count(self) -> Tensor:
        """The items by N_k of plain similarity, the largest hub first (M,)."""
        return self.rankings[PLAIN].counts.argsort(descending=True, stable=True)

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """The distribution of N_k under each ranking."""
        return {name: histogram(ranking.counts) for name, ranking in self.rankings.items()}

    def finders(self, row: int) -> list[tuple[int, int]]:
        """(known query, rank from 1) of the queries whose plain k nearest hold an item.

        Queries whose right answer ranks lower than the item come first, then those with the best ranks.
        """
        plain = self.rankings[PLAIN]
        query, place = (plain.positions[:, : self.k] == row).nonzero(as_tuple=True)
        rank = place + 1
        displaces = torch.zeros(len(query), dtype=torch.bool)
        if plain.answered is not None and self.positives is not None:
            answered = plain.answered[query]
            displaces = ((answered == 0) | (answered > rank)) & (self.positives.counts[query] > 0)
        order = (rank + len(self) * ~displaces).argsort(stable=True)
        return list(zip(query[order].tolist(), rank[order].tolist(), strict=True))

    def rank_of_answer(self, query: int, name: str) -> tuple[int, int | None] | None:
        """(item, rank) of the best ranked answer of a known query; rank None beyond the lists; None without answers."""
        ranking, answers = self.rankings[name], self.answers(query)
        if not answers or ranking.answered is None:
            return None
        rank = int(ranking.answered[query])
        return (int(ranking.positions[query, rank - 1]), rank) if rank else (answers[0], None)

    def answers(self, query: int) -> list[int]:
        """The items that answer a known query."""
        if self.positives is None:
            return []
        here = slice(*torch.searchsorted(self.positives.query, torch.tensor([query, query + 1])).tolist())
        return self.positives.item[here].tolist()

    def query_name(self, query: int) -> str:
        """The text of a known query, else its id, else its row."""
        names, row = self.contents.inputs.query_names, int(self.rows[query])
        own = names.of(row)
        return str(own["label"] or own["id"] or f"query {row}")


def terms_of_items(criteria: Mapping[str, Criterion]) -> dict[str, ItemBias]:
    """The criteria. Raises InputError for one that is no term of the item."""
    found = {}
    for name, one in criteria.items():
        if not isinstance(one, ItemBias):
            fail(
                f"criteria: {name} does not rank by the score minus a term of the item, which a page can switch at "
                "once; choose others, such as csls or is"
            )
        found[name] = one
    return found

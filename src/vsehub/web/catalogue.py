"""The contents that are served, and their catalogue, made before the first request: N_k and hubs; and searches."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import ItemBias, fit_all
from vsehub.data.sources import CaptionedImages
from vsehub.metrics.occurrences import occurrence_metrics
from vsehub.models.trained import DataModel
from vsehub.neighbors.screened import CachedItems
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Affine, VectorSource, as_vectors, sample_positions, sample_rows
from vsehub.positives import Positives
from vsehub.ranking.inputs import Inputs, Names, Sides, read_images
from vsehub.ranking.verdict import hub_level, verdict

log = logging.getLogger(__name__)

PLAIN = "nns"
K = 10  # of N_k
DEPTH = 100  # length of the lists that are searched for displaced answers
LISTS = 3  # side by side
MOST = 200  # items in a list or on a page

# row -> its picture's file or pixels (3, H, W); None without a picture
PictureOf = Callable[[int], str | np.ndarray | None]


class SentenceEncoder:
    """Turns sentences into queries by a model whose similarity is an inner product of vectors.

    vocabulary: words of the model; None if it encodes no sentences. Raises InputError for another similarity.
    """

    def __init__(self, model: DataModel, normalize: bool | None = None):
        require(
            model.similarity.inner_product,
            f"{model.name} was trained with {type(model.similarity).__name__}, which is not an inner product of "
            "vectors; serve needs one",
        )
        self._model, self._normalize, self.vocabulary = model, normalize, model.vocabulary

    @torch.no_grad()
    def encode(self, text: str) -> tuple[Tensor, list[str]]:
        """The vector of a text (1, D), on the CPU, and notes on words that the model does not know or read.

        Raises InputError if all words are unknown.
        """
        notes = self._model.notes(text)
        vectors = self._model.similarity.vectors(self._model.encode_texts([text])).detach().float().cpu()
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors, notes


@dataclass(frozen=True, eq=False)
class Contents:
    """The opened contents.

    title: name of the collection. inputs: queries, items, what criteria are fitted on, true pairs, and names. picture:
    function that returns an item's picture. fitted_on: description of the criteria's reference. encoder: encoder
    of sentences, or None. stored: criterion -> (a, b) of a result that has its own correction. thresholds: rate -> the
    score of that criterion above which a first item is accepted at this rate of `vsehub calibrate`.
    """

    title: str
    inputs: Inputs
    picture: PictureOf
    fitted_on: str = ""
    encoder: SentenceEncoder | None = None
    stored: Mapping[str, tuple[float, Tensor]] = field(default_factory=dict)
    thresholds: Mapping[float, float] = field(default_factory=dict)


def split_contents(model: DataModel, split: str, reference: str, images: str | None) -> Contents:
    """A split of a model's data: captions find images. reference: the split whose captions fit the criteria."""
    encoder, loaded = SentenceEncoder(model), model.split(split)
    vectors = model.similarity.vectors
    encoded, encoded_reference = model.encode(split), model.encode(reference)
    captions, pictures = vectors(encoded.texts).detach().cpu(), vectors(encoded.images).detach().cpu()
    images_of, captions_of = torch.from_numpy(loaded.pairs).unbind(dim=1)
    positives = Positives.from_pairs(captions_of, images_of, len(captions), len(pictures))
    reference_texts = None if reference == split else vectors(encoded_reference.texts).detach().cpu()
    sides = Sides.from_arrays(captions, pictures, reference_texts, positives=positives)
    texts = [loaded.text_of(row) for row in range(len(captions))]
    first = {image: texts[row] for image, row in loaded.pairs[::-1].tolist()}  # of each image: an earlier pair wins
    labels = [first.get(row, "") for row in range(len(pictures))]
    files = None if images is None else read_images(images)
    item_names = Names("items", len(pictures), ids=loaded.names, labels=labels, images=files)
    fitted_on = (
        "the captions themselves"
        if reference_texts is None
        else f"{len(reference_texts):,} captions of the {reference} split"
    )
    return Contents(
        title=f"The {split} split of {model.source.name}: {len(pictures):,} images, {len(captions):,} captions",
        inputs=Inputs(sides, Names("queries", len(captions), labels=texts), item_names),
        picture=_pixels(loaded) if files is None else item_names.image,
        fitted_on=f"{fitted_on} ({'transductive' if reference_texts is None else 'inductive'})",
        encoder=encoder,
    )


def _pixels(loaded: CaptionedImages) -> PictureOf:
    """The pictures of a split that holds pixels."""
    if len(loaded.images.shape) == 4 and loaded.images.shape[1] == 3:
        return lambda row: np.asarray(loaded.images[row])
    return lambda row: None


def result_contents(
    inputs: Inputs,
    encoder: SentenceEncoder | None,
    stored: Mapping[str, tuple[float, Tensor]],
    thresholds: Mapping[float, float],
) -> Contents:
    """The files of a reranking, opened; the other arguments are those of `Contents`."""
    require(not inputs.sides.exclude_self, "result: pages show what queries find; rerank with queries=FILE")
    items, queries, reference = inputs.sides.items, inputs.sides.queries, inputs.sides.reference
    others = "" if reference is None else f"{len(reference):,} other queries (inductive)"
    return Contents(
        title=f"{len(items):,} items of {items.shape[1]:,} dimensions, {len(queries):,} queries",
        inputs=inputs,
        picture=inputs.item_names.image,
        fitted_on=others or "the queries themselves (transductive)",
        encoder=encoder,
        stored=stored,
        thresholds=thresholds,
    )


@dataclass(frozen=True, eq=False)
class KnownRanking:
    """The lists of the known queries under one criterion.

    correction: a and b (M,) of a·s - b; None for plain similarity. positions: (Q, depth). counts: N_k (M,). wrong: BN_k
    (M,), the number of lists that hold the item although it does not answer their query. hubness: metrics of N_k.
    recalls: R@1, R@5 and R@10 in %. answer_ranks: (Q,) the rank of each query's best ranked answer, from 1, 0 beyond
    the lists. Without known answers wrong, recalls and answer_ranks are None.
    """

    correction: Affine | None
    positions: Tensor
    counts: Tensor
    hubness: dict[str, float]
    wrong: Tensor | None = None
    recalls: dict[str, float] | None = None
    answer_ranks: Tensor | None = None


class Catalogue:
    """Contents with the rankings of their known queries. Nothing changes after it is made.

    criteria: name -> criterion, each a bias of the items. sample: largest number of known queries; if there are more,
    this many are drawn by `seed`. contents: the collection. vectors: the items (M, D), float32, in memory. items: the
    same, as they are searched. k: k of N_k. query_rows: positions of the sampled queries (n,). Raises InputError for a
    criterion that is not a bias of the items.
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
        self.items = CachedItems(as_vectors("items", self.vectors))
        queries, self.query_rows = sample_rows(sides.queries, sample, seed)
        self.queries: VectorSource = as_vectors("queries", queries.float().cpu())
        self.positives = None if sides.positives is None else sides.positives.of_queries(self.query_rows)
        log.info("fitting %s and ranking %s queries", ", ".join(criteria) or "no criterion", f"{len(self.queries):,}")
        corrections = self._corrections(criteria)
        lists = nearest(self.queries, self.items, min(DEPTH, len(self.items)), list(corrections.values()))
        self.rankings = {
            name: self._ranking(correction, positions)
            for (name, correction), (_, positions) in zip(corrections.items(), lists, strict=True)
        }
        plain = self.rankings[PLAIN]
        self.sizes = self.k, len(self.queries), len(self.items)
        self.verdict: dict[str, Any] = verdict(plain.hubness, *self.sizes)
        self.hub_level = hub_level(*self.sizes)
        antihubs = (plain.counts == 0).nonzero().flatten()
        self.antihubs = antihubs[sample_positions(len(antihubs), 1000, seed)].tolist() if len(antihubs) else []
        self.by_count = plain.counts.argsort(descending=True, stable=True).tolist()
        self.hubs = self._hubs(plain)
        self.hubs_made = {
            name: [row for row in self._hubs(ranking) if plain.counts[row] < self.hub_level]
            for name, ranking in self.rankings.items()
        }

    def _corrections(self, criteria: Mapping[str, ItemBias]) -> dict[str, Affine | None]:
        """The correction of each ranking: None for the plain one, a stored one, or one that is fitted here."""
        sides, stored = self.contents.inputs.sides, self.contents.stored
        corrections: dict[str, Affine | None] = {name: None for name in (PLAIN, *criteria)}
        corrections |= {name: Affine(scale, bias.float().cpu()) for name, (scale, bias) in stored.items()}
        reference = self.queries if sides.reference is None else sides.reference
        fitted = {name: criterion for name, criterion in criteria.items() if name not in stored}
        terms = fit_all(list(fitted.values()), self.items, reference, sides.reference_items) if fitted else []
        for (name, criterion), item_terms in zip(fitted.items(), terms, strict=True):
            bias = item_terms[0] if item_terms else torch.zeros(len(self.items))  # plain search has no terms
            corrections[name] = Affine(criterion.scale, bias.float().cpu())
        return corrections

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
        answer_ranks = torch.where(hits.any(1), hits.int().argmax(1) + 1, 0)
        return KnownRanking(correction, positions, counts, metrics, bad, recalls, answer_ranks)

    def _hubs(self, ranking: KnownRanking) -> list[int]:
        """The rows of a ranking's hubs, the largest first."""
        count = int((ranking.counts >= self.hub_level).sum())
        return ranking.counts.argsort(descending=True, stable=True)[:count].tolist()

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
        first, end = torch.searchsorted(self.positives.query, torch.tensor([query, query + 1])).tolist()
        return self.positives.item[first:end].tolist()

    def query_name(self, query: int) -> str:
        """The text of a known query, else its id, else its row."""
        row = int(self.query_rows[query])
        names = self.contents.inputs.query_names.of(row)
        return str(names["label"] or names["id"] or f"query {row}")

    def item(self, row: int) -> dict[str, Any]:
        """An item: id, label, N_k under each ranking, whether it is a hub, and where its page and picture are."""
        name, wrong = self.id_of(row), self.rankings[PLAIN].wrong
        counts = {criterion: int(ranking.counts[row]) for criterion, ranking in self.rankings.items()}
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

        Ranks of an item are None beyond the first `looked` items of a list.
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
        """The known queries whose plain k nearest hold an item, each with its rank and the ranks of the right answer.

        Queries whose answer ranks below the item come first; within both groups, those where the item ranks best.
        """
        plain, after = self.rankings[PLAIN], self.rankings[criterion]
        entries = []
        for query, position in (plain.positions[:, : self.k] == row).nonzero().tolist():
            answers, rank = self.answers(query), position + 1
            entry = {"query": query, "text": self.query_name(query), "page": f"/?query={query}", "rank": rank}
            entry |= {"right": row in answers if answers else None, "answer": None, "displaced": False}
            if answers and plain.answer_ranks is not None and after.answer_ranks is not None:
                plain_rank, corrected_rank = int(plain.answer_ranks[query]), int(after.answer_ranks[query])
                entry["displaced"] = not (0 < plain_rank <= rank)  # rank 0 is beyond the lists
                if row not in answers:
                    best = int(plain.positions[query, plain_rank - 1]) if plain_rank else answers[0]
                    ranks = {"plain_rank": plain_rank or None, "corrected_rank": corrected_rank or None}
                    entry["answer"] = self.item(best) | ranks
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


def positions_with(names: Names, rows: Sequence[int], text: str) -> list[int]:
    """The positions in `rows` of the rows whose id (their number without ids) or label has a text, in any case."""
    ids = rows if names.ids is None else [names.ids[row] for row in rows]
    labels = [names.of(row)["label"] or "" for row in rows]
    texts = [f"{name}\n{label}".casefold() for name, label in zip(ids, labels, strict=True)]
    return [position for position, known in enumerate(texts) if text.strip().casefold() in known]

"""The memory bank: a sample of encoded pairs among which a batch finds its nearest neighbours (AAAI, global weights).

The bank's indexes search exactly by inner product (`ExactIndex`, `FaissIndex`) or by another similarity, which scores
every entry (`ScoredIndex`) or a shortlist (`ShortlistIndex`).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import fail, matrix, one_of, require, whole
from vsehub.neighbors.faiss import GPU_DEPTH, FaissIndex, faiss_searches
from vsehub.neighbors.vectors import products
from vsehub.positives import Positives
from vsehub.sets import Encoding, Sets
from vsehub.types import NeighborStats, Similarity

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
BACKENDS = ("auto", "faiss", "exact")
EXCLUSIONS = ("image", "partner", "batch_captions")
# The authors' 250 neighbours as a share of COCO's bank of 28,322 pairs; at least 10.
K_SHARE, K_LEAST = 250 / 28_322, 10


class ScoredIndex:
    """M encoded entries, all scored for every query.

    entries: (M, D) or M sets. side: whether the entries are "images" or "texts"; the queries are the other side.
    """

    name = "exact"

    def __init__(self, entries: Encoding, similarity: Similarity, side: str):
        self.entries, self.similarity, self.side = entries.detach(), similarity, side

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Encoding, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query, largest similarity first."""
        best = [scores.topk(k, dim=1) for scores in self._blocks(queries)]
        return torch.cat([part.values for part in best]), torch.cat([part.indices for part in best])

    def means(self, queries: Encoding) -> Tensor:
        """The mean similarity (Q,) of each query to all entries."""
        return torch.cat([scores.mean(dim=1) for scores in self._blocks(queries)])

    def _blocks(self, queries: Encoding) -> Iterator[Tensor]:
        """The scores (b, M) of some queries at a time."""
        rows = max(1, BLOCK_ELEMENTS // len(self))
        for first in range(0, len(queries), rows):
            some = queries[first : first + rows]
            if self.side == "texts":
                yield self.similarity(some, self.entries)
            else:
                yield self.similarity(self.entries, some).T


class ExactIndex(ScoredIndex):
    """Inner-product search over (M, D) vectors on the device they are on."""

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        self.entries, self._products, self._dim = vectors, products(vectors), vectors.shape[1]

    def _blocks(self, queries: Any) -> Iterator[Tensor]:
        matrix("queries", queries, columns=self._dim)
        for block in queries.split(max(1, BLOCK_ELEMENTS // len(self))):
            yield self._products(block, None)


class ShortlistIndex:
    """An index of M encoded sets: finds those with the nearest mean vectors, and scores these exactly.

    shortlist: number of entries scored per neighbour. make_index: unit vectors (M, D) -> their index.
    """

    name = "shortlists by mean vectors, scored exactly"

    def __init__(
        self, entries: Sets, similarity: Similarity, side: str, shortlist: int, make_index: Callable[[Tensor], Any]
    ):
        self.entries, self.similarity, self.side, self.shortlist = entries.detach(), similarity, side, shortlist
        self._means = make_index(_mean_directions(entries))

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Sets, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k), largest first: the k best of each query's shortlist."""
        candidates = self._means.search(_mean_directions(queries), min(len(self), k * self.shortlist))[1]
        best = self.similarity.candidate_scores(queries, self.entries, candidates, self.side).topk(k, dim=1)
        return best.values, candidates.gather(1, best.indices)


def _mean_directions(sets: Sets) -> Tensor:
    """The mean of each set's unit vectors, as a unit vector: (N, D)."""
    return F.normalize(Sets(F.normalize(sets.vectors.detach(), dim=1), sets.lengths).means(), dim=1)


class MemoryBank:
    """M encoded pairs and an index over each side.

    k: neighbours per query; None takes 0.88 % of the bank, at least 10. backend: "faiss", "exact", or "auto": FAISS if
    it is installed and searches on the vectors' device, else exact. exclude: "image" excludes entries of the query's
    own image or, with `positives`, all entries that belong to the query; "partner" (eq. 6 as printed) excludes, for an
    image, the entries of the caption that it is paired with and, for a caption, those of its image; "batch_captions"
    (the authors' code) excludes, for every query, entries whose caption is anywhere in the batch. shortlist: number of
    entries scored exactly per neighbour for similarities of sets, those with the nearest mean vectors; None scores the
    whole bank.
    """

    def __init__(
        self,
        k: int | None = None,
        backend: str = "auto",
        exclude: str = "image",
        shortlist: int | None = 4,
    ):
        one_of("bank backend", backend, BACKENDS)
        one_of("bank exclude", exclude, EXCLUSIONS)
        for name, value in (("k", k), ("shortlist", shortlist)):
            if value is not None:
                whole(f"bank {name}", value)
        self.fixed_k, self.backend, self.exclude, self.shortlist = k, backend, exclude, shortlist
        self._images: Any = None  # an index of one side, of the encodings that `fill` takes
        self._texts: Any = None
        self._positives: Positives | None = None
        self.running_backend = ""  # the search in use, for logs; empty before the first fill

    def __len__(self) -> int:
        return 0 if self._images is None else len(self._images)

    def fill(
        self,
        images: Encoding,
        texts: Encoding,
        image_ids: Tensor,
        caption_ids: Tensor,
        similarity: Similarity | None = None,
        positives: Positives | None = None,
    ) -> None:
        """Replace the contents by M pairs.

        images, texts: (M, D) vectors whose inner products are the similarities, or, with a `similarity` that is not an
        inner product, M encodings as it takes them. image_ids, caption_ids: (M,) integers. positives: the texts of each
        image, if a text may belong to several images. Raises InputError if shapes differ or too few entries would be
        left to find k neighbours for every query.
        """
        size = len(images)
        if similarity is None:
            if not isinstance(images, Tensor) or not isinstance(texts, Tensor):
                fail("images and texts are Sets; give the similarity that compares them")
            matrix("images", images)
            matrix("texts", texts, size, images.shape[1])
        for name, ids in (("image_ids", image_ids), ("caption_ids", caption_ids)):
            require(tuple(ids.shape) == (size,), f"{name} has shape {tuple(ids.shape)}; expected ({size},)")
        self.plan(image_ids, caption_ids, positives and positives.to(images.device))
        self._images, self._texts = None, None  # their memory is free before the new ones take theirs
        self._image_ids, self._caption_ids = image_ids.to(images.device), caption_ids.to(images.device)
        self._images = self._index(images.detach(), similarity, "images")
        self._texts = self._index(texts.detach(), similarity, "texts")
        self._image_means = mean_similarities(images, similarity, "images")
        self._text_means = mean_similarities(texts, similarity, "texts")
        self.running_backend = self._images.name

    def plan(self, image_ids: Tensor, caption_ids: Tensor, positives: Positives | None = None) -> None:
        """Set k for a bank of these pairs (M,), (M,). Raises InputError if too few neighbours would be left."""
        size = len(image_ids)
        self._positives = positives
        self.k = self.fixed_k if self.fixed_k is not None else max(K_LEAST, round(K_SHARE * size))
        # A query may lose all entries of its own image: a deeper search leaves at least k.
        if self.exclude == "partner":
            self._most_excluded = max(_most_equal(image_ids), _most_equal(caption_ids))
        elif positives is None:
            self._most_excluded = _most_equal(image_ids)
        else:
            self._most_excluded = most_related(positives, image_ids, caption_ids)
        left = size - self._most_excluded
        require(
            left >= self.k,
            f"a bank of {size} pairs, of which up to {self._most_excluded} are excluded for a query, leaves {left} "
            f"neighbours; k is {self.k}. Give the bank a larger share of the pairs or a smaller k",
        )

    @torch.no_grad()
    def query(
        self,
        images: Encoding,
        texts: Encoding,
        image_ids: Tensor,
        caption_ids: Tensor,
        centrality: bool = False,
        batch_captions: Tensor | None = None,
    ) -> NeighborStats:
        """The k largest similarities of N pairs to the bank, both ways, largest first, without gradient.

        images, texts: N, of the same kind as for `fill`. image_ids, caption_ids: (N,). centrality: also return the mean
        similarities to all entries, including those that belong to the query; a similarity that is not an inner product
        scores the whole bank for it. batch_captions: the captions of the whole batch if these pairs are a part of it;
        None: these are the whole batch. Raises InputError if the bank is empty, dimensions differ or exclusion leaves
        fewer than k entries.
        """
        if self._images is None or self._texts is None:
            fail("the bank is empty; fill it before the first query")
        most_excluded = self._most_excluded
        if self.exclude == "batch_captions":
            in_batch = torch.isin(self._caption_ids, caption_ids if batch_captions is None else batch_captions)
            most_excluded = int(in_batch.sum())
            require(
                len(self) - most_excluded >= self.k,
                f"{most_excluded} of the bank's {len(self)} pairs are in the batch, which leaves fewer than k = "
                f"{self.k}; give the bank a larger share of the pairs or a smaller k",
            )
        depth = min(self.k + most_excluded, len(self))
        text_scores, near_texts = self._texts.search(images.detach().float(), depth)
        image_scores, near_images = self._images.search(texts.detach().float(), depth)
        same_image = self._image_ids[near_images] == image_ids[:, None]
        if self.exclude == "batch_captions":
            excluded_texts, excluded_images = in_batch[near_texts], in_batch[near_images]
        elif self.exclude == "partner":
            excluded_texts, excluded_images = self._caption_ids[near_texts] == caption_ids[:, None], same_image
        elif self._positives is None:
            excluded_texts, excluded_images = self._image_ids[near_texts] == image_ids[:, None], same_image
        else:
            related = self._positives.related
            excluded_texts = related(image_ids[:, None], self._caption_ids[near_texts])
            excluded_images = related(self._image_ids[near_images], caption_ids[:, None])
        stats = NeighborStats(self._largest(text_scores, excluded_texts), self._largest(image_scores, excluded_images))
        if not centrality:
            return stats
        return stats._replace(
            image_centrality=self._text_means(images.detach()), text_centrality=self._image_means(texts.detach())
        )

    def _largest(self, similarities: Tensor, excluded: Tensor) -> Tensor:
        """The first k (N, k) of similarities (N, depth), largest first, without the excluded ones."""
        # A stable sort by the mask moves excluded entries to the end and keeps the order of the others.
        return similarities.gather(1, excluded.byte().argsort(dim=1, stable=True)[:, : self.k])

    def _index(self, entries: Any, similarity: Similarity | None, side: str) -> Any:
        """The index of the entries of one side, of one of the four classes that the module's docstring names."""
        if similarity is None:
            return self._vector_index(entries)
        if similarity.takes == "sets" and self.shortlist is not None:
            make_index = partial(self._vector_index, factor=self.shortlist)
            return ShortlistIndex(entries, similarity, side, self.shortlist, make_index)
        return ScoredIndex(entries, similarity, side)

    def _vector_index(self, vectors: Tensor, factor: int = 1) -> ExactIndex | FaissIndex:
        deepest = (self.k + self._most_excluded) * factor
        too_deep = vectors.is_cuda and deepest > GPU_DEPTH
        by_faiss = self.backend == "faiss" or (self.backend == "auto" and faiss_searches(vectors))
        return FaissIndex(vectors) if by_faiss and not too_deep else ExactIndex(vectors)


def _most_equal(ids: Tensor) -> int:
    """How often the most frequent of the ids (M,) occurs."""
    return int(ids.unique(return_counts=True)[1].max())


def most_related(positives: Positives, images: Tensor, texts: Tensor) -> int:
    """The largest number of the entries (images, texts: (M,)) that belong to one text or to one image.

    positives: the texts of each image.
    """
    of_image = torch.bincount(images.cpu(), minlength=positives.queries)
    of_text = torch.bincount(texts.cpu(), minlength=positives.items)
    image, text = positives.query.cpu(), positives.item.cpu()
    lost_by_images = torch.zeros(positives.queries, dtype=torch.int64).index_add_(0, image, of_text[text])
    lost_by_texts = torch.zeros(positives.items, dtype=torch.int64).index_add_(0, text, of_image[image])
    return int(max(lost_by_images.max(), lost_by_texts.max()))


def mean_similarities(entries: Any, similarity: Similarity | None, side: str) -> Callable[[Any], Tensor]:
    """A function queries -> mean similarity (Q,) to all entries; arguments as those of `ScoredIndex`.

    similarity: None where it is the inner product, whose mean is that with the mean entry.
    """
    if similarity is None:
        mean = entries.detach().float().mean(dim=0)
        return lambda queries: queries.float() @ mean
    return ScoredIndex(entries, similarity, side).means


def bank_input(similarity: Similarity, encoding: Encoding) -> Encoding:
    """The input of a bank's `fill` and `query`: vectors if the similarity is an inner product, else encodings."""
    if similarity.inner_product and isinstance(encoding, Tensor):
        return similarity.vectors(encoding)
    return encoding

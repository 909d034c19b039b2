"""The memory bank: a sample of encoded pairs among which a batch finds its nearest neighbours (AAAI, global weights).

`Relation` says which images and texts belong together in data in which a text may belong to several images.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, matrix, one_of, require
from vsehub.neighbors.exact import ExactIndex, ScoredIndex, ShortlistIndex
from vsehub.neighbors.faiss import FaissIndex, loaded_faiss
from vsehub.sets import Encoding
from vsehub.types import NeighborStats, Similarity

Index = ExactIndex | FaissIndex | ScoredIndex | ShortlistIndex
BACKENDS = ("auto", "faiss", "exact")
EXCLUSIONS = ("image", "batch_captions")
# The authors' 250 neighbours as a share of COCO's bank of 28,322 pairs; at least 10.
K_SHARE, K_LEAST = 250 / 28_322, 10


class Relation:
    """The pairs of images and texts that belong together, any number each way.

    pairs: (P, 2) int64, image and text; a pair given twice counts once. images, texts: how many of each there are.
    Raises InputError if a pair lies outside of them.
    """

    def __init__(self, pairs: Tensor, images: int, texts: int):
        require(
            pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) > 0,
            f"pairs has shape {tuple(pairs.shape)}; expected (P, 2), image and text of each pair, at least one",
        )
        for column, (side, count) in enumerate((("images", images), ("texts", texts))):
            least, most = (int(bound) for bound in pairs[:, column].aminmax())
            require(least >= 0 and most < count, f"pairs name {side} {least} to {most}; expected rows 0 to {count - 1}")
        self.images, self.texts = images, texts
        self._keys = (pairs[:, 0] * texts + pairs[:, 1]).unique()
        self.pairs = torch.stack((self._keys // texts, self._keys % texts), dim=1)

    def related(self, images: Tensor, texts: Tensor) -> Tensor:
        """Mask of the pairs that belong together, for image and text rows of broadcastable shapes."""
        keys = self._on(images.device)
        asked = images * self.texts + texts
        place = torch.searchsorted(keys, asked.contiguous()).clamp(max=len(keys) - 1)
        return keys[place] == asked

    def most_related(self, images: Tensor, texts: Tensor) -> int:
        """The largest number of these entries (images, texts: (M,)) that belong to one text or to one image."""
        image, text = self.pairs.T.cpu()
        of_image = torch.bincount(images.cpu(), minlength=self.images)
        of_text = torch.bincount(texts.cpu(), minlength=self.texts)
        lost_by_images = torch.zeros(self.images, dtype=torch.int64).index_add_(0, image, of_text[text])
        lost_by_texts = torch.zeros(self.texts, dtype=torch.int64).index_add_(0, text, of_image[image])
        return int(max(lost_by_images.max(), lost_by_texts.max()))

    def _on(self, device: torch.device) -> Tensor:
        if self._keys.device != device:
            self._keys = self._keys.to(device)
        return self._keys


class MemoryBank:
    """M encoded pairs and an index over each side.

    k: neighbours per query; None takes 0.88 % of the bank, at least 10. backend: "faiss", "exact", or "auto": FAISS
    on a CPU, if it is installed, else exact. exclude: "image" excludes entries of the
    query's own image or, with a `relation`, all entries that belong to the query; "batch_captions" (the authors' code)
    excludes, for every query, entries whose caption is anywhere in the batch. shortlist: for similarities of sets, how
    many entries are scored exactly per neighbour, those with the nearest mean vectors; None scores the whole bank.
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
            require(value is None or value > 0, f"bank {name} is {value!r}; expected a whole number above 0, or null")
        self.asked_k, self.backend, self.exclude, self.shortlist = k, backend, exclude, shortlist
        self._images: Index | None = None
        self._texts: Index | None = None
        self._relation: Relation | None = None
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
        relation: Relation | None = None,
    ) -> None:
        """Replace the contents by M pairs.

        images, texts: (M, D) vectors whose inner products are the similarities, or, with a `similarity` that is not an
        inner product, M encodings as it takes them. image_ids, caption_ids: (M,) integers. relation: for data in which
        a text may belong to several images. Raises InputError if shapes differ or too few entries would be left to find
        k neighbours for every query.
        """
        size = len(images)
        if similarity is None:
            if not isinstance(images, Tensor) or not isinstance(texts, Tensor):
                fail("images and texts are Sets; give the similarity that compares them")
            matrix("images", images)
            matrix("texts", texts, size, images.shape[1])
        for name, ids in (("image_ids", image_ids), ("caption_ids", caption_ids)):
            require(tuple(ids.shape) == (size,), f"{name} has shape {tuple(ids.shape)}; expected ({size},)")
        self.plan(image_ids, caption_ids, relation)
        self._images, self._texts = None, None  # their memory is free before the new ones take theirs
        self._image_ids, self._caption_ids = image_ids.to(images.device), caption_ids.to(images.device)
        self._images = self._index(images.detach(), similarity, "images")
        self._texts = self._index(texts.detach(), similarity, "texts")
        self._image_means = mean_similarities(images, similarity, "images")
        self._text_means = mean_similarities(texts, similarity, "texts")
        self.running_backend = self._images.name

    def plan(self, image_ids: Tensor, caption_ids: Tensor, relation: Relation | None = None) -> None:
        """Set k for a bank of these pairs (M,), (M,). Raises InputError if too few neighbours would be left."""
        size = len(image_ids)
        self._relation = relation
        self.k = self.asked_k if self.asked_k is not None else max(K_LEAST, round(K_SHARE * size))
        # A query may lose all entries of its own image: a deeper search leaves at least k.
        if relation is None:
            self._most_lost = int(image_ids.unique(return_counts=True)[1].max())
        else:
            self._most_lost = relation.most_related(image_ids, caption_ids)
        left = size - self._most_lost
        require(
            left >= self.k,
            f"a bank of {size} pairs, {self._most_lost} of them of one image, leaves {left} neighbours for a "
            f"query of that image; k is {self.k}. Give the bank a larger share of the pairs or a smaller k",
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
        if self.exclude == "batch_captions":
            gone = torch.isin(self._caption_ids, caption_ids if batch_captions is None else batch_captions)
            deeper = int(gone.sum())
            require(
                len(self) - deeper >= self.k,
                f"{deeper} of the bank's {len(self)} pairs are in the batch, which leaves fewer than k = {self.k}; "
                "give the bank a larger share of the pairs or a smaller k",
            )
            own_texts = own_images = lambda found: gone[found]
        elif self._relation is None:
            deeper = self._most_lost
            own_texts = own_images = lambda found: self._image_ids[found] == image_ids[:, None]
        else:
            deeper, related = self._most_lost, self._relation.related
            own_texts = lambda found: related(image_ids[:, None], self._caption_ids[found])  # noqa: E731
            own_images = lambda found: related(self._image_ids[found], caption_ids[:, None])  # noqa: E731
        depth = min(self.k + deeper, len(self))
        nearest = NeighborStats(
            self._nearest(self._texts, images, depth, own_texts), self._nearest(self._images, texts, depth, own_images)
        )
        if not centrality:
            return nearest
        return nearest._replace(
            image_centrality=self._text_means(images.detach()), text_centrality=self._image_means(texts.detach())
        )

    def shortlist_recall(self, images: Encoding, texts: Encoding) -> float | None:
        """The share of exact neighbours that the shortlists of (at most 64 of) these pairs hold; None for vectors."""
        if not isinstance(self._images, ShortlistIndex) or not isinstance(self._texts, ShortlistIndex):
            return None
        depth = min(self.k + self._most_lost, len(self))
        return (self._texts.recall(images, depth) + self._images.recall(texts, depth)) / 2

    def _nearest(self, index: Index, queries: Encoding, depth: int, excluded: Callable[[Tensor], Tensor]) -> Tensor:
        similarities, found = index.search(queries.detach().float(), depth)
        # Already sorted: a stable sort by the mask moves excluded entries to the end and keeps the order.
        kept = excluded(found).byte().argsort(dim=1, stable=True)[:, : self.k]
        return similarities.gather(1, kept)

    def _index(self, entries: Any, similarity: Similarity | None, side: str) -> Index:
        """The index of the entries of one side."""
        if similarity is None:
            return self._vector_index(entries)
        if similarity.takes == "sets" and self.shortlist is not None:
            return ShortlistIndex(entries, similarity, side, self.shortlist, self._vector_index)
        return ScoredIndex(entries, similarity, side)

    def _vector_index(self, vectors: Tensor) -> ExactIndex | FaissIndex:
        automatic = self.backend == "auto" and vectors.device.type == "cpu" and loaded_faiss()[0] is not None
        return FaissIndex(vectors) if automatic or self.backend == "faiss" else ExactIndex(vectors)


def mean_similarities(entries: Any, similarity: Similarity | None, side: str) -> Callable[[Any], Tensor]:
    """A function queries -> mean similarity (Q,) to all entries; arguments as those of `ScoredIndex`.

    similarity: None where it is the inner product, whose mean is that with the mean entry.
    """
    if similarity is None:
        mean = entries.detach().float().mean(dim=0)
        return lambda queries: queries.float() @ mean
    return ScoredIndex(entries, similarity, side).means


def comparable(similarity: Similarity, encoding: Encoding) -> Encoding:
    """The input of a bank's `fill` and `query`: vectors if the similarity is an inner product, else encodings."""
    if similarity.inner_product and isinstance(encoding, Tensor):
        return similarity.vectors(encoding)
    return encoding

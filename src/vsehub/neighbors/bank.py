"""The memory bank: a sample of encoded pairs that a batch asks for its nearest neighbours (AAAI, global weights)."""

import logging

import torch
from torch import Tensor

from vsehub.checks import matrix, one_of, require
from vsehub.neighbors.exact import ExactIndex
from vsehub.neighbors.faiss_index import FaissIndex, load_faiss, on_gpu
from vsehub.types import NeighborStats

log = logging.getLogger(__name__)

BACKENDS = ("auto", "faiss", "exact")
EXCLUSIONS = ("image", "batch_captions")
# 250 neighbours of COCO's 28,322-pair bank: the same share elsewhere, but at least 10.
K_SHARE, K_LEAST = 0.0088, 10


class MemoryBank:
    """M encoded pairs and an index over each side.

    k: neighbours a query; None takes 0.88 % of the bank, at least 10. backend: "faiss", "exact", or "auto": FAISS
    where it is installed and can search on the vectors' device, exact else. exclude: "image" leaves out entries of the
    query's own image; "batch_captions" (the authors' code) leaves out entries whose caption is anywhere in the batch,
    for every query.
    """

    def __init__(self, k: int | None = None, backend: str = "auto", exclude: str = "image"):
        one_of("bank backend", backend, BACKENDS)
        one_of("bank exclude", exclude, EXCLUSIONS)
        require(
            k is None or k > 0, f"bank k is {k!r}; expected a whole number above 0, or null for a share of the bank"
        )
        self.asked_k, self.backend, self.exclude = k, backend, exclude
        self._images: ExactIndex | FaissIndex | None = None

    def __len__(self) -> int:
        return 0 if self._images is None else len(self._images)

    def fill(self, images: Tensor, texts: Tensor, image_ids: Tensor, caption_ids: Tensor) -> None:
        """Replace the contents by M pairs.

        images, texts: (M, D) vectors whose inner products are the similarities. image_ids, caption_ids: (M,) integers.
        Raises InputError where shapes differ or too few entries would be left to find k neighbours for every query.
        """
        matrix("images", images)
        matrix("texts", texts, *images.shape)
        for name, ids in (("image_ids", image_ids), ("caption_ids", caption_ids)):
            require(ids.shape == images.shape[:1], f"{name} has shape {tuple(ids.shape)}; expected ({len(images)},)")
        self.plan(image_ids)
        index = self._index_type(images.device)
        self._image_ids, self._caption_ids = image_ids.to(images.device), caption_ids.to(images.device)
        self._images, self._texts = index(images.detach()), index(texts.detach())

    def plan(self, image_ids: Tensor) -> None:
        """Settle k for a bank of pairs of these images (M,); InputError where it would leave too few neighbours."""
        size = len(image_ids)
        self.k = self.asked_k if self.asked_k is not None else max(K_LEAST, round(K_SHARE * size))
        # Each query may lose all entries of its image: search that many deeper, and at least k must be left.
        self._most_per_image = int(image_ids.unique(return_counts=True)[1].max())
        left = size - self._most_per_image
        require(
            left >= self.k,
            f"a bank of {size} pairs, {self._most_per_image} of them of one image, leaves {left} neighbours for a "
            f"query of that image; k is {self.k}. Give the bank a larger share of the pairs or a smaller k",
        )

    @torch.no_grad()
    def query(self, images: Tensor, texts: Tensor, image_ids: Tensor, caption_ids: Tensor) -> NeighborStats:
        """The k largest similarities of N pairs to the bank, both ways, largest first, without gradient.

        images, texts: (N, D). image_ids, caption_ids: (N,). Raises InputError where the bank is empty, dimensions
        differ or exclusion leaves fewer than k entries.
        """
        require(self._images is not None, "the bank is empty; fill it before the first query")
        if self.exclude == "image":
            deeper = self._most_per_image
            excluded = lambda found: self._image_ids[found] == image_ids[:, None]  # noqa: E731
        else:
            gone = torch.isin(self._caption_ids, caption_ids)
            deeper = int(gone.sum())
            excluded = lambda found: gone[found]  # noqa: E731
            require(
                len(self) - deeper >= self.k,
                f"{deeper} of the bank's {len(self)} pairs are in the batch, which leaves fewer than k = {self.k}; "
                "give the bank a larger share of the pairs or a smaller k",
            )
        depth = min(self.k + deeper, len(self))
        return NeighborStats(
            self._nearest(self._texts, images, depth, excluded), self._nearest(self._images, texts, depth, excluded)
        )

    def _nearest(self, index: ExactIndex | FaissIndex, queries: Tensor, depth: int, excluded) -> Tensor:
        similarities, found = index.search(queries.detach().float(), depth)
        # Sorted already; a stable sort on the mask moves the excluded behind the rest and keeps the order.
        kept = excluded(found).byte().argsort(dim=1, stable=True)[:, : self.k]
        return similarities.gather(1, kept)

    def _index_type(self, device: torch.device) -> type[ExactIndex] | type[FaissIndex]:
        if self.backend != "auto":
            return FaissIndex if self.backend == "faiss" else ExactIndex
        faiss = load_faiss()
        if faiss is None:
            log.info("FAISS is not installed (extras cpu and gpu): the bank searches exactly in torch on %s", device)
            return ExactIndex
        if device.type == "cuda" and not on_gpu(faiss):
            log.info("this FAISS build has no GPU indexes: the bank searches exactly in torch on %s", device)
            return ExactIndex
        return FaissIndex

    @property
    def running_backend(self) -> str:
        """What searches now, for logs: "faiss on the GPU", "faiss on the CPU" or "exact"."""
        if isinstance(self._images, FaissIndex):
            return f"faiss on the {'GPU' if self._images.gpu else 'CPU'}"
        return "exact"

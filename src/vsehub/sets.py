"""Encodings that are sets of vectors, as cross-attention compares them: the regions of images, the words of texts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require


@dataclass(frozen=True, eq=False)
class Sets:
    """N sets of D-dimensional vectors, kept without padding.

    vectors: (V, D), set after set. lengths: (N,) int64 on the same device, the number of vectors in each set, at least
    1; their sum is V. Can be counted, indexed, moved and concatenated like a tensor of N rows.
    """

    vectors: Tensor
    lengths: Tensor

    @classmethod
    def from_padded(cls, padded: Tensor, lengths: Tensor) -> "Sets":
        """The first lengths[n] rows of padded[n]: (N, L, D), (N,) -> N sets."""
        require(
            padded.ndim == 3 and lengths.shape == padded.shape[:1],
            f"padded has shape {tuple(padded.shape)} and lengths {tuple(lengths.shape)}; expected (N, L, D) and (N,)",
        )
        inside = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
        # Indexed by positions: indexing by a mask would search it a second time in the backward pass.
        return cls(padded[inside.nonzero(as_tuple=True)], lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: slice | Tensor) -> "Sets":
        """The sets of a slice or of row numbers (n,), in that order."""
        ends = self.lengths.cumsum(0)
        index = torch.arange(len(self))[index].to(self.device)
        lengths = self.lengths[index]
        size = int(lengths.sum())  # torch would compute it in each call below and synchronise the GPU each time
        offsets = torch.arange(size, device=self.device)
        offsets = offsets - (lengths.cumsum(0) - lengths).repeat_interleave(lengths, output_size=size)
        starts = (ends - self.lengths)[index].repeat_interleave(lengths, output_size=size)
        return Sets(self.vectors[starts + offsets], lengths)

    def padded(self) -> tuple[Tensor, Tensor]:
        """(N, L, D), each set padded with zeros, and the mask (N, L) of the vectors that are not padding."""
        longest = int(self.lengths.max()) if len(self) else 0
        inside = torch.arange(longest, device=self.device) < self.lengths[:, None]
        zeros = self.vectors.new_zeros(*inside.shape, self.vectors.shape[1])
        return zeros.index_put(inside.nonzero(as_tuple=True), self.vectors), inside  # positions: see `from_padded`

    def means(self) -> Tensor:
        """The mean vector of each set: (N, D)."""
        owner = torch.arange(len(self), device=self.device)
        owner = owner.repeat_interleave(self.lengths, output_size=len(self.vectors))
        sums = self.vectors.new_zeros(len(self), self.vectors.shape[1]).index_add(0, owner, self.vectors)
        return sums / self.lengths[:, None]

    @property
    def device(self) -> torch.device:
        """The device of the vectors."""
        return self.vectors.device

    def to(self, *where: Any) -> "Sets":
        """The sets on another device, like `Tensor.to`."""
        vectors = self.vectors.to(*where)
        return Sets(vectors, self.lengths.to(vectors.device))

    def cpu(self) -> "Sets":
        """The sets in main memory."""
        return Sets(self.vectors.cpu(), self.lengths.cpu())

    def float(self) -> "Sets":
        """In float32."""
        return Sets(self.vectors.float(), self.lengths)

    def detach(self) -> "Sets":
        """Without gradient."""
        return Sets(self.vectors.detach(), self.lengths)


Encoding = Tensor | Sets
# N encodings of any kind, for code that only counts, indexes and moves them.
Rows = Any


def concatenated(parts: Sequence[Encoding]) -> Encoding:
    """The rows of all parts in order. Raises InputError if some parts are tensors and others `Sets`."""
    sets = [part for part in parts if isinstance(part, Sets)]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    require(not (sets and tensors), "parts are tensors and Sets; expected parts of one kind")
    if sets:
        return Sets(torch.cat([part.vectors for part in sets]), torch.cat([part.lengths for part in sets]))
    return torch.cat(tensors)

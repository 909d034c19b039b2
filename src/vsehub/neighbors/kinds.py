"""Kinds of items in one collection, such as pictures and texts, and vectors without the mean of their kind.

Models that embed pictures and texts in one space keep a gap between the two: a query that is a text finds texts first,
whatever they say. Each item without the mean of its kind, each query without the mean of the queries, and both divided
by their norms again, closes the gap (GR-CLIP, Li et al. 2025, arXiv 2507.19054).

>>> import numpy as np
>>> kinds = Kinds.named(["picture", "text", "picture", "text"])
>>> items = np.array([[1.0, 0.1], [0.1, 1.0], [1.0, -0.1], [-0.1, 1.0]])
>>> means = KindMeans.of(kinds, items, np.array([[0.2, 1.0], [0.0, 1.0]]))
>>> means.items(items, kinds).rows(0, 4).tolist()
[[0.0, 1.0], [1.0, 0.0], [0.0, -1.0], [-1.0, 0.0]]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, fail, nearest, regular, require
from vsehub.io.files import atomic
from vsehub.io.versions import require_version
from vsehub.neighbors.vectors import BLOCK, VectorSource, as_vectors

VERSION = 1  # of the file of means
MOST, LONGEST = 20, 100  # kinds, and characters of a name; more are ids or free text
_NOTHING_LEFT = 1e-5  # of a row's norm: what is left without the mean is then rounding, and has no direction


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kind of each of M items. names: (K,), in alphabetical order. of: (M,) numbers of names."""

    names: tuple[str, ...]
    of: Tensor

    @classmethod
    def named(cls, entries: Sequence[str]) -> Self:
        """Those of the items' kinds (M,) as texts.

        Raises InputError for more than `MOST` different ones, and for one that is long or not printable.
        """
        names, numbers = np.unique(np.asarray(entries, dtype=str), return_inverse=True)
        require(
            len(names) <= MOST,
            f"item_kinds: {len(entries):,} items are of {len(names):,} kinds, {str(names[0])!r} for example; expected "
            f"at most {MOST}, such as picture and text",
        )
        wrong = next((str(one) for one in names if not _is_name(str(one))), None)
        if wrong is not None:
            fail(
                f"item_kinds: {wrong[:40]!r} has {len(wrong):,} characters; expected at most {LONGEST}, all of them "
                "printable"
            )
        return cls(tuple(names.tolist()), torch.from_numpy(numbers.astype(np.int64)))

    def __len__(self) -> int:
        return len(self.of)

    @property
    def entries(self) -> list[str]:
        """The kind of each item: M texts."""
        return [self.names[number] for number in self.of.tolist()]

    @property
    def counts(self) -> Tensor:
        """The number of items of each kind: (K,)."""
        return torch.bincount(self.of, minlength=len(self.names))

    def require_one_each(self, items: VectorSource) -> None:
        """Raise InputError unless there is a kind for each item."""
        count, given = len(items), len(self)
        require(given == count, f"item_kinds: {given} kinds of {count} items; expected one for each")

    def require_several(self) -> None:
        """Raise InputError for a kind with a single item."""
        alone = [name for name, count in zip(self.names, self.counts.tolist(), strict=True) if count < 2]
        require(
            not alone,
            f"item_kinds: {', '.join(map(repr, alone))} has a single item, of which nothing is left without the mean "
            "of its kind. Give it another kind, or leave the means in (remove_means=false; in Python no item_kinds)",
        )


@dataclass(frozen=True)
class StoredKinds:
    """What is stored as JSON of the kinds whose means vectors are without.

    names: (K,). unit: whether vectors without their mean were divided by their norms.
    """

    names: tuple[str, ...]
    unit: bool

    @classmethod
    def read(cls, stored: Any) -> Self:
        """Those in an object that was read from JSON. Raises TypeError if it is damaged."""
        if not isinstance(stored, dict) or stored.keys() != {"names", "unit"} or not isinstance(stored["names"], list):
            raise TypeError("kinds")
        names, unit = stored["names"], stored["unit"]
        texts = all(type(one) is str and _is_name(one) for one in names)
        if not (texts and 0 < len(names) == len(set(names)) <= MOST and type(unit) is bool):
            raise TypeError("kinds")
        return cls(tuple(names), unit)


@dataclass(frozen=True, eq=False)
class KindMeans:
    """The means of the vectors of each kind, and of the queries, which are of a kind of their own.

    names: (K,) the kinds. means: (K, D) float32. query_mean: (D,) float32. unit: whether vectors without their mean are
    divided by their norms.
    """

    names: tuple[str, ...]
    means: Tensor
    query_mean: Tensor
    unit: bool = True

    @classmethod
    @torch.no_grad()
    def of(cls, kinds: Kinds, items: Any, queries: Any, unit: bool = True) -> Self:
        """The means of items (M, D) and of queries (Q, D), each read once.

        Raises InputError unless there is a kind for each item and both have one dimension.
        """
        items = as_vectors("items", items)
        queries = as_vectors("queries", queries, columns=items.shape[1])
        kinds.require_one_each(items)
        everything = torch.zeros(len(queries), dtype=torch.int64)
        means = _means(items, kinds.of, len(kinds.names))
        return cls(kinds.names, means, _means(queries, everything, 1)[0], unit)

    @property
    def stored(self) -> StoredKinds:
        """What is stored beside the means."""
        return StoredKinds(self.names, self.unit)

    @property
    def finite(self) -> bool:
        """Whether no mean has an entry that is NaN or infinite, as unusable vectors give."""
        return bool(self.means.isfinite().all() and self.query_mean.isfinite().all())

    def items(self, items: Any, kinds: Kinds) -> VectorSource:
        """Items (n, D), these or others, without the means of their kinds.

        Raises InputError for another number of kinds than items, and for a kind of which there is no mean.
        """
        source = as_vectors("items", items, columns=self.means.shape[1])
        kinds.require_one_each(source)
        unknown = next((one for one in kinds.names if one not in self.names), None)
        if unknown is not None:
            fail(
                f"item_kinds: {unknown!r} is no kind{nearest(unknown, self.names)}; there are means of "
                f"{', '.join(self.names)}"
            )
        number = torch.tensor([self.names.index(one) for one in kinds.names])
        return _LessMeans(source, self.means, number[kinds.of], self.unit)

    def queries(self, queries: Any) -> VectorSource:
        """Queries (n, D), these or others, without the mean of the queries."""
        source = as_vectors("queries", queries, columns=self.means.shape[1])
        return _LessMeans(source, self.query_mean[None], torch.zeros(len(source), dtype=torch.int64), self.unit)

    def gaps(self) -> dict[str, Any]:
        """Distances of the means: "from_queries" of each kind (K,), and "widest", the largest between two kinds."""
        between = torch.cdist(self.means.double(), self.means.double())
        return {
            "from_queries": (self.means.double() - self.query_mean.double()).norm(dim=1).tolist(),
            "widest": float(between.max()),
        }

    def save(self, path: str | Path) -> None:
        """Write a .npz: `version`, `kinds` (K,), `means` (K, D), `queries` (D,) and `unit`."""
        with atomic(path) as handle:
            np.savez(
                handle,
                version=np.array(VERSION),
                kinds=np.array(self.names),
                means=self.means.numpy(),
                queries=self.query_mean.numpy(),
                unit=np.array(self.unit),
            )

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """The means that `save` wrote. Raises InputError for another file, and for one of another version."""
        try:
            with np.load(regular(Path(path)), allow_pickle=False) as stored:
                version = stored["version"].item()
                kinds, means, queries, unit = (stored[name] for name in ("kinds", "means", "queries", "unit"))
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            if isinstance(error, InputError | FileNotFoundError):
                raise
            raise InputError(f"{path} is not the means.npz that rerank wrote: {error}") from error
        require_version(str(path), version, VERSION, "Or run rerank again")
        sound = means.ndim == 2 and means.dtype == queries.dtype == np.float32 and kinds.dtype.kind == "U"
        sound = sound and kinds.shape == means.shape[:1] and queries.shape == means.shape[1:] and unit.shape == ()
        sound = sound and all(map(_is_name, kinds.tolist()))
        require(sound, f"{path} is not the means.npz that rerank wrote: its arrays do not fit each other")
        return cls(tuple(kinds.tolist()), torch.from_numpy(means), torch.from_numpy(queries), bool(unit))


def _is_name(text: str) -> bool:
    """Whether a text can name a kind: it is printed in messages, also where it comes from a file or a database."""
    return len(text) <= LONGEST and text.isprintable()


def _means(vectors: VectorSource, kind: Tensor, kinds: int) -> Tensor:
    """The mean of the rows (N, D) of each kind: (K, D) float32, from float64 sums; `kind`: (N,) numbers of kinds."""
    sums = torch.zeros((kinds, vectors.shape[1]), dtype=torch.float64)
    for start in range(0, len(vectors), BLOCK):
        rows = vectors.rows(start, min(start + BLOCK, len(vectors))).detach().cpu().double()
        sums.index_add_(0, kind[start : start + len(rows)], rows)
    return (sums / torch.bincount(kind, minlength=kinds)[:, None]).float()


class _LessMeans:
    """The rows of another source without a mean, divided by their norms if `unit`.

    means: (K, D). kind: (N,) which of them each row loses. A row that is its mean becomes 0.
    """

    def __init__(self, vectors: VectorSource, means: Tensor, kind: Tensor, unit: bool):
        self._vectors, self._means, self._kind, self._unit = vectors, means, kind, unit
        self.shape = vectors.shape

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1."""
        rows = self._vectors.rows(start, stop)
        left = rows - self._means.to(rows)[self._kind[start:stop].to(rows.device)]
        if not self._unit:
            return left
        norms = left.norm(dim=1, keepdim=True)
        return torch.where(norms > _NOTHING_LEFT * rows.norm(dim=1, keepdim=True), left / norms, 0.0)

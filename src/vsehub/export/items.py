"""Items with their vectors, names and hubness, for programs that show embeddings."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from vsehub.data.vectors.embeddings import VectorFile
from vsehub.metrics.positives import Positives
from vsehub.rerank.compare import Comparison
from vsehub.rerank.names import Names
from vsehub.rerank.verdict import hub_level


@dataclass(frozen=True)
class Hubness:
    """What a ranking does with each of M items.

    counts: N_k (M,). hub: (M,) boolean, whether N_k reaches `hub_level`. displaced: (M,) in how many lists
    the item is wrong and stands above every right answer; None if no answers are known.
    """

    counts: Tensor
    hub: Tensor
    displaced: Tensor | None

    @classmethod
    def of(cls, positions: Tensor, items: int, truth: Positives | None) -> "Hubness":
        """That of lists (Q, k), best first, of M items."""
        counts = positions.flatten().bincount(minlength=items)
        queries, k = positions.shape
        hub = counts >= hub_level(k, queries, items)
        if truth is None:
            return cls(counts, hub, None)
        ahead = truth.hits(positions).cumsum(dim=1) == 0
        ahead &= (truth.counts > 0)[:, None]
        return cls(counts, hub, positions[ahead].bincount(minlength=items))

    def columns(self, ending: str) -> dict[str, Tensor]:
        """The columns of a table, their names with an ending."""
        found = {"n_k": self.counts, "hub": self.hub, "displaced": self.displaced}
        return {f"{name}{ending}": one for name, one in found.items() if one is not None}


@dataclass(frozen=True)
class MeasuredItems:
    """M items and what was measured of them.

    vectors: (M, D). names: ids, labels and images. k: the length of the lists. before, after: the hubness of the plain
    and of the corrected ranking; after is None without a criterion. criterion: its name, or None.
    """

    vectors: VectorFile
    names: Names
    k: int
    before: Hubness
    after: Hubness | None
    criterion: str | None

    @classmethod
    def of(cls, found: Comparison) -> "MeasuredItems":
        """Those of a comparison of the plain ranking with at most one other."""
        inputs, (plain, *corrected) = found.inputs, found.measured.rankings
        measured = [
            Hubness.of(one.positions, len(inputs.sides.items), inputs.sides.positives) for one in (plain, *corrected)
        ]
        name = corrected[0].name if corrected else None
        after = measured[1] if corrected else None
        k = plain.positions.shape[1]
        return cls(inputs.files["items"], inputs.item_names, k, measured[0], after, name)

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def columns(self) -> dict[str, Tensor]:
        """The measured columns, each (M,): n_k, hub and displaced, and the same with `_corrected` at the end."""
        return self.before.columns("") | ({} if self.after is None else self.after.columns("_corrected"))


class ItemsFormat(ABC):
    """A format of items. files: the names of those that it writes."""

    files: tuple[str, ...]

    @abstractmethod
    def write(self, items: MeasuredItems, folder: Path) -> None:
        """Write the files."""

    @abstractmethod
    def opened_by(self, items: MeasuredItems, folder: Path) -> str:
        """The command line that opens the written files."""

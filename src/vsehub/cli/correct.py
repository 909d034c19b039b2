"""`rerank correct=`: the correction of a collection that vsehub did not make, as one more field."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli.embeddings import Settings
from vsehub.cli.index import USAGE, item_ids, measured, require_bias, usage

if TYPE_CHECKING:
    from vsehub.criteria import Criterion, ItemBias
    from vsehub.rerank.compare import Comparison
    from vsehub.rerank.inputs import Inputs
    from vsehub.serving.databases.engines import Place

log = logging.getLogger(__name__)

ALIKE = 0.9  # share of the plain ranking's items that a collection of the same vectors finds, whatever its index


@dataclass(frozen=True)
class RequestedCorrection:
    """A collection of others, `place`, whose items get their bias. id_column, vector_column: of `Foreign`."""

    settings: Settings
    place: "Place"
    id_column: str | None = None
    vector_column: str | None = None

    @classmethod
    def of(cls, cfg: DictConfig, settings: Settings) -> "RequestedCorrection":
        """That of a command's configuration. Raises InputError for settings that do not fit."""
        from vsehub.serving.databases.engines import ENGINES, Place

        require(
            cfg.index in ENGINES and cfg.index_uri is not None,
            f"correct={cfg.correct} is a collection of others; give its engine and address too: index="
            f"{' or '.join(ENGINES)}, and index_uri=",
        )
        own = [name for name in ("index_approximate", "item_columns") if cfg[name] is not None]
        require(
            not own, f"{', '.join(own)}: for collections that vsehub fills, and correct= changes one of others; omit it"
        )
        columns = (None if cfg[name] is None else str(cfg[name]) for name in ("correct_id", "correct_vector"))
        return cls(settings, Place(cfg.index, str(cfg.index_uri), str(cfg.correct), theirs=True), *columns)

    def require(self, name: str, criterion: "Criterion") -> None:
        """Raise InputError for a criterion that is no term of the item, and for a collection that does not fit."""
        require_bias(name, criterion, self.settings)
        from vsehub.serving.databases.foreign import open_foreign

        with open_foreign(self.place, [], 1.0, self.id_column, self.vector_column) as collection:
            collection.require(self._replaces)

    def check_items(self, inputs: "Inputs") -> None:
        """Raise InputError for items that the collection does not hold."""
        from vsehub.serving.databases.foreign import open_foreign

        with open_foreign(self.place, item_ids(inputs), 1.0, self.id_column, self.vector_column) as collection:
            collection.require(replace=True)

    def files(self, items: int) -> list[str]:
        """The files that it adds to those of a reranking."""
        return [USAGE]

    @contextmanager
    def built(self, found: "Comparison") -> Iterator[Callable[[], None]]:
        """Yields what corrects the collection; see `RequestedIndex.built`."""
        yield lambda: self._write(found)

    def _write(self, found: "Comparison") -> None:
        """Write the bias of each item and a note on ranking by it; add both to the record."""
        import torch

        from vsehub.io.files import write_text
        from vsehub.serving.databases.engines import ENGINES
        from vsehub.serving.databases.foreign import FIELD, SHORTLIST, open_foreign, usage_of

        began, inputs, served = time.perf_counter(), found.inputs, found.served
        criterion: ItemBias = served.criterion
        terms = served.ranked.item_terms
        bias = terms[0].cpu() if terms else torch.zeros(len(inputs.sides.items))
        ids, title = item_ids(inputs), ENGINES[self.place.engine].title
        with open_foreign(self.place, ids, criterion.scale, self.id_column, self.vector_column) as collection:
            collection.require(replace=True)
            collection.write(bias.double().tolist())
            told = {"kind": f"{title}, {FIELD}", "uri": self.place.address, "items": len(ids), "bytes": None}
            found.record["index"] = told | measured(collection, found, criterion, bias, self.settings)
            code = usage_of(collection, self.settings.normalize, k=self.settings.k)
        plain = found.record["index"]["recall"]["plain"]
        if plain < ALIKE:
            log.warning(
                "%s finds %.1f %% of the plain ranking's items: are these its vectors, normalised alike?",
                *(self.place.address, 100 * plain),
            )
        rows = (
            f"The field {FIELD} of an item is b; `ids` are ranked by {criterion.scale:g} x score - b. Plain search "
            f"finds {SHORTLIST:,} candidates, and what it ranks lower is not seen. The vectors are as they were"
        )
        needs = f"Searching needs only {title}'s client and numpy"
        write_text(self.settings.output / USAGE, usage(found, self.place.name, needs, code, rows))
        found.record["seconds"]["index"] = time.perf_counter() - began

    @property
    def _replaces(self) -> bool:
        """Whether a field that is there may be replaced: on demand, and if this command was stopped before."""
        return self.settings.overwrite or self.settings.output.begun

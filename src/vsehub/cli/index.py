"""The index that `vsehub rerank` writes: a FAISS file or a collection in a database, with a note on searching it."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import boolean, existing, require
from vsehub.cli.embeddings import Settings
from vsehub.cli.nodes import components, plain

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

    from vsehub.criteria import Criterion, ItemBias
    from vsehub.rerank.compare import Comparison
    from vsehub.rerank.inputs import Inputs
    from vsehub.serving.databases.engines import Place

INDEX, USAGE = "index.faiss", "USAGE.md"
APPROXIMATE_FROM = 100_000  # items of a database


@dataclass(frozen=True)
class RequestedIndex:
    """What `index=` asks for: a kind of FAISS index, or a place in a database.

    approximate: whether a database is to search an approximate index; None: from `APPROXIMATE_FROM` items on. columns:
    a table of further columns for a database, or None.
    """

    settings: Settings
    kind: str
    place: "Place | None" = None
    approximate: bool | None = None
    columns: Path | None = None

    @classmethod
    def of(cls, cfg: DictConfig, settings: Settings) -> "RequestedIndex | None":
        """That of a command's configuration, None for none. Raises InputError for settings that do not fit."""
        from vsehub.serving.databases.engines import ENGINES, placed
        from vsehub.serving.index import KINDS

        kind, uri = cfg.index, None if cfg.index_uri is None else str(cfg.index_uri)
        boolean("index_approximate", cfg.index_approximate, or_none=True)
        require(
            kind is None or kind in (*KINDS, *ENGINES),
            f"index is {kind!r}; choose one of {', '.join((*KINDS, *ENGINES))}, or null for none",
        )
        if kind in ENGINES:
            columns = None if cfg.item_columns is None else Path(str(cfg.item_columns))
            if columns is not None:
                existing("item_columns", columns, "Give a table with the column id and those to store")
            place = placed(kind, uri, str(cfg.index_name), settings.output.folder)
            return cls(settings, kind, place, cfg.index_approximate, columns)
        own = [name for name in ("index_uri", "index_approximate", "item_columns") if cfg[name] is not None]
        verb = "is" if len(own) == 1 else "are"
        require(
            not own, f"{', '.join(own)} {verb} for databases ({', '.join(ENGINES)}), and index is {kind}; omit them"
        )
        return None if kind is None else cls(settings, kind)

    @property
    def files(self) -> list[str]:
        """The files that it adds to those of a reranking."""
        return [USAGE] if self.place is not None else [INDEX, USAGE]

    def require(self, name: str, criterion: "Criterion") -> None:
        """Raise InputError for a criterion that an index cannot hold, and if FAISS or the database cannot be used."""
        require_bias(name, criterion, self.settings)
        from vsehub.neighbors.faiss import required_faiss

        if self.place is None:
            required_faiss(f"index={self.kind}", "omit index")
        else:
            from vsehub.serving.databases.collection import require_free

            require_free(self.place, self.settings.overwrite)

    def check_items(self, inputs: "Inputs") -> None:
        """Raise InputError for files of others in the way, and for further columns that do not fit the items."""
        self.settings.output.refuse_foreign(self.files)
        if self.place is not None:
            self._fields(inputs)

    def _fields(self, inputs: "Inputs") -> "pa.Table | None":
        """Further columns of the items for a database."""
        from vsehub.serving.databases.columns import read_columns

        return None if self.columns is None else read_columns(self.columns, item_ids(inputs))

    @contextmanager
    def built(self, found: "Comparison") -> Iterator[Callable[[], None]]:
        """The index, built beside any earlier one and measured; yields what puts it into place.

        That also writes a note on searching it, and adds to the record.
        """
        import torch

        from vsehub.io.files import write_text

        began, served = time.perf_counter(), found.served
        terms = served.ranked.item_terms
        count = len(found.inputs.sides.items)
        bias = terms[0] if terms else torch.zeros(count)
        build = self._built_faiss if self.place is None else self._built_collection
        with build(found, served.criterion, bias) as place:
            building = time.perf_counter() - began

            def put() -> None:
                placing = time.perf_counter()
                found.record["index"], note = place()
                write_text(self.settings.output / USAGE, note)
                found.record["seconds"]["index"] = building + time.perf_counter() - placing

            yield put

    def _approximate(self, items: int) -> bool:
        """Whether the index misses some of the best of so many items."""
        if self.place is None:
            return self.kind != "flat"
        return items >= APPROXIMATE_FROM if self.approximate is None else self.approximate

    @contextmanager
    def _built_faiss(
        self, found: "Comparison", criterion: "ItemBias", bias: "Tensor"
    ) -> Iterator[Callable[[], tuple[dict[str, Any], str]]]:
        """A FAISS index; yields what writes it and gives its part of the record and the note on searching it."""
        from vsehub.serving import build_index, usage_note

        items, path = found.inputs.sides.items, self.settings.output / INDEX
        index = build_index(items, bias, criterion.scale, self.kind, self.settings.seed)
        code = usage_note(index, str(path.absolute()), self.settings.k, self.settings.normalize)
        figures = measured(index, found, criterion, bias, self.settings)
        rows = f"`positions` are rows of {found.record['items']['path']}, counted from 0"
        rows += ", in the order of the ids" if found.inputs.item_names.ids is not None else ""
        note = usage(found, INDEX, "Searching needs only FAISS and numpy", code, rows)

        def put() -> tuple[dict[str, Any], str]:
            index.save(path)
            return {"kind": self.kind, "files": [INDEX], "bytes": path.stat().st_size} | figures, note

        yield put

    @contextmanager
    def _built_collection(
        self, found: "Comparison", criterion: "ItemBias", bias: "Tensor"
    ) -> Iterator[Callable[[], tuple[dict[str, Any], str]]]:
        """A filled collection; yields what gives it its name, its part of the record and the note on searching it."""
        from vsehub.serving.databases.collection import fill, item_table, usage_note
        from vsehub.serving.databases.engines import ENGINES

        place, names, sides = self.place, found.inputs.item_names, found.inputs.sides
        assert place is not None
        approximate = self._approximate(len(sides.items))
        columns = item_table(item_ids(found.inputs), names.labels, self._fields(found.inputs))
        applied = found.record["calibration"]
        title = ENGINES[place.engine].title
        with fill(
            place,
            sides.items,
            bias,
            columns,
            sides.queries if sides.reference is None else sides.reference,
            criterion=found.served.record["criterion"],
            rule=criterion,
            reference_name=found.record["reference"]["set"],
            approximate=approximate,
            normalize=self.settings.normalize,
            thresholds=None if applied is None else applied["thresholds"],
            seed=self.settings.seed,
            overwrite=self.settings.overwrite,
        ) as collection:
            told = {
                "kind": f"{title}, {'approximate' if approximate else 'exact'}",
                "uri": place.address,
                "items": len(sides.items),
                "bytes": place.bytes,
            }
            rows = f"`ids` are rows of {found.record['items']['path']}, counted from 0"
            rows = rows if names.ids is None else "`ids` are the ids of the items"
            needs = f"Searching needs only {title}'s client and numpy (pip install 'vsehub[{place.engine}]')"
            code = usage_note(collection, columns, self.settings.k)
            rows += ". Items that `vsehub add` adds are found by the same lines, those that it removes no longer.\n"
            rows += (
                "To replace the collection while it is searched, fill another `index_name` and switch your alias to it"
            )
            note = usage(found, place.name, needs, code, rows, living=True)
            figures = measured(collection, found, criterion, bias, self.settings)

            def put() -> tuple[dict[str, Any], str]:
                collection.complete()
                return told | figures, note

            yield put


def require_bias(name: str, criterion: "Criterion", settings: Settings) -> None:
    """Raise InputError for what no index can hold: scores, and a criterion that is more than a term of the item."""
    from vsehub.criteria import ItemBias

    require(
        not settings.scored,
        "index: an index holds vectors, and only scores are given; omit index, or give queries and items",
    )
    require(
        isinstance(criterion, ItemBias),
        f"index: {name} does not rank by the score minus a term of the item, which is all that an index can hold; "
        f"choose one of {', '.join(indexed_criteria())}, or omit index",
    )


def measured(
    index: Any, found: "Comparison", criterion: "ItemBias", bias: "Tensor", settings: Settings
) -> dict[str, Any]:
    """Recall of an index against exact search, and its time for a query, of both rankings."""
    from vsehub.serving import measured_recall, measured_time

    queries, k = found.inputs.sides.queries, settings.k
    recall = measured_recall(index, queries, found.inputs.sides.items, bias, criterion.scale, k, seed=settings.seed)
    return {"recall": {"k": k} | recall, "milliseconds": measured_time(index, queries, k, seed=settings.seed)}


def item_ids(inputs: "Inputs") -> "Sequence[str]":
    """The ids of the items; their row numbers where there are none."""
    names = inputs.item_names.ids
    return [str(row) for row in range(len(inputs.sides.items))] if names is None else names


def indexed_criteria() -> list[str]:
    """The criteria that an index can hold."""
    from vsehub.criteria import ItemBias

    known = components()
    nodes = {name: plain(OmegaConf.load(known.path("criterion", name))) for name in known.choices("criterion")}
    made = {name: known.find("criterion", node) for name, node in nodes.items()}
    return [name for name, one in made.items() if isinstance(one, type) and issubclass(one, ItemBias)]


def usage(found: "Comparison", name: str, needs: str, code: str, rows: str, living: bool = False) -> str:
    """A note on searching the index `name` without vsehub. needs: with what. rows: what the results are.

    living: whether items may come and go, of which the note must not speak as if they did not.
    """
    record, ranking = found.record, found.served.record
    items = record["items"]
    code += accepted_line(record["calibration"], living)
    reference = "" if ranking["reference"] == "none" else f", its reference {record['reference']['set']}"
    if record["reference_items"] is not None:
        reference += f", its reference items {record['reference_items']['set']}"
    return (
        f"# Searching {name}\n\n"
        f"{'Filled with the' if living else 'The'} {items['rows']:,} vectors of {items['path']}, ranked by "
        f"{ranking['criterion']}{reference}. "
        f"{needs}:\n\n"
        f"```python\n{code}```\n\n"
        f"{rows}.\n"
    )


def accepted_line(calibration: dict[str, Any] | None, living: bool = False) -> str:
    """The line of a note that applies the threshold of the rate `accept`; "" where there is none.

    living: whether items may come and go, which makes it void.
    """
    if calibration is None or calibration["accept"] is None:
        return ""
    lines = "# void once items have come or gone: vsehub calibrate index=... gives another\n" if living else ""
    return lines + (
        f"accepted = scores[:, 0] > {calibration['threshold']!r}  # False: nothing here; at most "
        f"{calibration['accept']:.3g} of the queries without an answer are accepted\n"
    )

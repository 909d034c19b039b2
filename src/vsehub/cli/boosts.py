"""The boosts that `rerank` and `add` take: numbers of items in a table, and their weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import existing, fail, positive, require
from vsehub.cli.nodes import plain

if TYPE_CHECKING:
    import numpy as np

    from vsehub.criteria import Criterion
    from vsehub.criteria.boosts import Boosted, BoostTable
    from vsehub.rerank.inputs import Inputs
    from vsehub.serving.databases.living import Living

SETTING, EXPECTED = "boosts.table", "Give a table with a column of numbers for each boost"


@dataclass(frozen=True)
class RequestedBoosts:
    """What `boosts` and `boost_weights` ask for.

    path: the table. names: its columns. weights: boost -> weight. reach: up to how far boosts may move similarities in
    an approximate index (`serving.boosted_recall`); None for a command that writes none.
    """

    path: Path
    names: Sequence[str]
    weights: Mapping[str, float]
    reach: float | None = None

    @classmethod
    def of(cls, cfg: DictConfig) -> "RequestedBoosts | None":
        """Those of a command's configuration, None for none. Raises InputError for settings that do not fit."""
        table, columns, weights = cfg.boosts.table, plain(cfg.boosts.columns), plain(cfg.get("boost_weights"))
        reach = cfg.boosts.get("reach")
        if "reach" in cfg.boosts:
            positive("boosts.reach", reach)
        if table is None:
            require(
                not columns, f"boosts.columns is {columns} without boosts.table; give boosts.table=FILE, or omit it"
            )
            require(weights is None, "boost_weights is given without boosts.table; give boosts.table=FILE, or omit it")
            return None
        existing(SETTING, Path(str(table)), EXPECTED)
        listed = isinstance(columns, list) and all(isinstance(one, str) for one in columns)
        require(listed and len(columns) > 0, f"boosts.columns is {columns}; name columns, as in [popularity,freshness]")
        require(
            weights is None or isinstance(weights, dict),
            f"boost_weights is {weights!r}; expected a weight for each boost, as in {{popularity: 0.1}}",
        )
        return cls(Path(str(table)), columns, weights or {}, reach)

    def read(self, inputs: "Inputs") -> "BoostTable":
        """The boosts of the items. Raises InputError for a table that does not fit them, and for unknown weights."""
        from vsehub.criteria.boosts import BoostTable
        from vsehub.data.item_rows import read_numbers

        rows = len(inputs.sides.items)
        values = read_numbers(SETTING, self.path, self.names, rows, inputs.item_names.ids)
        table = BoostTable.of(self.names, values, rows)
        table.boosts.weights(self.weights)
        return table

    def boosted(self, name: str, criterion: "Criterion", table: "BoostTable") -> "Boosted | None":
        """The criterion with the weights' boosts; None where every weight is 0.

        Raises InputError for a criterion that does not subtract one number from an item's scores.
        """
        from vsehub.cli.index import indexed_criteria
        from vsehub.criteria import ItemBias
        from vsehub.criteria.boosts import Boosted

        raised = table.raised(self.weights)
        if raised is None:
            return None
        if not isinstance(criterion, ItemBias):
            fail(
                f"boost_weights: {name} does not subtract one number from an item's scores, which a boost adds to; "
                f"choose one of {', '.join(indexed_criteria())}, or omit boost_weights"
            )
        return Boosted(criterion, raised, self.weights)


def of_new_items(cfg: DictConfig, collection: "Living", ids: Sequence[str]) -> "np.ndarray | None":
    """The boosts (n, B) of new items of a collection, in its order of them; None where none are given.

    Where a command takes no boosts, since it only looks at items, they are those of a usual item, which none raises.
    """
    import numpy as np

    from vsehub.data.item_rows import read_numbers

    if "boosts" not in cfg:
        return np.tile(collection.facts.boosts.means, (len(ids), 1)) if len(collection.facts.boosts) else None
    requested = RequestedBoosts.of(cfg)
    if requested is None:
        return None
    _require_columns(requested, collection)
    return read_numbers(SETTING, requested.path, collection.facts.boosts.names, len(ids), ids)


def renewed(collection: "Living", requested: RequestedBoosts) -> str:
    """Replace the boosts of the items that the table names. Returns what was done, in words."""
    from vsehub.data.item_rows import read_named_numbers

    _require_columns(requested, collection)
    ids, values = read_named_numbers(SETTING, requested.path, collection.facts.boosts.names)
    return f"renewed the boosts of {collection.put_boosts(ids, values)} of {len(ids)} ids"


def _require_columns(requested: RequestedBoosts, collection: "Living") -> None:
    held = collection.facts.boosts.names
    require(len(held) > 0, f"{collection.place.address} has no boosts; fill it anew with boosts.table, or omit boosts")
    require(
        sorted(requested.names) == sorted(held),
        f"boosts.columns names {', '.join(requested.names)}; {collection.place.address} has {', '.join(held)}. Name "
        "these",
    )


def boosts_record(requested: RequestedBoosts, table: "BoostTable", weights: Mapping[str, float]) -> dict[str, Any]:
    """What a record says of the boosts. weights: those of the ranking."""
    facts = table.boosts
    named = zip(facts.names, facts.means, facts.scales, strict=True)
    return {
        "table": str(requested.path),
        "columns": [{"name": name, "mean": mean, "scale": scale} for name, mean, scale in named],
        "weights": dict(weights),
    }

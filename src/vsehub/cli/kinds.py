"""The kinds of items that commands take: a column of the items' own table, or of another."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from omegaconf import DictConfig

from vsehub.checks import boolean, existing, require
from vsehub.data.vectors.paths import split_path

if TYPE_CHECKING:
    from vsehub.rerank.inputs import Inputs

SETTING, MEANS = "item_kinds", "means.npz"
TABLES = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class RequestedKinds:
    """What `item_kinds` and `remove_means` ask for.

    given: `item_kinds` as it was given. path, column: of the table that has a kind for each item. own: whether that is
    the items' file, in whose order they are. remove_means: whether each vector is to lose the mean of its kind.
    """

    given: str
    path: Path
    column: str
    own: bool
    remove_means: bool

    @classmethod
    def of(cls, cfg: DictConfig) -> "Self | None":
        """Those of a command's configuration, None for none. Raises InputError for settings that do not fit."""
        given, remove_means = cfg.get("item_kinds"), cfg.get("remove_means", False)
        boolean("remove_means", remove_means)
        if given is None:
            return None
        require(
            cfg.get("scores") is None,
            "item_kinds: the kinds are compared by their vectors, and only scores are given; give queries and items, "
            "or omit item_kinds",
        )
        file, column = split_path(str(given))
        own = column is None
        if column is None:
            file, column = "" if cfg["items"] is None else split_path(str(cfg["items"]))[0], str(given)
            require(
                Path(file).suffix.lower() in TABLES and Path(file).is_file(),
                f"item_kinds is {column!r}, a column of the items' table, and items is {file or 'not given'}, no "
                f"{', '.join(TABLES)} file of this machine; give item_kinds=TABLE::COLUMN",
            )
        existing(SETTING, file, "Give TABLE::COLUMN, a table with the column id and one of the items' kinds")
        return cls(str(given), Path(file), column, own, remove_means)

    def require_fits(self, cfg: DictConfig) -> None:
        """Raise InputError for what `rerank` cannot do beside kinds."""
        require(cfg.engine == "local", "item_kinds: engine=ray knows no kinds of items; omit it, or item_kinds")
        if not self.remove_means:
            return
        refused = {
            "reference_items": (cfg.reference_items is not None, "they have no kinds, whose means they would lose"),
            "calibration": (cfg.calibration is not None, "it is of scores of vectors with their means"),
        }
        for name, (is_given, why) in refused.items():
            require(not is_given, f"item_kinds and {name} are given: {why}. Omit it, or set remove_means=false")

    def applied(self, inputs: "Inputs") -> "Inputs":
        """The inputs with the kinds of their items. Raises InputError for a table that does not fit them."""
        from vsehub.neighbors.kinds import Kinds

        entries = self.entries(len(inputs.sides.items), inputs.item_names.ids)
        return inputs.with_kinds(Kinds.named(entries), self.remove_means)

    def entries(self, items: int, ids: Sequence[str] | None) -> list[str]:
        """The kind of each item, as texts. Raises InputError for a table that does not fit the items.

        ids: of the items, or None.
        """
        from vsehub.data.item_rows import read_texts

        return read_texts(SETTING, self.path, self.column, items, None if self.own else ids)

    def next_settings(self, record: dict[str, Any]) -> dict[str, str]:
        """The settings of a reranking after a diagnosis: means are removed only where a kind is found first."""
        from vsehub.report.kinds import kinds_found_first

        own = {SETTING: self.given}
        return own if kinds_found_first(record) else own | {"remove_means": "false"}

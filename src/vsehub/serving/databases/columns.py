"""Further columns of items, such as prices, from a table: stored beside the vectors, for filters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsehub.checks import InputError, require
from vsehub.data.item_rows import ID, rows_of
from vsehub.data.tables import TableFile
from vsehub.io.spreadsheet import unescaped

if TYPE_CHECKING:
    import pyarrow as pa

_EXPECTED = "a table with the column id and a further column for each thing to store"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,49}")
_RESERVED = frozenset(["key", "label", "vector"])  # names that vsehub itself stores
_WORDS = {"string": "texts", "int64": "whole numbers", "double": "numbers", "bool": "true and false"}
_TRUTH = {"true": True, "false": False}


def read_columns(path: str | Path, ids: Sequence[str]) -> "pa.Table":
    """The columns of a .csv, .tsv, .jsonl or .parquet table other than `id`, a row for each of the items' ids (n,).

    Columns hold texts, whole numbers, numbers, or true and false; those of a .csv or .tsv what all their entries can be
    read as. An empty entry is stored as none. Rows of other ids are ignored. Raises InputError if an item has no
    row or several, for names that not every database takes and for entries of other kinds.
    """
    import pyarrow as pa

    table = TableFile(Path(path), _EXPECTED)
    table.require_columns([ID], "The column id holds the items' ids")
    names = [name for name in table.names() if name != ID]
    require(bool(names), f"item_columns: {path} has the column id alone; expected {_EXPECTED}")
    for name in names:
        require(
            _NAME.fullmatch(name) is not None and name not in _RESERVED and names.count(name) == 1,
            f"item_columns: {path} has a column {name!r}; expected at most 50 letters, digits and underscores, a "
            f"letter first, each name once, and none of {', '.join(sorted(_RESERVED))}",
        )
    found = table.entries([ID, *names])
    typed = table.kind in (".jsonl", ".parquet")
    wanted = rows_of("item_columns", table, found[ID], ids)
    columns = [[found[name][row] for row in wanted] for name in names]
    made = [_column(name, column, typed, path) for name, column in zip(names, columns, strict=True)]
    for name, column in zip(names, made, strict=True):
        finite = not pa.types.is_floating(column.type) or bool(np.isfinite(column.drop_null().to_numpy()).all())
        require(finite, f"item_columns: {path}: {name} holds NaN or infinite numbers; leave such entries empty")
    return pa.table(made, names)


def require_kind(name: str, given: str, held: str) -> None:
    """Raise InputError unless entries of a kind, of Arrow's type names, can join a stored column of another."""
    require(
        given == held or (given, held) == ("int64", "double"),
        f"item_columns: {name} holds {_WORDS.get(given, given)}, and the column that is stored "
        f"{_WORDS.get(held, held)}; give such, or choose another name",
    )


def _column(name: str, entries: list[Any], typed: bool, path: str | Path) -> "pa.Array":
    """An Arrow column of text, int64, double or bool."""
    import pyarrow as pa

    if not typed:
        return pa.array(_read_as_one_kind([unescaped(one) for one in entries]))
    kinds = {type(one) for one in entries if one is not None}
    kind = float if kinds == {int, float} else next(iter(kinds), str)
    require(
        len(kinds) <= 1 or kind is float,
        f"item_columns: {path}: {name} holds {' and '.join(sorted(one.__name__ for one in kinds))}; expected one kind",
    )
    if kind not in (str, int, float, bool):
        raise InputError(
            f"item_columns: {path}: {name} holds {kind.__name__}; expected texts, numbers, or true and false"
        )
    arrow = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}[kind]
    try:
        return pa.array([None if one is None else kind(one) for one in entries], arrow)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
        raise InputError(f"item_columns: {path}: {name}: {error}") from error


def _read_as_one_kind(entries: list[str]) -> "pa.Array":
    """Entries of a text file as the first kind that all of them can be read as; empty ones as none."""
    import pyarrow as pa

    filled = [one if one else None for one in entries]
    if any(filled) and all(one is None or one.lower() in _TRUTH for one in filled):
        return pa.array([None if one is None else _TRUTH[one.lower()] for one in filled], pa.bool_())
    texts = pa.array(filled, pa.string())
    for kind in (pa.int64(), pa.float64()) if any(filled) else ():
        try:
            return texts.cast(kind)
        except pa.ArrowException:
            continue
    return texts

"""Vectors of the pictures of a folder, or of texts, without splits and pairs: tables of ids and vectors."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from torch import Tensor

from vsehub.checks import existing, regular_members, require
from vsehub.data.sources import content_digest
from vsehub.data.tables import KINDS, entry_texts, read_table
from vsehub.data.truth import distinct_ids
from vsehub.data.vectors.paths import split_path
from vsehub.encoders.pretrained.networks import refused
from vsehub.extraction.layouts import Chunks
from vsehub.extras import package
from vsehub.io.files import atomic
from vsehub.io.text import read_lines


class Side(NamedTuple):
    """Pictures (n, 3, H, W) or n texts, and their ids."""

    rows: Any
    ids: Sequence[str]

    def fingerprint(self) -> str:
        """A hash of the rows."""
        return content_digest(self.rows)


def read_texts(path: str) -> Side:
    """The lines of a text file, or a column of a table, `TABLE` or `TABLE::COLUMN`.

    Ids are the column id of the table, else row numbers. Raises InputError for an id that is repeated, a row
    without a text, and a table with several columns besides id if none is named.
    """
    place, column = split_path(path)
    file = existing("texts", place, "Give a text file with one text per line, or TABLE::COLUMN")
    if file.suffix.lower() in KINDS:
        columns = read_table(file, lambda names: [name for name in names if name == "id" or column in (None, name)])
        ids = columns.pop("id", None)
        require(len(columns) == 1, f"texts: {file} has the columns {[*columns]}; name one, as in texts={file}::COLUMN")
        texts = entry_texts(file, *columns.values())
    else:
        texts, ids = read_lines(file, "text"), None
    names = [*map(str, range(len(texts)))] if ids is None else entry_texts(file, ids)
    distinct_ids(str(file), names)
    require(all(map(str.strip, texts)), f"texts: {file} has rows without a text")
    return Side(texts, names)


def sentence_model(name: str, device: str) -> Any:
    """A model of sentence-transformers from a folder or the cache. Raises InputError if it cannot be read."""
    library = package("text_model", "sentence-transformers", "sentence_transformers")
    regular_members(Path(name))
    with refused(f"text_model: {name!r} cannot be read. Give a folder, or get the model once with: hf download {name}"):
        return library.SentenceTransformer(name, device=device, local_files_only=True, trust_remote_code=False)


def sentence_encoder(model: Any, prompt: str, size: int) -> Callable[[Sequence[str]], Tensor]:
    """A function of texts -> unit vectors (b, D). prompt: a template with {} for a text. size: texts at a time."""
    return lambda texts: model.encode(
        [prompt.replace("{}", text) for text in texts],
        batch_size=size,
        convert_to_tensor=True,
        normalize_embeddings=True,
        show_progress_bar=False,
    )


def write_tables(folder: Path, sides: Mapping[str, Side], chunks: Chunks) -> None:
    """Write the vectors of "images" and of "texts" as SIDE.parquet with the columns id, text and vector."""
    for side, (rows, ids) in sides.items():
        columns: dict[str, Any] = {"id": ids} | ({"text": rows} if isinstance(rows, list) else {})
        columns["vector"] = [vector for chunk in chunks[side] for vector in np.load(chunk)]
        with atomic(folder / f"{side}.parquet") as file:
            parquet.write_table(pa.table(columns), file)

"""Joint vectors of a data set's pictures and captions, in clip-retrieval's layout.

    OUT/images/img_emb/img_emb_0.npy    unit vectors of the pictures of all splits, each picture once
    OUT/images/metadata/metadata_0.parquet    image_path: their ids
    OUT/texts/text_emb/text_emb_0.npy, OUT/texts/metadata/metadata_0.parquet    the captions: key, image_path, caption
    OUT/train.csv    the pairs of a split, by these ids: query, item
    OUT/train/images, OUT/train/texts    the shards of a split alone, as links to the same files

`rerank` and `diagnose` read queries=OUT/test/texts::text_emb items=OUT/test/images::img_emb truth=OUT/test.csv, and
data=pairs reads data.images=OUT/images::img_emb data.texts=OUT/texts::text_emb data.splits.train=OUT/train.csv.
"""

import io
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.data.sources import CaptionedImages
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Words
from vsehub.extraction.chunks import Chunk, ChunkFiles, chunks_of
from vsehub.extraction.folder import Hashed, write_features
from vsehub.io.files import atomic
from vsehub.io.spreadsheet import csv_text
from vsehub.types import Encoder

SIDES = {"images": "img_emb", "texts": "text_emb"}
SHARD_ROWS = 1 << 17  # of a file of vectors, at most


class TokenRows:
    """T captions as an array (T, L + 1) of int64: the tokens, 0 behind them, and in the last column their number."""

    dtype = np.dtype(np.int64)
    ndim = 2

    def __init__(self, words: Words, captions: Sequence[str]):
        self._table = TokenTable.build(words, captions)
        self._longest = int(self._table.lengths.max(initial=1))

    def __len__(self) -> int:
        return len(self._table)

    @property
    def shape(self) -> tuple[int, int]:
        """(T, L + 1)."""
        return len(self), self._longest + 1

    def __getitem__(self, index: Any) -> np.ndarray:
        """The rows of a slice or of row numbers."""
        texts, lengths = self._table.batch(np.arange(len(self))[index])
        found = np.zeros((len(lengths), self._longest + 1), np.int64)
        found[:, : texts.shape[1]], found[:, -1] = texts, lengths
        return found


def vectors(images: Encoder, texts: Encoder, rows: Tensor) -> Tensor:
    """Unit vectors (N, D) of pictures (N, 3, H, W), or of rows (N, L + 1) of `TokenRows`."""
    if rows.ndim == 2:
        lengths = rows[:, -1]
        found = texts(rows[:, : int(lengths.max())], lengths)
    else:
        found = images(rows)
    return F.normalize(found.float(), dim=-1)


def sides_of(splits: Mapping[str, CaptionedImages], words: Words, prompt: str) -> dict[str, CaptionedImages]:
    """The rows that are encoded: the pictures of each split, and its captions in the prompt, by "SPLIT-SIDE"."""
    found = {}
    for split, loaded in splits.items():
        assert isinstance(loaded.captions, list)  # strings, as checked by the command
        captions = [prompt.replace("{}", one) for one in loaded.captions]
        found[f"{split}-images"] = loaded
        nothing = np.empty(0, np.int64)
        found[f"{split}-texts"] = CaptionedImages(
            TokenRows(words, captions), [], nothing, text_ids(split, len(captions))
        )
    return found


def text_ids(split: str, count: int) -> list[str]:
    """The ids of a split's captions."""
    return [f"{split}-{number}" for number in range(count)]


def image_ids(splits: Mapping[str, CaptionedImages]) -> dict[str, list[str]]:
    """The ids of the pictures of each split: their names, or, if some are alike or missing, with the split's before."""
    names = {split: [loaded.name_of(row) for row in range(len(loaded.images))] for split, loaded in splits.items()}
    every = [name for own in names.values() for name in own]
    if len(set(every)) == len(every):
        return names
    return {
        split: own
        if len(set(own := [f"{split}/{name}" for name in found])) == len(own)
        else [f"{split}/{row}/{name}" for row, name in enumerate(found)]
        for split, found in names.items()
    }


class VectorShard:
    """One file of vectors: its chunks, its number, and where it and its metadata lie in the folder."""

    def __init__(self, split: str, side: str, number: int, chunks: Sequence[Chunk]):
        self.split, self.side, self.number, self.chunks = split, side, number, tuple(chunks)

    @property
    def rows(self) -> slice:
        """The rows of the split's pictures or captions."""
        return slice(self.chunks[0].start, self.chunks[-1].stop)

    @property
    def places(self) -> list[str]:
        """The names of the vectors and of the metadata, below the folder of a side."""
        emb = SIDES[self.side]
        return [f"{self.side}/{emb}/{emb}_{self.number}.npy", f"{self.side}/metadata/metadata_{self.number}.parquet"]


def shards_of(sizes: Mapping[str, Mapping[str, int]], chunk: int) -> list[VectorShard]:
    """The files of vectors of all splits. sizes: split -> side -> rows. chunk: rows of a part of unfinished work."""
    most = max(1, SHARD_ROWS // chunk)
    found = []
    for side in SIDES:
        number = 0
        for split, counts in sizes.items():
            chunks = chunks_of({f"{split}-{side}": counts[side]}, chunk)
            for first in range(0, len(chunks), most):
                found.append(VectorShard(split, side, number, chunks[first : first + most]))
                number += 1
    return found


def file_names(shards: Sequence[VectorShard]) -> list[str]:
    """The names of all files of the layout."""
    own = [name for shard in shards for name in shard.places]
    links = [f"{shard.split}/{name}" for shard in shards for name in shard.places]
    return [*own, *links, *(f"{split}.csv" for split in dict.fromkeys(shard.split for shard in shards))]


def assemble(
    folder: Path, splits: Mapping[str, CaptionedImages], shards: Sequence[VectorShard], files: ChunkFiles
) -> dict[str, dict[str, Any]]:
    """Write all files, each completely or not at all; returns {"bytes", "sha256"} of each by its name."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    written: dict[str, dict[str, Any]] = {}
    ids = image_ids(splits)
    for shard in shards:
        loaded, rows = splits[shard.split], shard.rows
        columns = {"image_path": ids[shard.split][rows]}
        if shard.side == "texts":
            own = [ids[shard.split][image] for image in loaded.image_index[rows]]
            keys = text_ids(shard.split, len(loaded.captions))[rows]
            columns = {"key": keys, "image_path": own, "caption": [str(one) for one in loaded.captions[rows]]}
        vectors_name, metadata_name = shard.places
        for name in shard.places:
            for place in (folder / name, folder / shard.split / name):
                place.parent.mkdir(parents=True, exist_ok=True)
        written[vectors_name] = write_features(folder / vectors_name, shard.chunks, files)
        table = pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        written[metadata_name] = _write(folder / metadata_name, buffer.getvalue())
        for name in shard.places:
            _link(folder / name, folder / shard.split / name)
            written[f"{shard.split}/{name}"] = written[name]
    for split, loaded in splits.items():
        pairs = loaded.training_pairs()
        texts = text_ids(split, len(loaded.captions))
        rows_of = ((texts[text], ids[split][image]) for image, text in pairs.tolist())
        written[f"{split}.csv"] = _write(folder / f"{split}.csv", csv_text(("query", "item"), rows_of).encode())
    return written


def _link(file: Path, place: Path) -> None:
    """Link the file to another path; copy the file where the disk has no links."""
    place.unlink(missing_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)


def _write(path: Path, content: bytes) -> dict[str, Any]:
    with atomic(path) as raw:
        file = Hashed(raw)
        file.write(content)
        return file.facts()


def bytes_each(images: Encoder, split: CaptionedImages, device: torch.device, dtype: torch.dtype) -> int:
    """The bytes of one vector, measured on the first picture."""
    with torch.inference_mode():
        return images(torch.tensor(split.images[:1], device=device)).numel() * dtype.itemsize

"""The files of an extraction: features as VSE++ and SCAN have them, joint vectors as clip-retrieval has, and tables.

Features: OUT/{train,dev,test}_ims.npy, _caps.txt and _ids.txt, which data=precomp reads. Joint vectors:

    OUT/images/img_emb/img_emb_0.npy    unit vectors of the pictures, a file for each split
    OUT/images/metadata/metadata_0.parquet    image_path: their ids
    OUT/texts/text_emb/text_emb_0.npy, OUT/texts/metadata/metadata_0.parquet    the captions: key, caption
    OUT/train.csv    the pairs of a split, by these ids: query, item
    OUT/train/images, OUT/train/texts    the files of one split, as links

`rerank` and `diagnose` read queries=OUT/test/texts::text_emb items=OUT/test/images::img_emb truth=OUT/test.csv, and
data=pairs reads data.images=OUT/images::img_emb data.texts=OUT/texts::text_emb data.splits.train=OUT/train.csv.

Pictures of a folder, or texts, without splits and pairs are tables of ids and vectors.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet
from torch import Tensor

from vsehub.checks import existing, regular_members, require
from vsehub.data.sources import CaptionedImages, content_digest, pairs_by_caption
from vsehub.data.tables import TABLE_SUFFIXES, entry_texts, read_table
from vsehub.data.truth import require_distinct_ids
from vsehub.data.vectors.paths import split_path
from vsehub.encoders.precision import without_tf32
from vsehub.encoders.pretrained.networks import explained
from vsehub.extras import package
from vsehub.io.arrays import listed, write_array
from vsehub.io.files import atomic, read_object, write_json, write_text
from vsehub.io.progress import bar, prefetch
from vsehub.io.text import csv_text, read_lines

SETTINGS = "settings.json"  # of the chunks
PREFIXES = {"train": "train", "val": "dev", "test": "test"}
SIDES = {"images": "img_emb", "texts": "text_emb"}
MOST_CAPTIONS = 5  # of each image of features
Chunks = Mapping[str, Sequence[Path]]


class Work(NamedTuple):
    """Rows to compute.

    rows: an array or a list. function: some rows -> their results (b, ...). name_of: row -> its name in messages.
    """

    rows: Any
    function: Callable[[Any], Tensor]
    name_of: Callable[[int], str]


def keep_or_discard_chunks(folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
    """Keep the chunks in `folder` if they were computed with these settings; discard others.

    Raises InputError if there are chunks of other settings and `overwrite` is false.
    """
    wanted, before = json.loads(json.dumps(settings)), read_object(folder / SETTINGS)
    other = [key for key in wanted if before.get(key) != wanted[key]]
    require(
        overwrite or not before or not other,
        f"{folder} holds unfinished work with another {listed(other)}. Give that command again to finish it, another "
        "out=FOLDER, or overwrite=true to discard it",
    )
    if other:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / SETTINGS, wanted)


@torch.inference_mode()
def compute(folder: Path, name: str, work: Work, size: int, dtype: str) -> list[Path]:
    """The files of all chunks of `size` rows, in order; chunks that are there are not computed again.

    name: begins the names of the files. dtype: a type of torch, by name. Raises InputError naming rows whose result
    holds NaN, infinite values or only zeros.
    """
    paths = {start: folder / f"{name}-{start:09d}.npy" for start in range(0, len(work.rows), size)}
    missing = [start for start, path in paths.items() if not path.exists()]
    chunks = prefetch(work.rows[start : start + size] for start in missing)
    with without_tf32():
        for start, chunk in zip(missing, bar(f"computing {name}", chunks, len(missing)), strict=True):
            result = np.ascontiguousarray(work.function(chunk).to(getattr(torch, dtype)).cpu())
            flat = result.reshape(len(result), -1)
            unusable = start + np.flatnonzero(~np.isfinite(flat).all(axis=1) | ~flat.any(axis=1))
            require(
                len(unusable) == 0,
                f"{name}: the results of {listed([work.name_of(row) for row in unusable.tolist()])} hold NaN, infinite "
                "values or only zeros. Look at these rows and at the weights; try dtype=float32",
            )
            with atomic(paths[start]) as file:
                np.save(file, result)
    return list(paths.values())


def feature_files(splits: Sequence[str]) -> list[str]:
    """The names of all files of features."""
    return [f"{PREFIXES[split]}_{ending}" for split in splits for ending in ("ims.npy", "caps.txt", "ids.txt")]


def vector_files(splits: Sequence[str]) -> list[str]:
    """The names of all files of joint vectors."""
    names = [f"{split}.csv" for split in splits]
    for number, split in enumerate(splits):
        for name in (*_shard("images", number), *_shard("texts", number)):
            names += [name, f"{split}/{name}"]
    return names


def _shard(side: str, number: int) -> tuple[str, str]:
    """The files of vectors and of metadata of a split."""
    return f"{side}/{SIDES[side]}/{SIDES[side]}_{number}.npy", f"{side}/metadata/metadata_{number}.parquet"


def equal_caption_counts(splits: Mapping[str, CaptionedImages]) -> dict[str, CaptionedImages]:
    """The splits with equally many captions of each image, ordered by image.

    The number is the smallest that any image has, at most 5. A caption of several images is repeated for each of them.
    Raises InputError for an image without captions, and for texts that are vectors.
    """
    require(
        all(isinstance(loaded.captions, list) for loaded in splits.values()),
        "the data's texts are vectors; choose data of captions, such as data=karpathy",
    )
    counts = [np.bincount(loaded.pairs[:, 0], minlength=len(loaded.images)).min().item() for loaded in splits.values()]
    per_image = min(MOST_CAPTIONS, *counts)
    require(per_image > 0, "an image has no captions; expected one at least for every image")
    reduced = {}
    for split, loaded in splits.items():
        order = np.lexsort((loaded.pairs[:, 1], loaded.pairs[:, 0]))  # by image, then by caption
        images, rows = loaded.pairs[order].T
        first = np.arange(len(images)) - np.searchsorted(images, images) < per_image
        captions = [loaded.text_of(row) for row in rows[first].tolist()]
        reduced[split] = replace(loaded, captions=captions, pairs=pairs_by_caption(images[first]))
    return reduced


def write_features(folder: Path, splits: Mapping[str, CaptionedImages], chunks: Chunks) -> None:
    """Write the features of each split's images, its captions (equally many for each image) and the images' names."""
    for split, loaded in splits.items():
        features, captions, ids = (folder / name for name in feature_files([split]))
        write_array(features, len(loaded.images), map(np.load, chunks[split]))
        texts = map(loaded.text_of, range(len(loaded.captions)))
        write_text(captions, "".join(f"{' '.join(text.split())}\n" for text in texts))
        if loaded.names is not None:
            write_text(ids, "".join(f"{name}\n" for name in loaded.names))


def write_vectors(folder: Path, splits: Mapping[str, CaptionedImages], chunks: Chunks) -> None:
    """Write the vectors of each split's images and captions, their ids, and pairs. chunks: files by "SPLIT-SIDE"."""
    ids = image_ids(splits)
    for number, (split, loaded) in enumerate(splits.items()):
        keys = [f"{split}-{row}" for row in range(len(loaded.captions))]
        captions = [loaded.text_of(row) for row in range(len(keys))]
        tables = {"images": pa.table({"image_path": ids[split]}), "texts": pa.table({"key": keys, "caption": captions})}
        for side, table in tables.items():
            vectors, metadata = _shard(side, number)
            for name in (vectors, metadata, f"{split}/{vectors}", f"{split}/{metadata}"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_array(folder / vectors, len(table), map(np.load, chunks[f"{split}-{side}"]))
            parquet.write_table(table, folder / metadata)
            for name in (vectors, metadata):
                os.link(folder / name, folder / split / name)
        pairs = ((keys[text], ids[split][image]) for image, text in loaded.pairs.tolist())
        write_text(folder / f"{split}.csv", csv_text(("query", "item"), pairs))


def image_ids(splits: Mapping[str, CaptionedImages]) -> dict[str, list[str]]:
    """The ids of the images of each split: their names or, if a name repeats, SPLIT/ROW/NAME."""
    names = {split: [loaded.name_of(row) for row in range(len(loaded.images))] for split, loaded in splits.items()}
    if len(set().union(*names.values())) == sum(map(len, names.values())):
        return names
    return {split: [f"{split}/{row}/{name}" for row, name in enumerate(names[split])] for split in names}


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
    where, column = split_path(path)
    file = existing("texts", where, "Give a text file with one text per line, or TABLE::COLUMN")
    if file.suffix.lower() in TABLE_SUFFIXES:
        columns = read_table(file, lambda names: [name for name in names if name == "id" or column in (None, name)])
        ids = columns.pop("id", None)
        require(len(columns) == 1, f"texts: {file} has the columns {[*columns]}; name one, as in texts={file}::COLUMN")
        texts = entry_texts(file, *columns.values())
    else:
        texts, ids = read_lines(file, "text"), None
    text_ids = [str(row) for row in range(len(texts))] if ids is None else entry_texts(file, ids)
    require_distinct_ids(str(file), text_ids)
    require(all(map(str.strip, texts)), f"texts: {file} has rows without a text")
    return Side(texts, text_ids)


def sentence_model(name: str, device: str) -> Any:
    """A model of sentence-transformers from a folder or the cache. Raises InputError if it cannot be read."""
    library = package("text_model", "sentence-transformers", "sentence_transformers")
    regular_members(Path(name))
    with explained(
        f"text_model: {name!r} cannot be read. Give a folder, or get the model once with: hf download {name}"
    ):
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

"""The readers that are fuzzed: for each a valid file, and what its answer must be.

Another reader is one more entry of READERS.
"""

import csv
import hashlib
import hmac
import io
import json
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from mutations import Reader, mutate
from PIL import Image
from safetensors.numpy import load_file, save_file

from vsehub.checks import InputError
from vsehub.data import (
    CaptionedImages,
    HuggingFace,
    Karpathy,
    Pairs,
    PictureSettings,
    Precomp,
    SplitDraw,
    Table,
    WebDataset,
)
from vsehub.data.noise import Noise, draw_noise, read_index
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.pictures import check_pictures, inspect, memory_file
from vsehub.data.text.word_vectors import read_word_vectors
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vectors.embeddings import look_through, open_vectors
from vsehub.extraction.chunks import Chunk, ChunkFiles
from vsehub.extraction.folder import MANIFEST, file_names, finished
from vsehub.io.records import EVALUATION, RUN
from vsehub.report.pages.templates import Thumbnails
from vsehub.report.runs import read_runs
from vsehub.rerank.names import Names, read_images
from vsehub.rerank.parts import Parts
from vsehub.rerank.table import read_ranking, write_ranking
from vsehub.serving import build_index, load_index

ROWS, DIM = 37, 6


def matrix(rows: int = ROWS, dim: int = DIM, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(dtype)


def identifiers(rows: int = ROWS) -> list[str]:
    return [f"név {row}" for row in range(rows)]


# Vectors: what is given out is what the library of the format itself reads.


def vectors(path: Path, oracle: Callable[[Path], np.ndarray]) -> None:
    given = open_vectors(path, normalize=False)
    assert given.ids is None or (len(given.ids) == len(given) and all(isinstance(one, str) for one in given.ids))
    found = torch.cat([rows for _, rows in given.blocks()]).numpy()
    expected = oracle(path)
    expected = expected.astype(expected.dtype.newbyteorder("="))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found, expected.astype(np.float32))
    assert given.shape == found.shape
    assert given.take([0, -1 % len(given)]).shape == (2, given.shape[1])
    look_through(given)


def the_matrix(arrays: Any) -> np.ndarray:
    """The one matrix of floats among several arrays."""
    (found,) = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind == "f"]
    return found


def npz_oracle(path: Path) -> np.ndarray:
    """As a zip archive: numpy goes by the file's first bytes, which an archive may have anything before."""
    arrays = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with suppress(ValueError, MemoryError, zipfile.BadZipFile):  # what is never asked for may be damaged
                content = io.BytesIO(archive.read(name))
                arrays[name.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    return the_matrix(arrays)


def parquet_oracle(path: Path) -> np.ndarray:
    schema = pq.read_schema(path)
    floats = [field.name for field in schema if pa.types.is_floating(field.type) or pa.types.is_nested(field.type)]
    table = pq.ParquetFile(path).read(columns=floats, use_threads=False)
    lists = [
        column
        for column in table.columns
        if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type)
        if pa.types.is_floating(column.type.value_type)
    ]
    if lists:
        return np.array(lists[0].to_pylist(), dtype=lists[0].type.value_type.to_pandas_dtype())
    return np.stack([column.to_numpy() for column in table.columns if pa.types.is_floating(column.type)], axis=1)


def table_oracle(path: Path) -> np.ndarray:
    """By Python's csv module, cell by cell."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    places = [place for place, name in enumerate(lines[0]) if name != "id"]
    try:  # a file without its first line has no header
        np.array(lines[0], np.float64)
    except ValueError:
        lines = lines[1:]
    with np.errstate(over="ignore"):
        return np.array([[line[place] for place in places] for line in lines], np.float64).astype(np.float32)


def save_table(path: Path) -> None:
    lines = [f"{name},{','.join(map(str, row))}" for name, row in zip(identifiers(), matrix(), strict=True)]
    path.write_text(
        "\n".join([f"id,{','.join(f'd{column}' for column in range(DIM))}", *lines]) + "\n", encoding="utf-8"
    )


def make_shard(folder: Path) -> Path:
    """The second of three shards."""
    for number in range(3):
        np.save(folder / f"part_{number}.npy", matrix())
    return folder / "part_1.npy"


def shard(path: Path) -> None:
    """A damaged shard among whole ones is refused, or read as numpy reads it; or left out, on request."""
    array = matrix()
    left = open_vectors(path.parent, normalize=False, skip_unreadable=True)
    if left.origin.left_out:
        assert [one.name for one in left.origin.left_out] == [path.name]
        np.testing.assert_array_equal(left.rows(0, len(left)).numpy(), np.concatenate([array, array]))
    found = open_vectors(path.parent, normalize=False)
    own = np.load(path, allow_pickle=False)
    with np.errstate(all="ignore"):
        expected = np.concatenate([array, own.astype(np.float32), array])
    np.testing.assert_array_equal(found.rows(0, len(found)).numpy(), expected)


def save_npy(path: Path) -> None:
    np.save(path, matrix())


def save_npz(path: Path, save: Callable = np.savez) -> None:
    save(path, vectors=matrix(), ids=np.array(identifiers()), other=np.arange(3))


def save_parquet(path: Path, how: str) -> None:
    array = matrix()
    columns: dict[str, Any] = {"id": identifiers()}
    if how == "lists":
        columns |= {"v": pa.array(list(array)), "text": identifiers()}
    elif how == "fixed":
        columns |= {"v": pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), DIM)}
    else:
        columns |= {f"d{column}": array[:, column] for column in range(DIM)}
    pq.write_table(pa.table(columns), path, row_group_size=20, write_page_checksum=how == "columns")


def inside_zip(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """A member is changed and its checksum is that of the change."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info, archive.read(info)) for info in archive.infolist()]
    chosen = int(rng.integers(len(members)))
    changed, kind = mutate(members[chosen][1], rng)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number, (info, content) in enumerate(members):
            archive.writestr(info, changed if number == chosen else content, info.compress_type)
    data = out.getvalue()
    return (data, f"inside {kind}") if rng.random() < 0.8 else _also(data, rng, f"inside {kind}")


def _also(data: bytes, rng: np.random.Generator, kind: str) -> tuple[bytes, str]:
    data, more = mutate(data, rng)
    return data, f"{kind}, then {more}"


def written(name: str, save: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        save(folder / name)
        return folder / name

    return make


# Tables and texts.


def save_pairs(path: Path) -> None:
    rows = [f"{row % ROWS},{(7 * row) % 11},note {row}" for row in range(50)]
    path.write_text("query,item,note\n" + "\n".join(rows) + "\n")


def save_named_pairs(path: Path) -> None:
    rows = [f'{identifiers()[row % ROWS]},{(7 * row) % 11},"a, note"' for row in range(50)]
    path.write_text("query,item,note\n" + "\n".join(rows) + "\n")


def save_parquet_pairs(path: Path) -> None:
    rows = range(50)
    pq.write_table(pa.table({"query": [row % ROWS for row in rows], "item": [row % 11 for row in rows]}), path)


def truth(path: Path, ids: bool = False) -> None:
    query, item = read_truth(path, ROWS, 11, identifiers() if ids else None)
    assert len(query) == len(item) > 0
    assert 0 <= query.min() <= query.max() < ROWS
    assert 0 <= item.min() <= item.max() < 11
    expected = parquet_pairs(path) if path.suffix == ".parquet" else csv_pairs(path)
    names = {name: row for row, name in enumerate(identifiers())}
    assert [(names[q] if ids else int(q), int(i)) for q, i in expected] == list(
        zip(query.tolist(), item.tolist(), strict=True)
    )


def csv_pairs(path: Path) -> list[tuple[str, str]]:
    csv.field_size_limit(2**31 - 1)
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:  # other columns may hold anything
        records = [record for record in csv.reader(file) if record]
    header = records[0]
    return [(record[header.index("query")], record[header.index("item")]) for record in records[1:]]


def parquet_pairs(path: Path) -> list[tuple[Any, Any]]:
    table = pq.read_table(path, columns=["query", "item"], use_threads=False)
    return list(zip(table.column("query").to_pylist(), table.column("item").to_pylist(), strict=True))


def make_split_pairs(folder: Path) -> Path:
    np.save(folder / "images.npy", matrix(11))
    np.save(folder / "texts.npy", matrix())
    save_pairs(folder / "pairs.csv")
    return folder / "pairs.csv"


def split_pairs(path: Path) -> None:
    given = Pairs(path.parent / "images.npy", path.parent / "texts.npy", pairs=path, draw=SplitDraw(0, 0))
    train = given.load("train")
    assert train.pairs.min() >= 0
    assert (train.pairs.max(axis=0) < (len(train.images), len(train.captions))).all()


def make_karpathy(folder: Path) -> Path:
    entries = []
    for n in range(8):
        within = "a" if n % 2 else ""
        place = folder / "pictures" / within
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 10 * n).save(place / f"{n}.png")
        split = ("train", "restval", "val", "test")[n % 4]
        sentences = [{"raw": f"caption {c} of {n}", "tokens": ["caption"]} for c in range(1 + n % 3)]
        entries.append({"filename": f"{n}.png", "filepath": within, "split": split, "sentences": sentences})
    (folder / "secret.png").write_bytes((folder / "pictures" / "0.png").read_bytes())
    (folder / "splits.json").write_text(json.dumps({"dataset": "made up", "images": entries}))
    return folder / "splits.json"


def karpathy(path: Path) -> None:
    source = Karpathy(path, path.parent / "pictures", pictures=reading(path.parent / "cache"))
    seen: list[str] = []
    for split in ("train", "val", "test"):
        found = source.load(split)
        assert len(found.images) == len(found.names)
        assert found.image_index.max() < len(found.images)
        assert all(caption.strip() == caption != "" and "\n" not in caption for caption in found.captions)
        found.fingerprint()
        seen += [str(Path(file).resolve()) for file in found.images.files]
    assert source.name.encode()
    assert len(set(seen)) == len(seen)
    assert all(file.startswith(str((path.parent / "pictures").resolve())) for file in seen)


def reading(cache: Path) -> PictureSettings:
    return PictureSettings(size=8, resize=8, uncaptioned="leave_out", threads=1, cache=str(cache))


def listed_photos(source: Any, folder: Path) -> None:
    """All splits of a source that lists pictures with captions: every picture is decoded, no file lies elsewhere."""
    seen: list[str] = []
    for split in ("train", "val", "test"):
        try:
            found = source.load(split)
        except InputError as error:
            if f"no pictures of the split '{split}'" in str(error):
                continue
            raise
        assert len(found.images) == len(found.names) > 0
        owner = found.image_index if found.pairs is None else found.pairs[:, 0]
        assert 0 <= owner.min() <= owner.max() < len(found.images)
        assert all(caption.strip() == caption != "" and "\n" not in caption for caption in found.captions)
        assert found.images[0].shape == (3, 8, 8)
        found.fingerprint()
        seen += found.names
    assert seen
    assert len(set(seen)) == len(seen)


def make_photos(folder: Path) -> list[dict[str, Any]]:
    """Eight pictures in a folder, one of the same name outside of it; rows of a table of them."""
    rows = []
    for n in range(8):
        place = folder / "pictures" / ("a" if n % 2 else "")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 10 * n).save(place / f"{n}.png")
        path = f"a/{n}.png" if n % 2 else f"{n}.png"
        rows.append({"image": path, "caption": f"caption, of {n % 7}", "split": ("train", "dev", "test")[n % 3]})
    (folder / "secret.png").write_bytes((folder / "pictures" / "0.png").read_bytes())
    return rows


def make_photo_table(folder: Path, name: str) -> Path:
    rows, path = make_photos(folder), folder / name
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist([row | {"caption": [row["caption"], "é"]} for row in rows]), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            written_rows = csv.DictWriter(file, list(rows[0]), dialect="excel" if name.endswith("csv") else "excel-tab")
            written_rows.writeheader()
            written_rows.writerows(rows)
    return path


def photo_table(path: Path) -> None:
    folder = path.parent / "pictures"
    source = Table(path, folder, name=path.name, pictures=reading(path.parent / "cache"))
    listed_photos(source, folder)
    for split in ("train", "val", "test"):
        with suppress(InputError):
            for file in source.load(split).images.files:
                assert str(Path(str(file)).resolve()).startswith(str(folder.resolve()))


def make_tar(folder: Path) -> Path:
    path = folder / "shards" / "train-000.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        for row in make_photos(folder):
            stem = row["image"].removesuffix(".png")
            picture = (folder / "pictures" / row["image"]).read_bytes()
            for ending, content in (("png", picture), ("json", json.dumps(row).encode())):
                member = tarfile.TarInfo(f"{stem}.{ending}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    return path


def tar(path: Path) -> None:
    source = WebDataset(str(path), caption="caption", pictures=reading(path.parent.parent / "cache"))
    listed_photos(source, path.parent)


def make_tar_index(folder: Path) -> Path:
    tar(make_tar(folder))
    (path,) = (folder / "cache" / "shards").glob("*.npz")
    return path


def tar_index(path: Path) -> None:
    """An index that is damaged is made again: the shard itself is whole."""
    tar(path.parent.parent.parent / "shards" / "train-000.tar")


def make_saved_dataset(folder: Path, name: str) -> Path:
    from datasets import Dataset, Features, Value
    from datasets import Image as Picture

    rows = [row | {"image": str(folder / "pictures" / row["image"])} for row in make_photos(folder)]
    features = Features({"image": Picture(), "caption": Value("string"), "split": Value("string")})
    Dataset.from_list(rows, features=features).save_to_disk(folder / "saved")
    return folder / "saved" / name


def saved_dataset(path: Path) -> None:
    source = HuggingFace(path.parent, pictures=reading(path.parent.parent / "cache"))
    listed_photos(source, path.parent)


def make_precomp(folder: Path, ending: str) -> Path:
    np.save(folder / "train_ims.npy", matrix())
    (folder / "train_caps.txt").write_text("".join(f"A dog, {n} of five é.\n" for n in range(5 * ROWS)))
    (folder / "train_ids.txt").write_text("".join(f"{n}.jpg\n" for n in range(ROWS)))
    return folder / f"train_{ending}"


def precomp(path: Path) -> None:
    found = Precomp(path.parent).load("train")
    assert np.isfinite(found.images).all()
    assert len(found.captions) == len(found.image_index)
    assert found.image_index.max() == len(found.images) - 1
    assert found.names is None or len(found.names) == len(found.images)
    found.fingerprint()


def save_lines(path: Path) -> None:
    path.write_text("".join(f"{one}\n" for one in identifiers()))


def lines(path: Path, read: Callable[[Path], list[str]]) -> None:
    found = read(path)
    assert found
    assert all(line.strip() and "\n" not in line for line in found)
    assert read is not read_ids or len(set(found)) == len(found)
    assert len(found) == len(path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n"))


def make_images(folder: Path) -> Path:
    (folder / "list").mkdir()
    (folder / "list" / "list.txt").write_text("".join(f"photos/{n}.jpg\n" for n in range(9)))
    return folder / "list" / "list.txt"


def images(path: Path) -> None:
    found = read_images(path)
    names = Names("items", len(found), images=found)
    for row, line in enumerate(path.read_bytes().decode("utf-8-sig").removesuffix("\n").split("\n")):
        if not line.startswith("/"):
            assert os.path.normpath(names.image(row)).startswith(str(path.parent))
        assert Thumbnails()(names.image(row), line) is None


WORDS = ["the", "dog", "runs", ".", "é"]


def save_word_vectors(path: Path, header: str = "") -> None:
    rows = [
        f"{word} " + " ".join(f"{value:.3f}" for value in row) for word, row in zip(WORDS * 2, matrix(10), strict=True)
    ]
    path.write_text(header + "\n".join(rows) + "\n")


def word_vectors(path: Path) -> None:
    found, places = read_word_vectors(path, WORDS)
    assert found.shape[0] == len(places) > 0
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert 0 <= places.min() <= places.max() < len(WORDS)
    assert len(set(places.tolist())) == len(places)


# Files of vsehub's own.


def clean_split() -> CaptionedImages:
    index = np.repeat(np.arange(ROWS), 5)
    return CaptionedImages(matrix(), [f"caption {n}" for n in range(len(index))], index)


def save_noise(path: Path) -> None:
    index = draw_noise(Noise("captions", 0.4, seed=1), clean_split())
    np.save(path, index.numbers) if path.suffix == ".npy" else index.write(path)


def noise(path: Path) -> None:
    found = read_index(path, clean_split()).image_index(clean_split())
    assert np.array_equal(np.bincount(found), np.full(ROWS, 5))


def save_index(path: Path) -> None:
    build_index(torch.from_numpy(matrix()), torch.from_numpy(matrix(ROWS, 1)[:, 0]), 2.0).save(path)


def index(path: Path) -> None:
    found = load_index(path)
    assert found.facts.scale == 2.0, "a stranger's seal was believed"
    for corrected in (True, False):
        values, positions = found.search(matrix(5, found.facts.dim), min(10, len(found)), corrected)
        assert positions.min() >= -1
        assert positions.max() < len(found)
        assert values.shape == positions.shape
        assert np.array_equal(values == -np.inf, positions < 0) or not np.isfinite(values[positions >= 0]).all()


def resealed(data: bytes, rng: np.random.Generator) -> tuple[bytes, str]:
    """The index is changed; size, checksum and seal are those of the change, the seal with a stranger's key."""
    end = data[-16:]
    length = int.from_bytes(end[:8], "little")
    facts = json.loads(data[-48 - length : -48])
    content, kind = mutate(data[: -48 - length], rng)
    changed = facts | {"bytes": len(content), "crc32": zlib.crc32(content), "scale": 3.0}
    told = json.dumps(changed).encode()
    end = len(told).to_bytes(8, "little") + end[8:]
    return content + told + hmac.digest(rng.bytes(32), content + told + end, "sha256") + end, f"resealed {kind}"


EXTRACTED = {"model": "x", "data": {"train": "abc"}}


def make_extracted(folder: Path, name: str) -> Path:
    out = folder / "extracted"
    files = ChunkFiles(out / "parts", EXTRACTED)
    files.write(Chunk("train", 0, ROWS), matrix())
    written_files = {}
    for number, one in enumerate(file_names(["train"])):
        content = f"file {number}\n".encode()
        (out / one).write_bytes(content)
        written_files[one] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (out / MANIFEST).write_text(json.dumps({"schema": 1, "settings": EXTRACTED, "files": written_files}, indent=2))
    return out / name


def manifest(path: Path) -> None:
    assert finished(path.parent, EXTRACTED, file_names(["train"]), thoroughly=True)


def extraction_settings(path: Path) -> None:
    assert ChunkFiles(path.parent, EXTRACTED).done(Chunk("train", 0, ROWS))


def chunk(path: Path) -> None:
    assert len(ChunkFiles(path.parent, EXTRACTED).read(Chunk("train", 0, ROWS))) == ROWS


SEARCHED = {"k": 10, "criteria": {"csls": [1, 2.5]}}


def make_parts(folder: Path, name: str) -> Path:
    parts = Parts(folder / "rerank" / "parts", SEARCHED)
    parts.put("some", [(torch.arange(6).reshape(2, 3), torch.ones(2, 3)), ()], 1.5)
    return folder / "rerank" / "parts" / name


def parts(path: Path) -> None:
    found = Parts(path.parent, SEARCHED).get("some")
    if found is not None:
        pieces, seconds = found
        assert isinstance(seconds, float)
        assert all(isinstance(one, torch.Tensor) for piece in pieces for one in piece)


def save_ranking(path: Path) -> None:
    write_ranking(path, torch.arange(40).reshape(8, 5), torch.linspace(0, 1, 40).reshape(8, 5))


def ranking(path: Path) -> None:
    positions, scores = read_ranking(path)
    assert positions.shape == scores.shape
    assert positions.min() >= 0


def make_run(folder: Path, name: str) -> Path:
    run = folder / "run"
    (run / "evaluations").mkdir(parents=True)
    record = {"schema": RUN.version, "status": "finished", "name": "a", "label": "hal", "dataset": "scenes"}
    record |= {"architecture": "x", "seed": 0, "config": {"loss": {"gamma": 1.0}}, "metrics": {"val/rsum": 300.0}}
    record |= {"data": {}, "best": None}
    evaluation = {"schema": EVALUATION.version, "split": "test", "protocol": "single", "criterion": "nns"}
    evaluation |= {"reference": "none", "parameters": {}, "images": 9, "texts": 45, "folds": 1, "fold_images": None}
    evaluation |= {"checkpoints": ["a"]}
    evaluation |= {"metrics": {"rsum": 300.0}, "ensemble": [{"label": "hal"}, {"label": "max"}]}
    (run / "run.json").write_text(json.dumps(record, indent=2))
    (run / "evaluations" / "test.json").write_text(json.dumps(evaluation, indent=2))
    (run / "metrics.csv").write_text("epoch,val/rsum,train/loss\n" + "".join(f"{n},{n}.5,0.{n}\n" for n in range(9)))
    return run / name


def run_folder(path: Path) -> None:
    folder = path.parent if path.parent.name == "run" else path.parent.parent
    (found,) = read_runs([folder])
    assert isinstance(found.record["status"], str)
    assert isinstance(found.finished, bool)
    assert all(isinstance(one["criterion"], str) for one in found.evaluations.values())


def save_picture(path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def picture(path: Path) -> None:
    assert isinstance(inspect(path).damage, str | None)
    assert isinstance(Thumbnails()(path, "a"), str | None)


def make_memory(folder: Path) -> Path:
    (folder / "photos").mkdir()
    for name in ("a.png", "b.png"):
        save_picture(folder / "photos" / name)
    path = memory_file(folder / "cache", "photos")
    memory(path, folder)
    return path


def memory(path: Path, folder: Path | None = None) -> None:
    folder = path.parent.parent if folder is None else folder
    files = FolderFiles(folder / "photos", ["a.png", "b.png"])
    assert check_pictures(files, files.names, files.states(), path, "photos", 1).damaged == {}


READERS: dict[str, Reader] = {
    "npy": Reader(written("v.npy", save_npy), partial(vectors, oracle=partial(np.load, allow_pickle=False))),
    "npz": Reader(written("v.npz", save_npz), partial(vectors, oracle=npz_oracle)),
    "npz inside": Reader(written("v.npz", save_npz), partial(vectors, oracle=npz_oracle), inside_zip),
    "packed npz": Reader(
        written("v.npz", partial(save_npz, save=np.savez_compressed)), partial(vectors, oracle=npz_oracle)
    ),
    "packed npz inside": Reader(
        written("v.npz", partial(save_npz, save=np.savez_compressed)), partial(vectors, oracle=npz_oracle), inside_zip
    ),
    "safetensors": Reader(
        written("v.safetensors", lambda path: save_file({"v": matrix(), "n": np.arange(3)}, path)),
        partial(vectors, oracle=lambda path: the_matrix(load_file(path))),
    ),
    **{
        f"parquet {how}": Reader(
            written("v.parquet", partial(save_parquet, how=how)), partial(vectors, oracle=parquet_oracle)
        )
        for how in ("lists", "fixed", "columns")
    },
    "table": Reader(written("v.csv", save_table), partial(vectors, oracle=table_oracle)),
    "shard": Reader(make_shard, shard),
    "truth csv": Reader(written("pairs.csv", save_pairs), truth),
    "truth csv of ids": Reader(written("pairs.csv", save_named_pairs), partial(truth, ids=True)),
    "truth parquet": Reader(written("pairs.parquet", save_parquet_pairs), truth),
    "pairs": Reader(make_split_pairs, split_pairs),
    "karpathy": Reader(make_karpathy, karpathy),
    **{
        f"photo table {ending}": Reader(partial(make_photo_table, name=f"captions.{ending}"), photo_table)
        for ending in ("csv", "tsv", "jsonl", "parquet")
    },
    "tar shard": Reader(make_tar, tar),
    "tar shard's index": Reader(make_tar_index, tar_index),
    "tar shard's index inside": Reader(make_tar_index, tar_index, inside_zip),
    **{
        f"saved dataset {name}": Reader(partial(make_saved_dataset, name=name), saved_dataset)
        for name in ("state.json", "dataset_info.json", "data-00000-of-00001.arrow")
    },
    **{
        f"precomp {ending}": Reader(partial(make_precomp, ending=ending), precomp)
        for ending in ("ims.npy", "caps.txt", "ids.txt")
    },
    "ids": Reader(written("ids.txt", save_lines), partial(lines, read=read_ids)),
    "captions": Reader(written("captions.txt", save_lines), partial(lines, read=read_labels)),
    "item_images": Reader(make_images, images),
    "word vectors": Reader(written("words.txt", save_word_vectors), word_vectors),
    "word vectors of fastText": Reader(
        written("words.vec", partial(save_word_vectors, header=f"10 {DIM}\n")), word_vectors
    ),
    "noise index npz": Reader(written("noise_index.npz", save_noise), noise),
    "noise index npz inside": Reader(written("noise_index.npz", save_noise), noise, inside_zip),
    "noise index npy": Reader(written("noise_index.npy", save_noise), noise),
    "index.faiss": Reader(written("index.faiss", save_index), index),
    "index.faiss resealed": Reader(written("index.faiss", save_index), index, resealed),
    "extraction manifest": Reader(partial(make_extracted, name=MANIFEST), manifest),
    "extraction settings": Reader(partial(make_extracted, name="parts/settings.json"), extraction_settings),
    "extraction chunk": Reader(partial(make_extracted, name="parts/train-000000000.part.npz"), chunk),
    "rerank parts": Reader(partial(make_parts, name="some.part.npz"), parts),
    "rerank parts inside": Reader(partial(make_parts, name="some.part.npz"), parts, inside_zip),
    "rerank settings": Reader(partial(make_parts, name="settings.json"), parts),
    "ranking": Reader(written("ranking.parquet", save_ranking), ranking),
    **{
        f"run {name}": Reader(partial(make_run, name=name), run_folder)
        for name in ("run.json", "evaluations/test.json", "metrics.csv")
    },
    **{
        f"picture {ending}": Reader(written(f"a.{ending}", save_picture), picture)
        for ending in ("jpg", "png", "gif", "webp", "tiff")
    },
    "pictures' memory": Reader(make_memory, memory),
}

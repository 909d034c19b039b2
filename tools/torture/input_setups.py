"""What the cases of inputs.yaml find in their folder: named set-ups, and files that a case describes."""

import csv
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

# A tiny training of eight steps an epoch, of which a tenth at most are the warm-up.
SMALL = (
    "data.size=tiny",
    "embedding_dim=16",
    "text_encoder.word_dim=8",
    "image_encoder.width=4",
    "loader.batch_size=64",
    "callbacks.warmup.steps=12",
)
SHORT = (*SMALL, "trainer.max_epochs=1")
WORDS = ("a red circle", "a green star above a square", "two blue squares", "a yellow ring", "a small star")


def vectors(rows: int, dim: int, seed: int = 0, norm: str = "unit", dtype: str = "float32") -> np.ndarray:
    """Random rows, of norm 1 where `norm` is "unit"."""
    found = np.random.default_rng(seed).normal(size=(rows, dim))
    if norm == "unit":
        found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found.astype(dtype)


def table(path: Path, header: list[str], rows: list[tuple]) -> None:
    """A csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def make_embeddings(folder: Path) -> None:
    """Somebody's vectors: 40 queries, 20 items, 30 other queries; truth, ids, captions."""
    for seed, (name, rows) in enumerate((("queries", 40), ("items", 20), ("others", 30))):
        np.save(folder / f"{name}.npy", vectors(rows, 8, seed))
    np.savez(folder / "both.npz", text=vectors(40, 8, 0), image=vectors(20, 8, 1))
    table(folder / "pairs.csv", ["query", "item"], [(query, query // 2) for query in range(40)])
    (folder / "query_ids.txt").write_text("".join(f"caption-{n}\n" for n in range(40)))
    (folder / "item_ids.txt").write_text("".join(f"image-{n}\n" for n in range(20)))
    (folder / "captions.txt").write_text("".join(f"text {n}\n" for n in range(40)))


def make_features(folder: Path) -> None:
    """Features in the layout of data=precomp, below pre/."""
    (folder / "pre").mkdir()
    for seed, (prefix, rows) in enumerate((("train", 30), ("dev", 8), ("test", 8))):
        np.save(folder / "pre" / f"{prefix}_ims.npy", vectors(rows, 6, seed))
        captions = [f"{WORDS[n % 5]} number {n % 7}" for n in range(5 * rows)]
        (folder / "pre" / f"{prefix}_caps.txt").write_text("\n".join(captions) + "\n")


def make_photos(folder: Path) -> None:
    """Twelve pictures in photos/ and a json of Karpathy's splits, photos.json."""
    (folder / "photos").mkdir()
    entries = []
    for number in range(12):
        Image.new("RGB", (24, 18), (20 * number, 40, 90)).save(folder / "photos" / f"{number}.png")
        sentences = [{"raw": WORDS[(number + one) % 5]} for one in range(5)]
        split = "train" if number < 8 else "val" if number < 10 else "test"
        entries.append({"filename": f"{number}.png", "split": split, "sentences": sentences})
    (folder / "photos.json").write_text(json.dumps({"dataset": "photos", "images": entries}))


def make_pairs(folder: Path) -> None:
    """Vectors of two modalities with a table for each split."""
    np.save(folder / "left.npy", vectors(60, 6, 0))
    np.save(folder / "right.npy", vectors(60, 5, 1))
    for name, first, last in (("train", 0, 40), ("val", 40, 50), ("test", 50, 60)):
        table(folder / f"{name}.csv", ["query", "item"], [(row, row) for row in range(first, last)])
    table(folder / "all.csv", ["query", "item"], [(row, row) for row in range(60)])


def make_theirs(folder: Path) -> None:
    """A folder with files that somebody else wrote, and a file."""
    (folder / "theirs").mkdir()
    for name in ("index.html", "table.md", "run.txt", "result.json", "train_ims.npy"):
        (folder / "theirs" / name).write_text("mine")
    (folder / "a_file").write_text("mine")


def make_shards(folder: Path) -> None:
    """The pictures of `make_photos` with their captions: a table photos.csv, an imagefolder."""
    make_photos(folder)
    told = json.loads((folder / "photos.json").read_text())["images"]
    rows = [(entry["filename"], one["raw"], entry["split"]) for entry in told for one in entry["sentences"]]
    table(folder / "photos.csv", ["image", "caption", "split"], rows)
    table(folder / "photos" / "metadata.csv", ["file_name", "caption", "split"], rows)


MADE = {
    "shards": make_shards,
    "embeddings": make_embeddings,
    "features": make_features,
    "photos": make_photos,
    "pairs": make_pairs,
    "theirs": make_theirs,
}
# Set-ups that commands of vsehub make, in an empty folder: what is given before, the commands.
TRAINED = {
    "run": ((), [f"train {' '.join(SHORT)} hydra.run.dir=run"]),
    "vector_run": (
        ("pairs",),
        [
            "train data=pairs data.images=left.npy data.texts=right.npy data.splits.train=train.csv "
            "data.splits.val=val.csv data.splits.test=test.csv embedding_dim=8 loader.batch_size=16 "
            "trainer.max_epochs=1 hydra.run.dir=vector_run"
        ],
    ),
    "report": (("run",), ["report run out=report"]),
    "diagnosis": (("embeddings",), ["diagnose queries=queries.npy items=items.npy criteria=[csls] k=5"]),
    "view": ((), ["wandb-dashboard offline=true"]),
    "served": (
        ("embeddings",),
        [
            "rerank queries=queries.npy items=items.npy reference=others.npy item_ids=item_ids.txt out=served",
            "index served engine=lancedb",
        ],
    ),
}


def place(name: str, shared: Path, folder: Path) -> None:
    """Copy what a set-up made once, in `shared`, into a case's folder. "broken": a run that was killed."""
    source = shared / ("run" if name == "broken" else name)
    shutil.copytree(source, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("outputs"))
    for record in [folder / run / "run.json" for run in ("run", "vector_run")]:
        if record.is_file():  # a run goes on only where it was started
            told = json.loads(record.read_text())
            told["config"]["run_folder"] = told["config"]["logger"]["save_dir"] = str(record.parent)
            told["status"] = "running" if name == "broken" else told["status"]
            record.write_text(json.dumps(told, indent=2))


def write(path: Path, content: Any, folder: Path) -> None:
    """Write a file that a case describes: its text, or {kind: ...} as in `KINDS`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_bytes(content.encode())
        return
    ((kind, value),) = content.items()
    if kind in ("cut", "swap", "resealed"):
        changed = CHANGES[kind]((folder / value[0]).read_bytes(), *value[1:])
        path.write_bytes(changed)
    else:
        KINDS[kind](path, folder / value if kind == "copy" else value)


def _array(path: Path, told: dict) -> None:
    shape = told["shape"]
    found = vectors(shape[0], int(np.prod(shape[1:])), told.get("seed", 0), told.get("norm", "unit"), "float64")
    for row, value in told.get("rows", {}).items():
        found[row] = value
    found = found.reshape(shape).astype(told.get("dtype", "float32"))
    if path.suffix == ".npz":
        np.savez(path, **{name: found for name in told.get("names", ["a"])})
    else:
        np.save(path, found)


def _safetensors(path: Path, metadata: dict) -> None:
    import torch
    from safetensors.torch import save

    from vsehub.models.checkpoint import with_sorted_metadata

    stored = save({"words": torch.zeros(3, 4)}, {key: str(value) for key, value in metadata.items()} or None)
    path.write_bytes(with_sorted_metadata(stored) if metadata else stored)


def _header(path: Path, told: str | list) -> None:
    """A .npy file whose header is the text, or [before, text, times, after]: the text repeated between two others."""
    text = told if isinstance(told, str) else told[0] + told[1] * told[2] + told[3]
    length = len(text.encode())
    path.write_bytes(b"\x93NUMPY\x02\x00" + length.to_bytes(4, "little") + text.encode() + bytes(4096))


def _pickled(path: Path, told: Any) -> None:
    import torch

    torch.save(told, path)


def swapped(whole: bytes, old: str, new: str) -> bytes:
    """Bytes in which another text stands in the place of one that they hold."""
    if old.encode() not in whole:
        raise ValueError(f"{old!r} is not there")
    return whole.replace(old.encode(), new.encode())


def resealed(whole: bytes, old: str, new: str) -> bytes:
    """A checkpoint whose header holds another text, and the digest that fits it."""
    from vsehub.models.checkpoint import with_sorted_metadata

    size = int.from_bytes(whole[:8], "little")
    header = swapped(whole[8 : 8 + size], old, new)
    return with_sorted_metadata(len(header).to_bytes(8, "little") + header + whole[8 + size :])


CHANGES = {"cut": lambda whole, share: whole[: int(len(whole) * share)], "swap": swapped, "resealed": resealed}
KINDS: dict[str, Callable[[Path, Any], Any]] = {
    "hex": lambda path, value: path.write_bytes(bytes.fromhex(value)),
    "json": lambda path, value: path.write_text(json.dumps(value)),
    "folder": lambda path, value: path.mkdir(exist_ok=True),
    "array": _array,
    "copy": lambda path, value: shutil.copyfile(value, path),
    "link": lambda path, value: path.symlink_to(value),
    "repeat": lambda path, value: path.write_text(value[0] * value[1]),
    "safetensors": _safetensors,
    "pickled": _pickled,
    "removed": lambda path, value: shutil.rmtree(path) if path.is_dir() else path.unlink(),
    "pipe": lambda path, value: (path.unlink(missing_ok=True), os.mkfifo(path)),
    "header": _header,
    "read_only": lambda path, value: path.mkdir(0o555),
}

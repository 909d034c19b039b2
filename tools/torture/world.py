"""What the tortured commands work on, the commands themselves, and how what they wrote is compared."""

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import calls
import forked
import numpy as np
from input_setups import SMALL

OUT = "out"  # the folder that a command fills, below the one that it runs in
EPOCHS = 2
TRAIN = (
    "train",
    *SMALL,
    "trainer.accelerator=cpu",
    f"trainer.max_epochs={EPOCHS}",
)
RUN = (*TRAIN, f"hydra.run.dir={OUT}")

# What two unbroken runs of a command may not have in common: when, how long, how much memory, how it was called, and
# the state of the checkout; "run" is what the last command of an extraction had left to do.
TIMES = {
    *("seconds", "val/seconds", "bank/seconds", "ranking_seconds", "wall_seconds", "milliseconds"),
    *("started", "command", "git", "run"),
}
TEMPORARY = (".part",)  # endings of temporary files
LOCKED = ".lock"  # of the empty file beside a temporary one; a killed process leaves it until the file is written again
ENCODED = ".encoded"  # of folders beside a checkpoint, in which `evaluate` keeps what it encodes
# Hydra's own, the log, Lightning's (a resumed training begins a new version), the empty file of the lock, databases.
NOT_COMPARED = {"csv", "train.log", "multirun.yaml", ".lock", "index.milvus.db", "index.lancedb"}
_CLOCK = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00|git [0-9a-f]{8}|"
    r"(?:milliseconds|seconds)</dt><dd>[^<]*|[\d.,]+(?: ms| s| seconds| min| minutes| MB| GB)\b"
)


@dataclass(frozen=True)
class Command:
    """A command, and what a user gives when it was broken off: `again` of the case's folder."""

    name: str
    arguments: tuple[str, ...]
    again: Callable[["Command", Path, bool], tuple[str, ...]]
    seconds: float = 0.0  # of an unbroken run
    calls: dict[str, int] = field(default_factory=dict)  # how often an unbroken run calls what `calls` counts

    @property
    def trains(self) -> bool:
        """Whether it is `vsehub train`."""
        return self.arguments[0] == "train"

    @property
    def workers(self) -> bool:
        """Whether it starts processes that train."""
        return "trainer.devices=2" in self.arguments

    @property
    def sweeps(self) -> bool:
        """Whether it is a sweep."""
        return "-m" in self.arguments


def same(command: Command, cwd: Path, refused: bool) -> tuple[str, ...]:
    """The same command again; with overwrite=true where it has been refused, since the folder holds a result."""
    return (*command.arguments, "overwrite=true") if refused else command.arguments


def resume(command: Command, cwd: Path, refused: bool) -> tuple[str, ...]:
    """Resuming where there is a record, else the same command again."""
    return ("train", f"resume={OUT}") if (cwd / OUT / "run.json").is_file() else command.arguments


def make_files(base: Path) -> None:
    """Vectors, pairs and the weights of a network."""
    import torch
    import torchvision

    world = base / "world"
    world.mkdir(parents=True)
    random = np.random.default_rng(0)
    for name, rows in (("queries", 40_000), ("items", 300), ("reference", 2_000)):
        vectors = random.standard_normal((rows, 16), np.float32)
        np.save(world / f"{name}.npy", vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    pairs = "".join(f"{query},{query % 300}\n" for query in range(0, 40_000, 7))
    (world / "pairs.csv").write_text(f"query,item\n{pairs}")
    torch.manual_seed(0)
    torch.save(torchvision.models.resnet18().state_dict(), world / "resnet18.pth")


def commands(base: Path) -> dict[str, Command]:
    """By name, in the order in which their unbroken runs are made: a later one reads what an earlier one wrote."""
    world, trained = base / "world", base / "unbroken" / "train" / OUT
    vectors = (f"queries={world / 'queries.npy'}", f"items={world / 'items.npy'}", f"out={OUT}")
    known = (*vectors, f"truth={world / 'pairs.csv'}", f"reference={world / 'reference.npy'}")
    scenes = ("data=scenes", "data.size=tiny", "image_encoder=torchvision", "image_encoder.model=resnet18")
    pieces = ("batch_size=8", f"out={OUT}")
    noise = ("loss=max", "data.noise.protocol=captions", "data.noise.rate=0.4")
    made = [
        Command("train", RUN, resume),
        Command("train-bank", (*RUN, "bank=memory", "bank.fraction=0.5"), resume),
        Command("train-noise", (*RUN, *noise), resume),
        Command("train-two", (*RUN, "image_encoder.norm=group", "trainer.devices=2"), resume),
        Command("sweep", ("train", "-m", *TRAIN[1:], "loss=sum,max", f"hydra.sweep.dir={OUT}"), same),
        Command(
            "extract",
            ("extract", *scenes, f"image_encoder.weights={world / 'resnet18.pth'}", *pieces),
            same,
        ),
        Command("rerank", ("rerank", *known, "criterion=csls"), same),
        Command("diagnose", ("diagnose", *vectors, f"truth={world / 'pairs.csv'}", "criteria=[csls,is]"), same),
        Command(
            "evaluate",
            ("evaluate", f"checkpoint={trained}/checkpoints/best.safetensors", "criterion=csls", f"out={OUT}"),
            same,
        ),
        Command("report", ("report", str(base / "unbroken" / "train"), f"out={OUT}"), same),
    ]
    return {command.name: command for command in made}


def environment(base: Path) -> dict[str, str]:
    """The variables of a command that works below `base`."""
    return {"XDG_CACHE_HOME": str(base / "cache"), "TMPDIR": str(base)}


def unbroken(base: Path, names: list[str]) -> dict[str, Command]:
    """Make what the named commands need, run each twice unbroken, and warm this process for their children.

    Raises AssertionError where a command fails, or its second run differs from its first.
    """
    needed = {"train"} if {"evaluate", "report"} & set(names) else set()
    make_files(base)
    made = {}
    for name, command in commands(base).items():
        if name not in {*names, *needed}:
            continue
        begins = {"unbroken": partial(forked.leave_modules, base / "modules.json")}
        begins["twice"] = partial(calls.count, base / "calls.json")
        for folder, before in begins.items():
            (base / folder / name).mkdir(parents=True)
            ended = forked.run(command.arguments, base / folder / name, before, environment(base))
            assert (ended.status, ended.broke) == (0, []), f"{name}: {ended}"
            forked.warm(json.loads((base / "modules.json").read_text()))
        differ = differences(base / "twice" / name / OUT, base / "unbroken" / name / OUT)
        assert not differ, f"{name}: two unbroken runs differ: {differ}"
        made[name] = replace(command, seconds=ended.seconds, calls=json.loads((base / "calls.json").read_text()))
    return {name: command for name, command in made.items() if name in names}


def differences(ours: Path, theirs: Path) -> list[str]:
    """How the files of one command's folder differ from those of another's, beyond `TIMES` and `NOT_COMPARED`."""
    mine, other = (_files(folder) for folder in (ours, theirs))
    differences_of = [f"{name} is left over" for name in sorted(mine.keys() - other.keys())]
    differences_of += [f"{name} is missing" for name in sorted(other.keys() - mine.keys())]
    for name in sorted(mine.keys() & other.keys()):
        try:
            place = _unlike(content(mine[name], ours), content(other[name], theirs))
        except Exception as error:
            place = f": {type(error).__name__}: {error}"
        differences_of += [] if place is None else [f"{name} differs{place}"]
    return differences_of


def _files(folder: Path) -> dict[str, Path]:
    return {
        path.relative_to(folder).as_posix(): path
        for path in folder.rglob("*")
        if path.is_file()
        and path.suffix != LOCKED
        and path.parent.suffix != ENCODED
        and not NOT_COMPARED & set(path.relative_to(folder).parts)
    }


def content(path: Path, folder: Path) -> Any:
    """What a file says, without times and without the name of the folder that it lies in."""
    place = str(folder.parent)
    if path.suffix == ".json":
        return _scrubbed(json.loads(path.read_text(encoding="utf-8")), place)
    if path.suffix == ".csv":
        rows = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
        return [{name: value for name, value in row.items() if name not in TIMES} for row in rows]
    if path.suffix == ".ckpt":
        import torch

        return _scrubbed(torch.load(path, map_location="cpu", weights_only=True), place)
    if path.suffix in (".html", ".md", ".yaml"):
        text = path.read_text(encoding="utf-8").replace(place, "PLACE")
        return _CLOCK.sub("TIME", text.replace(" overwrite=true", ""))  # in the command that a page shows
    return path.read_bytes()


def _scrubbed(value: Any, place: str) -> Any:
    if isinstance(value, dict):
        return {_scrubbed(key, place): _scrubbed(entry, place) for key, entry in value.items() if key not in TIMES}
    if isinstance(value, list | tuple):
        return [_scrubbed(entry, place) for entry in value]
    return value.replace(place, "PLACE") if isinstance(value, str) else value


def _unlike(left: Any, right: Any, at: str = "") -> str | None:
    """Where two values differ, None where they do not; NaN is NaN."""
    if isinstance(left, list) and isinstance(right, list):
        left, right = dict(enumerate(left)), dict(enumerate(right))
    if isinstance(left, dict) and isinstance(right, dict):
        if left.keys() != right.keys():
            return f"{at}: keys {sorted(map(str, left.keys() ^ right.keys()))}"
        return next(filter(None, (_unlike(left[key], right[key], f"{at}/{key}") for key in left)), None)
    if hasattr(left, "dtype") and hasattr(right, "dtype"):
        same = left.dtype == right.dtype and left.shape == right.shape
        return None if same and left.numpy().tobytes() == right.numpy().tobytes() else f"{at}: other numbers"
    if left == right or (left != left and right != right):
        return None
    if isinstance(left, str | bytes) and isinstance(right, type(left)):
        start = next((n for n, (letter, other) in enumerate(zip(left, right, strict=False)) if letter != other), 0)
        left, right = (text[max(0, start - 30) : start + 60] for text in (left, right))
    return f"{at}: {left!r}, not {right!r}"


def damaged(folder: Path) -> list[str]:
    """Files under their own names that cannot be read: whatever stops a command, there must be none."""
    paths = []
    for name, path in _files(folder).items() if folder.is_dir() else ():
        if path.suffix in TEMPORARY:  # not under its own name
            continue
        try:
            content(path, folder)
            if path.suffix == ".safetensors":
                from safetensors import safe_open

                with safe_open(path, "np") as file:
                    [file.get_tensor(key) for key in file.keys()]  # noqa: SIM118
            if path.suffix in (".npy", ".npz"):
                np.load(path)
            if path.suffix == ".parquet":
                import pyarrow.parquet as pq

                pq.ParquetFile(path).read()
        except Exception as error:
            paths.append(f"{name} is damaged: {type(error).__name__}: {error}")
    return paths


def temporary(folder: Path) -> list[str]:
    """What is left of writing: temporary files, unfinished work, notes of a sweep under way."""
    return [
        path.relative_to(folder).as_posix()
        for path in (folder.rglob("*") if folder.is_dir() else ())
        if path.suffix in TEMPORARY or path.name == ".chunks" or path.name.startswith(".outcomes-")
    ]

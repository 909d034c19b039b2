"""Does training against hubs add to correcting them? Residual adapters on frozen vectors, by cross-validation.

    python experiments/adapters/study.py embed CHECKPOINT flickr8k.npz      vectors of a model's val and test splits
    python experiments/adapters/study.py folds coco=clip_coco500.npz flickr8k=flickr8k.npz --out runs/adapters
    python experiments/adapters/study.py tune --out runs/adapters           trials.csv and settings.csv beside this file
    python experiments/adapters/study.py train --out runs/adapters          results.csv beside this file

A set is an .npz file of `image` (I, D), `text` (T, D) and, where an image has several texts, `index` (T,), the image of
each text. Its images are drawn into five folds by seed, an image with all of its texts. A fold is tested on; a fifth of
the other images is for validation, the rest for training. What is finished is not done again; a killed command goes on
where it was. `render.py` draws results.csv.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from tqdm import tqdm

import vsehub
from vsehub.checks import existing
from vsehub.criteria import CSLS, Auto, NearestNeighbor, Sinkhorn
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.trained import TrainedModel
from vsehub.evaluation.tune import choose
from vsehub.io.files import atomic, read_object, write_text
from vsehub.similarities import Cosine

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from compare import loss_overrides  # noqa: E402 (beside this folder, found by the line above)
from running import run_all, status  # noqa: E402

FOLDS, SEEDS = 5, (0, 1, 2)
VAL_SHARE = 0.2  # of the images that are not tested on
LOSSES = ("infonce", "hal", "hal+mb", "sum")
OWN = {
    "infonce": "loss.temperature=0.01,0.02,0.05",
    "hal": "loss.epsilon=0.2,0.3,0.5",
    "hal+mb": "loss.epsilon=0.2,0.3,0.5",
    "sum": "loss.margin=0.05,0.1,0.2",
}
RATES = "optimizer.lr=0.0003,0.001"
TRIED = 6  # settings of each loss
SWEPT = ("optimizer.lr", "loss.temperature", "loss.epsilon", "loss.margin")
TUNED_ON = {"coco": ("0-0", "0-1"), "flickr8k": ("0-0",)}  # validation parts of these folds
CRITERIA = {"nns": NearestNeighbor(), "csls": CSLS(k=10), "sinkhorn": Sinkhorn(temperature=0.02)}
SINGLE = Protocol("single", fold_images=None, folds=1)


def main() -> None:
    """Read the command line and do one of the four."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("embed")
    step.add_argument("checkpoint", type=Path)
    step.add_argument("file", type=Path)
    for name in ("folds", "tune", "train"):
        step = steps.add_parser(name)
        if name == "folds":
            step.add_argument("files", nargs="+", metavar="SET=FILE.npz")
        step.add_argument("--out", type=Path, default=Path("runs/adapters"), help="default: %(default)s")
    arguments = parser.parse_args()
    {"embed": embed, "folds": folds, "tune": tune, "train": train}[arguments.step](arguments)


def embed(arguments: argparse.Namespace) -> None:
    """Write the vectors of the splits val and test, which the model was not trained on, to one file."""
    model = vsehub.load(arguments.checkpoint)
    parts = [model.encode(split) for split in ("val", "test")]
    images, texts = (
        torch.cat([model.similarity.vectors(getattr(one, side)) for one in parts]).cpu().numpy()
        for side in ("images", "texts")
    )
    index = torch.cat([parts[0].image_index, parts[1].image_index + len(parts[0].images)]).cpu().numpy()
    with atomic(arguments.file) as handle:
        np.savez(handle, image=images, text=texts, index=index)


def folds(arguments: argparse.Namespace) -> None:
    """Write OUT/folds/SET-SEED-FOLD: images.npy, texts.npy and a table of pairs for each split."""
    for given in arguments.files:
        name, _, path = given.partition("=")
        stored = np.load(path)
        images, texts = stored["image"].astype(np.float32), stored["text"].astype(np.float32)
        index = stored["index"] if "index" in stored else np.arange(len(texts))
        for seed in SEEDS:
            order = np.random.default_rng(seed).permutation(len(images))
            for fold, tested in enumerate(np.array_split(order, FOLDS)):
                rest = order[~np.isin(order, tested)]
                held = round(VAL_SHARE * len(rest))
                place = arguments.out / "folds" / f"{name}-{seed}-{fold}"
                place.mkdir(parents=True, exist_ok=True)
                np.save(place / "images.npy", images)
                np.save(place / "texts.npy", texts)
                for split, own in (("train", rest[held:]), ("val", rest[:held]), ("test", tested)):
                    pairs = np.flatnonzero(np.isin(index, own))
                    frame = pd.DataFrame({"query": pairs, "item": index[pairs]})
                    write_text(place / f"{split}.csv", frame.to_csv(index=False))


def sweep(arguments: argparse.Namespace, label: str, names: list[str], folder: Path, more: list[str]) -> list[str]:
    """The command that trains an adapter with a loss on each of the folds `names`."""
    place = f"{(arguments.out / 'folds').absolute()}/${{data.name}}"
    return [
        *("train", "-m", "experiment=adapter", *loss_overrides(label)),
        *(["bank.fraction=1"] if label.endswith("+mb") else []),
        *(f"data.{side}={place}/{side}.npy" for side in ("images", "texts")),
        *(f"data.{split}={place}/{split}.csv" for split in ("train", "val", "test")),
        f"data.name={','.join(names)}",
        *("trainer.enable_progress_bar=false", "callbacks.collapse.every=1000"),
        f"hydra.sweep.dir={folder}",
        *more,
    ]


def tune(arguments: argparse.Namespace) -> None:
    """Try the same number of settings of each loss, and keep those that are best on validation."""
    cells = list(itertools.product(sets(arguments.out), LOSSES))
    commands = []
    for name, label in cells:
        names = [f"{name}-{one}" for one in TUNED_ON[name]]
        folder = arguments.out / "tune" / name / label
        if len(list(trials(folder))) < TRIED * len(names):
            commands.append(sweep(arguments, label, names, folder, ["final_split=val", RATES, OWN[label]]))
    failed = run_all(commands)
    rows = [
        {"set": name, "loss": label} | tried
        for name, label in cells
        for tried in trials(arguments.out / "tune" / name / label)
    ]
    frame = pd.DataFrame(rows).groupby(["set", "loss", "settings"], sort=False)["val_rsum"].mean().reset_index()
    write_text(HERE / "trials.csv", frame.to_csv(index=False, float_format="%.2f"))
    best = frame.loc[frame.groupby(["set", "loss"], sort=False)["val_rsum"].idxmax()]
    write_text(HERE / "settings.csv", best.to_csv(index=False, float_format="%.2f"))
    if failed:
        sys.exit("\n".join(["these sweeps failed:", *failed]))


def trials(folder: Path) -> Iterator[dict]:
    """The settings of each finished run of a sweep, and its best rsum on validation."""
    for path in sorted(folder.glob("*/run.json")):
        record = read_object(path)
        if record["status"] == "finished":
            told = [f"{key}={found}" for key in SWEPT if (found := setting(record["config"], key)) != ""]
            yield {"settings": " ".join(told), "val_rsum": record["best"]["val/rsum"]}


def setting(config: dict, key: str) -> str:
    """A setting of a run as it is typed; empty where there is no such setting."""
    group, _, name = key.partition(".")
    found = config[group].get(name, "")
    return "null" if found is None else str(found)


def sets(out: Path) -> list[str]:
    """The names of the sets that have folds."""
    folder = existing("folds", out / "folds", "Run experiments/adapters/study.py folds first")
    return sorted({path.name.rsplit("-", 2)[0] for path in folder.iterdir()})


def train(arguments: argparse.Namespace) -> None:
    """Train on every fold with the chosen settings, measure, write the table."""
    path = existing("settings", HERE / "settings.csv", "Run experiments/adapters/study.py tune first")
    settings = pd.read_csv(path).set_index(["set", "loss"])["settings"]
    commands = []
    for name, label in itertools.product(sets(arguments.out), LOSSES):
        folder = arguments.out / "runs" / label
        names = [f"{name}-{seed}-{fold}" for seed in SEEDS for fold in range(FOLDS)]
        if any(status(folder / one) != "finished" for one in names):
            drawn = [f"{name}-${{seed}}-{fold}" for fold in range(FOLDS)]
            more = [f"seed={','.join(map(str, SEEDS))}", "hydra.sweep.subdir=${data.name}"]
            commands.append(sweep(arguments, label, drawn, folder, [*more, *settings[name, label].split()]))
    failed = run_all(commands)
    write_text(HERE / "results.csv", pd.DataFrame(measured(arguments.out)).to_csv(index=False, float_format="%.6g"))
    if failed:
        sys.exit("\n".join(["these sweeps failed:", *failed]))


def measured(out: Path) -> Iterator[dict]:
    """A row for each fold, model and criterion; the frozen model is measured with the folds of the first loss."""
    torch.set_num_threads(1)
    for place in tqdm(sorted((out / "folds").iterdir()), disable=None):
        name, seed, fold = place.name.rsplit("-", 2)
        told = {"set": name, "seed": int(seed), "fold": int(fold)}
        for label in LOSSES:
            folder = out / "runs" / label / place.name
            if status(folder) != "finished":
                continue
            model = vsehub.load(folder / "checkpoints" / "best.safetensors")
            if label == LOSSES[0]:
                frozen = {split: as_given(model, split) for split in ("train", "val", "test")}
                yield from (told | {"model": "frozen"} | row for row in under_criteria(frozen))
            adapted = {split: model.encode(split) for split in ("train", "val", "test")}
            yield from (told | {"model": label} | row for row in under_criteria(adapted))


def as_given(model: TrainedModel, split: str) -> EncodedSplit:
    """The frozen vectors of a split of the model's data."""
    loaded = model.split(split)
    images, texts = (torch.from_numpy(np.asarray(one[:])) for one in (loaded.images, loaded.captions))
    return EncodedSplit.of(loaded, images, texts)


def under_criteria(splits: dict[str, EncodedSplit]) -> Iterator[dict]:
    """Metrics of the test fold; the reference are all other queries, and `auto` is chosen by those of validation."""
    reference = together(splits["train"], splits["val"])
    chosen = choose(Auto(), splits["val"], Cosine(), SINGLE, splits["train"])
    for name, criterion in (CRITERIA | {"auto": chosen.criterion}).items():
        given = reference if criterion.needs_reference else None
        found = evaluate(splits["test"], Cosine(), criterion, SINGLE, given).metrics
        yield {
            "criterion": name,
            "images": len(splits["test"].images),
            "i2t_r1": found["i2t/r1"],
            "t2i_r1": found["t2i/r1"],
            "rsum": found["rsum"],
            "hs_sum": found["hubness/hs_sum"],
            "chosen": chosen.name if name == "auto" else "",
        }


def together(*splits: EncodedSplit) -> EncodedSplit:
    """Several splits as one reference."""
    images, texts = (torch.cat([getattr(one, side) for one in splits]) for side in ("images", "texts"))
    starts = np.cumsum([0, *(len(one.images) for one in splits)])
    index = torch.cat([one.image_index + int(start) for one, start in zip(splits, starts, strict=False)])
    return EncodedSplit(images, texts, index)


if __name__ == "__main__":
    main()

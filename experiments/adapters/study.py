"""Does training against hubs add to correcting them? Residual adapters on frozen vectors, by cross-validation.

    python -m experiments adapters embed CHECKPOINT flickr8k.npz      vectors of a model's val and test splits
    python -m experiments adapters run coco=clip_coco500.npz flickr8k=flickr8k.npz
    python -m experiments adapters render

A set is an .npz file of `image` (I, D), `text` (T, D) and, where an image has several texts, `index` (T,), the image of
each text. Its images are drawn into five folds by seed, an image with all of its texts. A fold is tested on; a fifth of
the other images is for validation, the rest for training. The second command first tries the same number of settings of
each loss on the validation parts of a few folds (trials.csv, settings.csv), then trains on all folds (results.csv).
What these files hold is not done again; a killed command goes on where it was. `render` draws results.csv.

The adapters, losses and the bank are vsehub's; the loop below takes the steps that `vsehub train experiment=adapter`
takes, and keeps nothing but the best epoch's weights, in memory: a training takes about a second of one core.
"""

import copy
import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm import tqdm

import vsehub
from experiments.adapters.page import render
from experiments.study import Given, Study, option, verb
from vsehub.criteria import CSLS, NearestNeighbor, Sinkhorn
from vsehub.encoders import ImageAdapter, TextAdapter
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.io.files import atomic, write_text
from vsehub.losses import HAL, InfoNCE, SumMargin
from vsehub.metrics import Positives, rank_blocks
from vsehub.neighbors import MemoryBank
from vsehub.similarities import Cosine
from vsehub.types import Loss

HERE = Path(__file__).parent

FOLDS = 5
SEEDS = range(3)
VAL_SHARE = 0.2  # of the images that are not tested on
EPOCHS = {"coco": 15, "flickr8k": 3}  # 75 and 150 steps
BATCH, DROPOUT, CLIP = 64, 0.3, 2.0
RATES = (0.0003, 0.001, 0.003)
OWN = {  # the settings that are tried of each loss, beside three learning rates
    "infonce": ("temperature", (0.01, 0.02, 0.05)),
    "hal": ("epsilon", (0.2, 0.3, 0.5)),
    "hal+mb": ("epsilon", (0.2, 0.3, 0.5)),
    "sum": ("margin", (0.05, 0.1, 0.2)),
}
MADE: dict[str, type[Loss]] = {"infonce": InfoNCE, "hal": HAL, "hal+mb": HAL, "sum": SumMargin}
TUNED_ON = {"coco": ((0, 0), (0, 1)), "flickr8k": ((0, 0),)}  # the validation parts of these seeds and folds
CRITERIA = {"nns": NearestNeighbor(), "csls": CSLS(k=10), "sinkhorn": Sinkhorn(temperature=0.02)}
SINGLE = Protocol("single")


class Vectors(NamedTuple):
    """Frozen unit vectors of images (I, D) and texts (T, D), and the image of each text (T,)."""

    images: Tensor
    texts: Tensor
    index: Tensor

    def of(self, images: np.ndarray) -> "Vectors":
        """Those of some images."""
        place = torch.full((len(self.images),), -1)
        place[torch.from_numpy(images)] = torch.arange(len(images))
        own = (place[self.index] >= 0).nonzero().flatten()
        return Vectors(self.images[torch.from_numpy(images)], self.texts[own], place[self.index[own]])

    @torch.no_grad()
    def adapted(self, adapters: torch.nn.ModuleList) -> EncodedSplit:
        """The vectors as the adapters change them, in eval mode."""
        image, text = adapters.eval()
        return EncodedSplit(image(self.images), text(self.texts, torch.ones(len(self.texts))), self.index)


@verb(option("checkpoint", type=Path), option("file", type=Path, help="the .npz file to write"))
def embed(given: Given) -> None:
    """Write the vectors of the splits val and test, which the model was not trained on, to one file."""
    torch.set_num_threads(1)
    model = vsehub.load(given.checkpoint)
    parts = [model.encode(split) for split in ("val", "test")]
    images, texts = (
        torch.cat([model.similarity.vectors(getattr(one, side)) for one in parts]).cpu().numpy()
        for side in ("images", "texts")
    )
    index = torch.cat([parts[0].image_index, parts[1].image_index + len(parts[0].images)]).cpu().numpy()
    with atomic(given.file) as handle:
        np.savez(handle, image=images, text=texts, index=index)


@verb(option("sets", nargs="+", metavar="SET=FILE.npz"))
def run(given: Given) -> None:
    """Choose the settings of each loss, then train and measure on all folds; a killed command goes on where it was."""
    torch.set_num_threads(1)
    for one in given.sets:
        name, _, path = one.partition("=")
        vectors = read(Path(path))
        tune(name, vectors)
        train_all(name, vectors)


def read(path: Path) -> Vectors:
    """A set's vectors."""
    stored = np.load(path)
    images, texts = (
        torch.nn.functional.normalize(torch.from_numpy(stored[side].astype(np.float32)), dim=1)
        for side in ("image", "text")
    )
    index = stored["index"] if "index" in stored else np.arange(len(texts))
    return Vectors(images, texts, torch.from_numpy(index.astype(np.int64)))


def split(vectors: Vectors, seed: int, fold: int) -> dict[str, Vectors]:
    """The parts of a fold: "train", "val" and "test"."""
    order = np.random.default_rng(seed).permutation(len(vectors.images))
    tested = np.array_split(order, FOLDS)[fold]
    rest = order[~np.isin(order, tested)]
    held = round(VAL_SHARE * len(rest))
    return {"train": vectors.of(rest[held:]), "val": vectors.of(rest[:held]), "test": vectors.of(tested)}


def made(label: str, value: float) -> Loss:
    """A loss with its own setting; all others are the defaults of conf/loss."""
    more = {"learnable": True} if label == "infonce" else {}
    return MADE[label](**{OWN[label][0]: value}, **more)


def trained(
    parts: dict[str, Vectors], label: str, rate: float, value: float, epochs: int, seed: int
) -> tuple[torch.nn.ModuleList, float, int]:
    """The adapters after the epoch that is best on validation, its rsum there, and its number."""
    torch.manual_seed(seed)
    vectors, dim = parts["train"], parts["train"].images.shape[1]
    adapters = torch.nn.ModuleList([ImageAdapter((dim,), dropout=DROPOUT), TextAdapter((dim,), dropout=DROPOUT)])
    loss, similarity = made(label, value), Cosine()
    parameters = [*adapters.parameters(), *loss.parameters()]
    optimizer = torch.optim.Adam(parameters, rate, fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, max(1, round(2 * epochs / 3)), 0.1)
    pairs, captions = len(vectors.texts), torch.arange(len(vectors.texts))
    bank = MemoryBank(k=max(10, round(0.0088 * pairs))) if label.endswith("+mb") else None
    best: tuple[torch.nn.ModuleList, float, int] | None = None
    for epoch in range(epochs):
        if bank is not None and epoch > 0:
            now = vectors.adapted(adapters)
            bank.fill(now.images[vectors.index], now.texts, vectors.index, captions)
        adapters.train()
        for rows in torch.randperm(pairs).split(BATCH):
            if len(rows) < 2:
                continue
            ids = vectors.index[rows]
            images, texts = adapters[0](vectors.images[ids]), adapters[1](vectors.texts[rows], captions[rows])
            neighbors = None
            if bank is not None and len(bank):
                neighbors = bank.query(images.detach(), texts.detach(), ids, rows)
            optimizer.zero_grad()
            loss(similarity(images, texts), ids[:, None] == ids, neighbors)["loss"].backward()
            torch.nn.utils.clip_grad_norm_(parameters, CLIP)
            optimizer.step()
        scheduler.step()
        rsum = quick_rsum(parts["val"].adapted(adapters))
        if best is None or rsum > best[1]:
            best = copy.deepcopy(adapters), rsum, epoch
    assert best is not None
    return best


def quick_rsum(encoded: EncodedSplit) -> float:
    """R@1, R@5 and R@10 of both directions, added up."""
    scores, texts = encoded.texts @ encoded.images.T, torch.arange(len(encoded.texts))
    total = 0.0
    for block, sides in ((scores, (texts, encoded.image_index)), (scores.T, (encoded.image_index, texts))):
        ranks = rank_blocks([(0, block)], Positives.from_pairs(*sides, *block.shape)).ranks
        total += sum(100 * (ranks <= k).double().mean().item() for k in (1, 5, 10))
    return total


def kept(name: str) -> pd.DataFrame:
    """The rows of a table beside this file; none if it does not exist."""
    path = HERE / name
    return pd.read_csv(path) if path.is_file() else pd.DataFrame()


def tune(name: str, vectors: Vectors) -> None:
    """Try the same number of settings of each loss on validation, and keep the best."""
    tried = kept("trials.csv")
    known = set(zip(*(tried[one] for one in ("set", "loss", "lr", "value")), strict=True)) if len(tried) else set()
    for label, rate in tqdm(list(itertools.product(OWN, RATES)), f"{name}: settings", disable=None):
        setting, values = OWN[label]
        for value in values:
            if (name, label, rate, value) in known:
                continue
            found = [
                trained(split(vectors, seed, fold), label, rate, value, EPOCHS[name], seed)[1]
                for seed, fold in TUNED_ON[name]
            ]
            row = {"set": name, "loss": label, "lr": rate, "setting": setting, "value": value}
            tried = pd.concat([tried, pd.DataFrame([row | {"val_rsum": np.mean(found)}])], ignore_index=True)
            write_text(HERE / "trials.csv", tried.to_csv(index=False, float_format="%.6g"))
    best = tried.loc[tried.groupby(["set", "loss"], sort=False)["val_rsum"].idxmax()]
    write_text(HERE / "settings.csv", best.to_csv(index=False, float_format="%.6g"))


def train_all(name: str, vectors: Vectors) -> None:
    """Train with the chosen settings on every fold and measure, as far as results.csv lacks it."""
    chosen = kept("settings.csv").set_index(["set", "loss"])
    rows = kept("results.csv")
    done = set(zip(rows["set"], rows["seed"], rows["fold"], strict=True)) if len(rows) else set()
    for seed, fold in tqdm(list(itertools.product(SEEDS, range(FOLDS))), f"{name}: folds", disable=None):
        if (name, seed, fold) in done:
            continue
        parts, new = split(vectors, seed, fold), []
        models = {"frozen": (None, float("nan"), -1)}
        for label in OWN:
            own = chosen.loc[(name, label)]
            models[label] = trained(parts, label, own["lr"], own["value"], EPOCHS[name], seed)
        for model, (adapters, val_rsum, epoch) in models.items():
            told = {"set": name, "seed": seed, "fold": fold, "model": model, "epoch": epoch, "val_rsum": val_rsum}
            new += [told | row for row in under_criteria(parts, adapters)]
        rows = pd.concat([rows, pd.DataFrame(new)], ignore_index=True)
        write_text(HERE / "results.csv", rows.to_csv(index=False, float_format="%.6g"))


def under_criteria(parts: dict[str, Vectors], adapters: torch.nn.ModuleList | None) -> list[dict]:
    """Metrics of the tested fold; a criterion's reference is all that is not tested on. adapters: None: frozen."""
    others = Vectors(
        torch.cat([parts["train"].images, parts["val"].images]),
        torch.cat([parts["train"].texts, parts["val"].texts]),
        torch.cat([parts["train"].index, parts["val"].index + len(parts["train"].images)]),
    )
    tested, reference = (
        EncodedSplit(*one) if adapters is None else one.adapted(adapters) for one in (parts["test"], others)
    )
    found = []
    for name, criterion in CRITERIA.items():
        metrics = evaluate(
            tested, Cosine(), criterion, SINGLE, reference if criterion.needs_reference else None
        ).metrics
        row = {"criterion": name, "images": len(tested.images)}
        row |= {"i2t_r1": metrics["i2t/r1"], "t2i_r1": metrics["t2i/r1"], "rsum": metrics["rsum"]}
        found.append(row | {"hs_sum": metrics["hubness/hs_sum"]})
    return found


STUDY = Study(__file__, render=render, verbs={"embed": embed, "run": run})

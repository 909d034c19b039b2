"""Losses on Flickr8k beside a linear baseline, and on both halves of the development images.

    python -m experiments flickr8k baseline FOLDER                       baseline.json; FOLDER: one vector an image
    python -m experiments flickr8k halves FOLDER OUT                     data whose test split is val and test together
    vsehub evaluate checkpoint=RUN/checkpoints/best.safetensors data.root=OUT out=JOINT/LABEL-SEED
    python -m experiments flickr8k collect RUNS... --joint JOINT
    python -m experiments flickr8k render

Flickr8k's official development images are split into two halves of 500 here; figures on 1,000 images need both. Models
chosen on the val half have seen it for that choice, so the joint figure is for comparison with others on 1,000 alone.
"""

import json
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from experiments.evidence import judged, judged_table, read_expected, renew, verdict
from experiments.plots import dots, save
from experiments.study import RUNS, TO, Given, Study, option, verb
from vsehub.data import CaptionedImages, Precomp
from vsehub.data.text.vocabulary import SPECIALS
from vsehub.encoders import ImageFeatures, TextBag
from vsehub.evaluation import Protocol
from vsehub.evaluation.encode import encode_images, encode_texts
from vsehub.io.files import atomic, write_json, write_text
from vsehub.metrics import recall_metrics
from vsehub.report.build import build_report
from vsehub.report.recipes import label_rank
from vsehub.report.results import aggregate, results_table
from vsehub.report.tables import ReportTable, spread_text
from vsehub.similarities import Cosine
from vsehub.training.closed_form import CcaSolver
from vsehub.training.datamodule import RetrievalDataModule

HERE = Path(__file__).parent
SEEN = (
    "The 1,000 images are the test half and the val half together. The val half has chosen each model's epoch and the "
    "baseline's settings, so that half of these images were not unseen: the values favour both, and are comparable "
    "with each other, not with values on unseen images."
)


@verb(
    option("root", help="folder of {train,dev,test}_ims.npy and _caps.txt with one vector an image"),
    option("--out", type=Path, default=HERE / "baseline.json", help="the JSON to write; default: the study's own"),
)
def fit(given: Given) -> None:
    """Fit the linear baseline on train, choose its settings on val, and measure it."""
    begin = time.perf_counter()
    result = baseline(Precomp(given.root))
    write_json(given.out, result)
    print(f"chosen on val: {result['chosen_on_val']}; {time.perf_counter() - begin:.0f} s")
    keys = [f"{direction}/r{k}" for direction in ("i2t", "t2i") for k in (1, 5, 10)]
    print("set        images  " + "  ".join(keys) + "   rsum")
    for name, metrics in result["sets"].items():
        print(f"{name:9} {metrics['images']:7}" + "".join(f"{metrics[key]:8.1f}" for key in [*keys, "rsum"]))


def baseline(source: Precomp) -> dict:
    """CCA, `solver=cca`, fitted on train and chosen on val: its metrics on val, on test and on both together."""
    data = RetrievalDataModule(source)
    data.setup()
    data.load("test")
    fitted = CcaSolver().fit(data, Protocol("single"))
    encoders = (
        ImageFeatures(data.splits["train"].images.shape[1:], fitted.dim),
        TextBag(len(data.vocabulary), fitted.dim),
    )
    fitted.put_into(*encoders)
    encoded = {}
    for split in ("val", "test"):
        loaded, table = data.load(split)
        images = encode_images(encoders[0], loaded.images, np.arange(len(loaded.images)))
        encoded[split] = images, encode_texts(encoders[1], table, np.arange(len(table)))
    encoded["val+test"] = tuple(torch.cat(sides) for sides in zip(encoded["val"], encoded["test"], strict=True))
    splits = {"val": data.splits["val"], "test": data.splits["test"]}
    splits["val+test"] = both_halves(*splits.values())
    words = len(data.vocabulary) - len(SPECIALS)
    result = {"folder": source.name, "train": {"fingerprint": data.splits["train"].fingerprint(), "words": words}}
    result |= {"chosen_on_val": fitted.chosen, "sets": {}}
    for name, split in splits.items():
        positives = torch.arange(len(split.images))[:, None] == torch.from_numpy(split.image_index)
        metrics = recall_metrics(Cosine()(*encoded[name]), positives)
        result["sets"][name] = {"images": len(split.images), "fingerprint": split.fingerprint(), **metrics}
    return result


def both_halves(first: CaptionedImages, second: CaptionedImages) -> CaptionedImages:
    """Both splits as one."""
    image_index = np.concatenate([first.image_index, second.image_index + len(first.images)])
    return CaptionedImages(np.concatenate([first.images, second.images]), first.captions + second.captions, image_index)


@verb(option("root", type=Path, help="the precomp folder"), option("out", type=Path, help="the folder to write"))
def halves(given: Given) -> None:
    """Write a folder whose test split is a precomp folder's val and test halves together."""
    source = Precomp(given.root)
    both = [source.load(split) for split in ("val", "test")]
    with atomic(given.out / "test_ims.npy") as handle:
        np.save(handle, np.concatenate([half.images for half in both]))
    captions = [caption for half in both for caption in half.captions]
    write_text(given.out / "test_caps.txt", "\n".join(captions) + "\n")
    print(f"{sum(len(half.images) for half in both)} images, {len(captions)} captions in {given.out}")


@verb(RUNS, option("--joint", type=Path, required=True, help="evaluations on both halves, LABEL-SEED/*.json"), TO)
def collect(given: Given) -> None:
    """Write results.csv and joint.csv."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(build_report(given.runs, Path(folder))["results.csv"], given.folder / "results.csv")
    write_text(given.folder / "joint.csv", joint(given.joint).to_csv(index=False, lineterminator="\n"))


def joint(folder: Path) -> pd.DataFrame:
    """rsum on both halves, 1,000 images: mean and sample deviation over the seeds of each loss."""
    found = [
        (*file.parent.name.rsplit("-", 1), json.loads(file.read_text())["metrics"]["rsum"])
        for file in sorted(folder.glob("*/test-single-nns.json"))
    ]
    frame = pd.DataFrame(found, columns=["label", "seed", "rsum"])
    means = frame.groupby("label").agg(seeds=("seed", ", ".join), mean=("rsum", "mean"), rsum_sd=("rsum", "std"))
    means = means.rename(columns={"mean": "rsum"}).reset_index().round(1)
    return means.sort_values("label", key=lambda names: names.map(label_rank))


def joint_table(folder: Path, baseline: dict) -> str:
    """rsum on both halves, 1,000 images, beside the linear baseline's, as markdown; `SEEN` stands above it."""
    both = next(values for values in baseline.values() if values["images"] == 1000)
    rows = [
        [row["label"], str(row["seeds"]), spread_text(row["rsum"], row["rsum_sd"], 1)]
        for _, row in pd.read_csv(folder / "joint.csv").iterrows()
    ]
    rows.append(["linear baseline, tuned on val (`solver=cca`)", "", f"{both['rsum']:.1f}"])
    return f"{SEEN}\n\n{ReportTable(['', 'seeds', 'rsum, 1,000 images'], rows, words=2).markdown()}"


def baseline_table(baseline: dict) -> str:
    """The linear baseline's rsum on each set, as markdown."""
    rows = [[name, str(values["images"]), f"{values['rsum']:.1f}"] for name, values in baseline.items()]
    return ReportTable(["linear baseline on", "images", "rsum"], rows).markdown()


def render(folder: Path) -> None:
    """Draw the figure and the README's generated parts from the tables and baseline.json."""
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    frame["variant"] = ""
    frame = frame.sort_values("label", key=lambda names: names.map(label_rank), kind="stable")
    claims = judged(frame, read_expected(folder), "label")
    baseline = json.loads((folder / "baseline.json").read_text())["sets"]
    table = results_table(aggregate(frame)).markdown()
    text = "\n\n".join(
        [judged_table(claims).markdown(), table, baseline_table(baseline), joint_table(folder, baseline)]
    )
    caption = "rsum on the test split by loss after five epochs: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "label", "criterion", "rsum", caption, "rsum, test, 500 images"))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


STUDY = Study(__file__, render=render, verbs={"baseline": fit, "halves": halves, "collect": collect})

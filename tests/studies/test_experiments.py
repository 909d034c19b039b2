"""Every published row whose architecture is here: one file, with the paper's figures and settings, that trains."""

import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from looped import looped
from omegaconf import OmegaConf

from experiments.row_files import file_of
from vsehub.cli.nodes import build
from vsehub.cli.train import run_label

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
PUBLISHED = ROOT / "experiments" / "papers"
TABLES = pd.read_csv(PUBLISHED / "paper_tables.csv", dtype={"table": str, "line": str, "note": str})
ROWS = {row["file"]: row for _, row in TABLES.dropna(subset="file").iterrows()}
PRINTED = pd.read_csv(PUBLISHED / "hyperparameters.csv")
TRAINING, MEASURING = (
    sorted(path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).glob("*/*/*.yaml"))
    for group in ("experiment", "row")
)
SETTINGS = {
    **{name: ("loss", name) for name in ("margin", "gamma", "epsilon", "alpha", "beta", "epsilon1", "epsilon2")},
    "lr": ("optimizer", "lr"),
    "lr_update": ("scheduler", "step_size"),
    "batch_size": ("loader", "batch_size"),
    "epochs": ("trainer", "max_epochs"),
}
# AAAI prints no settings for these: whose they are read as, and SCAN's own.
READ_AS = {
    "aaai2020/table1/hal_order_vgg19_flickr30k": "aaai2020/table1/hal_vgg19_flickr30k",
    "aaai2020/table2/hal_vgg19_coco": "aaai2020/table2/hal_resnet152_coco",
    "aaai2020/table2/hal_inception_coco": "aaai2020/table2/hal_resnet152_coco",
    "aaai2020/table2/hal_bank_vgg19_coco": "aaai2020/table2/hal_bank_resnet152_coco",
    "aaai2020/table2/hal_bank_inception_coco": "aaai2020/table2/hal_bank_resnet152_coco",
    "aaai2020/table2/sum_order_vgg19_coco_first1k": "aaai2020/table1/sum_order_vgg19_flickr30k",
    "aaai2020/table2/max_vsepp_resnet152_coco_first1k": "aaai2020/table2/max_vsepp_rerun_resnet152_coco_first1k",
    "aaai2020/table2/knn_margin_resnet152_coco_first1k": "acl-srw2019/table2/knn_margin_resnet152_coco",
}
OF_SCAN = {
    "aaai2020/table1/max_scan_i2t_flickr30k": {
        "margin": 0.2,
        "lr": 0.0002,
        "lr_update": 15,
        "batch_size": 128,
        "epochs": 30,
    },
    "aaai2020/table2/max_scan_t2i_coco_first1k": {
        "margin": 0.2,
        "lr": 0.0005,
        "lr_update": 10,
        "batch_size": 128,
        "epochs": 20,
    },
}
NETWORKS = ("vgg19", "irv2", "resnet152")


@cache
def composed(name, command="train", group="experiment"):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(command, [f"{group}={name}"], return_hydra_config=True)


def network(row):
    """The image features of a row: SCAN's are regions, and order embeddings without a network are of VGG19."""
    if row["architecture"].startswith("scan"):
        return "regions"
    return next((name for name in NETWORKS if name in row["architecture"]), "vgg19")


def printed(name):
    """A row's settings as hyperparameters.csv has them, or as its paper leaves them to be read."""
    if name in OF_SCAN:
        return OF_SCAN[name]
    row = ROWS[READ_AS.get(name, name)]
    of_paper = PRINTED[PRINTED["paper"] == row["paper"]]
    mark = row["line"] if row["paper"] == "aaai2020" else row["loss"]  # AAAI prints them by row, the others by loss
    (published,) = [row for _, row in of_paper.iterrows() if mark in re.split("[ /]", row["rows"])]
    return published[list(SETTINGS)].dropna().to_dict()


@looped("name", [*TRAINING, *MEASURING])
def test_the_comment_has_the_published_figures(name):
    comment = " ".join(re.findall(r"^# (.*)", file_of(name).read_text(), re.MULTILINE))
    assert f" row {ROWS[name]['line']}: " in comment
    said = re.search(r"Published: .*?\. (?!\d)", f"{comment} ")[0]
    figures = [float(figure) for figure in re.findall(r"(?<=[ ])\d+(?:\.\d+)?(?=[ ,.])", said)]
    columns = [f"{side}_r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)]
    assert figures == ROWS[name][[*columns, "rsum", "hs_sum"]].dropna().tolist()


@looped("name", [*TRAINING, *MEASURING])
@pytest.mark.long
def test_a_row_is_trained_with_the_printed_settings(name):
    """A row that measures another's training too: nothing it prints may differ from what is trained."""
    cfg, wanted = composed(OmegaConf.load(file_of(name)).get("evaluates", name)), printed(name)
    assert {key: cfg[SETTINGS[key][0]][SETTINGS[key][1]] for key in wanted} == wanted


@looped("name", TRAINING)
@pytest.mark.long
def test_a_training_row_is_what_its_table_says(name):
    row, cfg = ROWS[name], composed(name)
    note = re.fullmatch(r"k=(\d+)", str(row["note"]))
    assert cfg.loss.get("k", 3) == (int(note[1]) if note else 3)
    choices = cfg.hydra.runtime.choices
    similarities = {"order": "order", "scan i-t avg": "scan_i2t", "scan t-i avg": "scan_t2i"}
    similarity = similarities.get(re.match(r"scan \S+ avg|\w+", row["architecture"])[0], "cosine")
    sides = ("image_regions", "text_scan") if network(row) == "regions" else ("image_features", "text_gru")
    chosen = (run_label(choices), choices.similarity, choices.image_encoder, choices.text_encoder)
    assert chosen == (row["loss"], similarity, *sides)
    assert (choices.criterion, cfg.protocol.name) == measured(row)
    test = {"coco": "testall", "flickr30k": "test"}[row["dataset"]]
    assert (cfg.data.name, cfg.data.test, cfg.positives, cfg.embedding_dim) == (row["dataset"], test, "pair", 1024)
    assert cfg.bank.get("k") == (250 if choices.bank == "memory" else None)
    for group in ("loss", "similarity", "optimizer", "scheduler", *(["bank"] if cfg.bank else [])):
        assert build(group, cfg[group]) is not None, "the class refuses the row's numbers"


def measured(row):
    """The criterion and the protocol of a row."""
    return row["criterion"], {"1k": "single"}.get(row["protocol"], row["protocol"])


@looped("name", MEASURING)
@pytest.mark.long
def test_a_measuring_row_names_its_training(name):
    row, settings = ROWS[name], OmegaConf.load(file_of(name))
    trained, cfg = ROWS[settings.evaluates], composed(name, "evaluate", "row")
    for same in (
        lambda entry: entry["dataset"],
        lambda entry: entry["loss"],
        network,
        lambda entry: entry["architecture"][:5],
    ):
        assert same(trained) == same(row)
    assert (cfg.hydra.runtime.choices.criterion, cfg.protocol.name) == measured(row)
    tuned = "matching" if "+" in row["criterion"] else row["criterion"] == "rgm"
    assert (cfg.tune, cfg.reference) == (tuned, "queries")
    assert settings.evaluates in TRAINING

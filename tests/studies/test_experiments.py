"""Every published row whose architecture is here: one file, with the paper's figures and settings, that trains."""

import re
from functools import cache
from pathlib import Path

import numpy as np
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
TEXT = {"table": str, "line": str, "note": str}
ROWS = {
    f"{row['paper']}/{row['line']}": row
    for _, row in pd.read_csv(PUBLISHED / "paper_tables.csv", dtype=TEXT).iterrows()
}
PRINTED = pd.read_csv(PUBLISHED / "hyperparameters.csv")
TRAINING, MEASURING = (
    sorted(path.relative_to(CONF / group).with_suffix("").as_posix() for path in (CONF / group).glob("*/*.yaml"))
    for group in ("experiment", "row")
)
FILES = TRAINING + MEASURING

RECALLS = [f"{side}_r{k}" for side in ("i2t", "t2i") for k in (1, 5, 10)]
SETTINGS = {
    **{name: ("loss", name) for name in ("margin", "gamma", "epsilon", "alpha", "beta", "epsilon1", "epsilon2")},
    "lr": ("optimizer", "lr"),
    "lr_update": ("scheduler", "step_size"),
    "batch_size": ("loader", "batch_size"),
    "epochs": ("trainer", "max_epochs"),
}
# AAAI prints no settings for these: whose they are read as, and SCAN's own.
READ_AS = {
    "aaai2020/1.6": "aaai2020/1.3",
    "aaai2020/2.3": "aaai2020/2.11",
    "aaai2020/2.7": "aaai2020/2.11",
    "aaai2020/2.4": "aaai2020/2.12",
    "aaai2020/2.8": "aaai2020/2.12",
    "aaai2020/2.14": "aaai2020/1.4",
    "aaai2020/2.19": "aaai2020/2.20",
    "aaai2020/2.21": "acl-srw2019/2.6",
}
OF_SCAN = {
    "aaai2020/1.7": {"margin": 0.2, "lr": 0.0002, "lr_update": 15, "batch_size": 128, "epochs": 30},
    "aaai2020/2.25": {"margin": 0.2, "lr": 0.0005, "lr_update": 10, "batch_size": 128, "epochs": 20},
}
FEATURES = {"vgg19": (4096,), "irv2": (1536,), "resnet152": (2048,), "regions": (36, 2048)}


@cache
def written(name):
    return OmegaConf.load(file_of(name))


@cache
def composed(name, command="train", group="experiment"):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose(command, [f"{group}={name}"], return_hydra_config=True)


ALIKE = {}


def measured_as(name):
    """What Hydra makes of a measuring row; of rows whose files differ in `evaluates` alone, the first."""
    own = OmegaConf.to_yaml({key: value for key, value in written(name).items() if key != "evaluates"})
    return composed(ALIKE.setdefault(own, name), "evaluate", "row")


def network(row):
    """The image features of a row: SCAN's are regions, and order embeddings without a network are of VGG19."""
    if row["architecture"].startswith("scan"):
        return "regions"
    return next((name for name in FEATURES if name in row["architecture"]), "vgg19")


def printed(name):
    """A row's settings as hyperparameters.csv has them, or as its paper leaves them to be read."""
    if name in OF_SCAN:
        return OF_SCAN[name]
    paper, line = READ_AS.get(name, name).split("/")
    of_paper = PRINTED[PRINTED["paper"] == paper]
    mark = line if paper == "aaai2020" else ROWS[name]["loss"]  # AAAI prints them by row, the others by loss
    (found,) = [row for _, row in of_paper.iterrows() if mark in re.split("[ /]", row["rows"])]
    return found[list(SETTINGS)].dropna().to_dict()


@looped("name", FILES)
def test_the_comment_has_the_published_figures(name):
    lines = file_of(name).read_text().splitlines()
    row, comment = ROWS[name], " ".join(line.removeprefix("# ") for line in lines if line.startswith("# "))
    assert f" table {row['table']}, row {row['line']}: " in comment
    said = re.search(
        r"Published: image to text (\S+) (\S+) (\S+), text to image (\S+) (\S+) (\S+?)"
        r"(?:, rsum (\S+?))?(?:, hs_sum (\S+?))?\. ",
        comment,
    )
    figures = [float("nan") if text in (None, "-") else float(text) for text in said.groups()]
    np.testing.assert_array_equal(figures, row[[*RECALLS, "rsum", "hs_sum"]].to_numpy(float))


@looped("name", FILES)
@pytest.mark.long
def test_a_row_is_trained_with_the_printed_settings(name):
    """A row that measures another's training too: nothing it prints may differ from what is trained."""
    row, trained = ROWS[name], written(name).get("evaluates", name)
    cfg = composed(trained)
    wanted = printed(name)
    assert {key: cfg[SETTINGS[key][0]][SETTINGS[key][1]] for key in wanted} == wanted
    note = re.fullmatch(r"k=(\d+)", str(row["note"]))
    if "k" in cfg.loss:
        assert cfg.loss.k == (int(note[1]) if note else 3)


@looped("name", TRAINING)
@pytest.mark.long
def test_a_training_row_is_what_its_table_says(name):
    row, cfg = ROWS[name], composed(name)
    choices = cfg.hydra.runtime.choices
    assert run_label(choices) == row["loss"]
    assert (choices.criterion, cfg.protocol.name) == (
        row["criterion"],
        {"1k": "single"}.get(row["protocol"], row["protocol"]),
    )
    similarities = {"order": "order", "scan i-t avg": "scan_i2t", "scan t-i avg": "scan_t2i"}
    assert choices.similarity == similarities.get(re.match(r"scan \S+ avg|\w+", row["architecture"])[0], "cosine")
    sets = network(row) == "regions"
    assert (choices.image_encoder, choices.text_encoder) == (
        ("image_regions", "text_scan") if sets else ("image_features", "text_gru")
    )
    assert OmegaConf.is_missing(cfg.data, "root")
    assert (cfg.data.name, cfg.data.test) == (row["dataset"], {"coco": "testall", "flickr30k": "test"}[row["dataset"]])
    assert (cfg.positives, cfg.embedding_dim) == ("pair", 1024)
    assert cfg.bank.get("k") == (250 if choices.bank == "memory" else None)
    for group in ("loss", "similarity", "optimizer", "scheduler", *(["bank"] if cfg.bank else [])):
        assert build(group, cfg[group]) is not None, "the class refuses the row's numbers"


@looped("name", MEASURING)
def test_a_measuring_row_names_its_training(name):
    row, cfg = ROWS[name], measured_as(name)
    assert {cfg.evaluates, written(name).evaluates} <= set(TRAINING)
    trained = ROWS[written(name).evaluates]
    for key in ("dataset", "loss"):
        assert trained[key] == row[key]
    assert network(trained) == network(row)
    assert re.split("[+ /]", trained["architecture"])[0] == re.split("[+ /]", row["architecture"])[0]
    assert cfg.hydra.runtime.choices.criterion == row["criterion"]
    assert cfg.protocol.name == {"1k": "single"}.get(row["protocol"], row["protocol"])
    assert cfg.tune == (row["criterion"].endswith("rgm"))
    assert cfg.reference == "queries"
    assert written(name).keys() <= {"defaults", "evaluates", "tune"}

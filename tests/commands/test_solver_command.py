"""`vsehub train experiment=cca`: a run like any other, in closed form; what it cannot train is refused."""

import itertools
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from run_files import record, rows

import vsehub
from vsehub.data import Precomp
from vsehub.evaluation import Protocol
from vsehub.training.closed_form import CcaSolver
from vsehub.training.datamodule import RetrievalDataModule

WORDS = ("red", "blue", "green", "small", "large", "round", "square", "old", "new", "bright", "dark", "quiet")
GRID = ("+solver.images=[0.1,1]", "+solver.texts=[0.1,1]", "+solver.dimensions=[4,8]", "loader.min_count=1")


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Images that are noisy sums of the vectors of the words in their captions."""
    folder = tmp_path_factory.mktemp("features")
    random = np.random.default_rng(0)
    vectors = random.normal(size=(len(WORDS), 16))
    for prefix, count in (("train", 120), ("dev", 30), ("test", 30)):
        images, captions = [], []
        for _ in range(count):
            words = random.choice(len(WORDS), 4, replace=False)
            images.append(vectors[words].sum(axis=0) + 0.5 * random.normal(size=16))
            captions += [" ".join(WORDS[word] for word in random.permutation(words)[:3]) for _ in range(2)]
        np.save(folder / f"{prefix}_ims.npy", np.array(images, dtype=np.float32))
        (folder / f"{prefix}_caps.txt").write_text("\n".join(captions) + "\n")
    return folder


@pytest.fixture(scope="module")
def solved(features, vsehub):
    run = features / "run"
    vsehub(
        "train", "experiment=cca", "data=precomp", f"data.root={features}", *GRID, f"hydra.run.dir={run}", cwd=features
    )
    return run


def test_a_run_like_any_other_with_a_checkpoint_that_is_a_model(solved, features):
    run_record = record(solved)
    assert (run_record["status"], run_record["label"]) == ("finished", "cca")
    assert run_record["solved"].keys() == {"images", "texts", "dimensions", "power"}
    assert run_record["metrics"]["test/rsum"] > 250  # chance is about 106
    (row,) = rows(solved)
    assert float(row["val/rsum"]) == pytest.approx(run_record["best"]["val/rsum"])
    model = vsehub.load(solved / "checkpoints" / "best.safetensors", device="cpu")
    captions = (features / "test_caps.txt").read_text().splitlines()
    images = model.encode_images(np.load(features / "test_ims.npy"))
    scores = model.similarity(images, model.encode_texts(captions)).numpy()
    ranks = (scores > scores[np.arange(60) // 2, np.arange(60)]).sum(axis=0)
    assert 100 * (ranks < 1).mean() == pytest.approx(run_record["metrics"]["test/t2i/r1"], abs=1e-3)


def test_the_settings_that_are_best_on_validation_are_kept(features):
    data = RetrievalDataModule(Precomp(features), min_count=1)
    data.setup()
    grid = {"images": (0.1, 1.0), "texts": (0.1, 1.0), "dimensions": (4, 8), "powers": (0.0, 0.5)}
    alone = {
        values: CcaSolver(*([value] for value in values)).fit(data, Protocol("single")).rsum
        for values in itertools.product(*grid.values())
    }
    best = CcaSolver(**grid).fit(data, Protocol("single"))
    assert min(alone.values()) < best.rsum == pytest.approx(max(alone.values()))
    assert alone[tuple(best.chosen.values())] == pytest.approx(best.rsum)


def test_the_commands_of_the_strongest_recipe(features, tmp_path, vsehub):
    """Those of docs/train.md as they stand there, in a small size."""
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    (block,) = [text for text in re.findall(r"```\n(.*?)```", page, re.DOTALL) if "experiment=strong" in text]
    small = ("embedding_dim=8", "text_encoder.word_dim=8", "trainer.max_epochs=1", "loader.min_count=1")
    for line in block.splitlines():
        program, *words = shlex.split(line.replace("FOLDER", str(features)))
        settings = GRID if "experiment=cca" in words else small
        vsehub(*words, *settings, cwd=tmp_path)
        assert program == "vsehub"
    (other,) = re.findall(r"`(text_encoder=\S+ ~text_encoder\.\S+)`", " ".join(page.split()))
    vsehub(*words, *settings, *other.split(), cwd=tmp_path)
    records = [json.loads(path.read_text()) for path in tmp_path.rglob("run.json") if "strong" in path.read_text()]
    assert [(run_record["status"], len(run_record["teacher"])) for run_record in records] == [("finished", 3)] * 2
    assert {run_record["architecture"].split("+")[0] for run_record in records} == {"text_gru_gpo", "text_transformer"}


def test_what_is_refused(features, run_here):
    data = ("data=precomp", f"data.root={features}", "loader.min_count=1")
    for settings, named in (
        (("data=scenes", "data.size=tiny"), "vsehub extract"),
        ((*data, "+solver.images=[0]"), "solver.images"),
        ((*data, "text_encoder=text_gru"), "text_encoder=text_bag"),
    ):
        assert named in run_here("train", "experiment=cca", *settings, "hydra.run.dir=refused", status=2), settings

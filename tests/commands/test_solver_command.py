"""`vsehub train experiment=cca`: a run like any other, in closed form; what it cannot train is refused."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import vsehub

WORDS = ("red", "blue", "green", "small", "large", "round", "square", "old", "new", "bright", "dark", "quiet")
GRID = ("solver.images=[0.1,1]", "solver.texts=[0.1,1]", "solver.dimensions=[4,8]", "loader.min_count=1")


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    """Images that are noisy sums of the vectors of the words in their captions."""
    folder = tmp_path_factory.mktemp("features")
    random = np.random.default_rng(0)
    vectors = random.normal(size=(len(WORDS), 16))
    for prefix, count in (("train", 120), ("dev", 30), ("test", 30)):
        images, captions = [], []
        for _ in range(count):
            own = random.choice(len(WORDS), 4, replace=False)
            images.append(vectors[own].sum(axis=0) + 0.5 * random.normal(size=16))
            captions += [" ".join(WORDS[word] for word in random.permutation(own)[:3]) for _ in range(2)]
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


def test_a_run_like_any_other(solved):
    record = json.loads((solved / "run.json").read_text())
    assert (record["status"], record["label"]) == ("finished", "cca")
    assert record["solved"].keys() == {"images", "texts", "dimensions", "power"}
    assert record["metrics"]["test/rsum"] > 250  # chance is about 106
    (row,) = csv.DictReader((solved / "metrics.csv").open())
    assert float(row["val/rsum"]) == pytest.approx(record["best"]["val/rsum"])


def test_its_checkpoint_is_a_model(solved, features):
    model = vsehub.load(solved / "checkpoints" / "best.safetensors", device="cpu")
    record = json.loads((solved / "run.json").read_text())
    images = np.load(features / "test_ims.npy")
    captions = (features / "test_caps.txt").read_text().splitlines()
    scores = model.similarity(model.encode_images(images), model.encode_texts(captions)).numpy()
    ranks = (scores > scores[np.arange(60) // 2, np.arange(60)]).sum(axis=0)
    assert 100 * (ranks < 1).mean() == pytest.approx(record["metrics"]["test/t2i/r1"], abs=1e-3)


def test_it_teaches(solved, features, vsehub):
    own = ("embedding_dim=8", "text_encoder.word_dim=8", "trainer.max_epochs=2", "loader.min_count=2")
    teacher = f"teacher={solved / 'checkpoints' / 'best.safetensors'}"
    place = f"hydra.run.dir={features / 'student'}"
    vsehub("train", "data=precomp", f"data.root={features}", *own, teacher, place, cwd=features)
    rows = list(csv.DictReader((features / "student" / "metrics.csv").open()))
    assert float(rows[1]["train/distillation"]) < float(rows[0]["train/distillation"])


def test_the_commands_of_the_strongest_recipe(features, tmp_path, vsehub):
    """Those of docs/train.md as they stand there, in a small size."""
    page = (Path(__file__).parents[2] / "docs" / "train.md").read_text()
    (block,) = [one for one in re.findall(r"```\n(.*?)```", page, re.DOTALL) if "experiment=strong" in one]
    small = ("embedding_dim=8", "text_encoder.word_dim=8", "trainer.max_epochs=1", "loader.min_count=1")
    for line in block.splitlines():
        program, *words = shlex.split(line.replace("FOLDER", str(features)))
        own = GRID if "experiment=cca" in words else small
        vsehub(*words, *own, cwd=tmp_path)
        assert program == "vsehub"
    (other,) = re.findall(r"`(text_encoder=\S+ ~text_encoder\.\S+)`", " ".join(page.split()))
    vsehub(*words, *own, *other.split(), cwd=tmp_path)
    records = [json.loads(one.read_text()) for one in tmp_path.rglob("run.json") if "strong" in one.read_text()]
    assert [record["status"] for record in records] == ["finished", "finished"]
    assert all(len(record["teacher"]) == 3 for record in records)
    assert {record["architecture"].split("+")[0] for record in records} == {"text_gru_gpo", "text_transformer"}


def test_two_modalities_that_are_vectors(features, vsehub):
    random = np.random.default_rng(1)
    latent = random.normal(size=(200, 5))
    for name, size in (("left", 9), ("right", 7)):
        mixed = latent @ random.normal(size=(5, size)) + 0.2 * random.normal(size=(200, size))
        np.save(features / f"{name}.npy", mixed.astype(np.float32))
    with (features / "pairs.csv").open("w") as file:
        csv.writer(file).writerows([("query", "item"), *((row, row) for row in range(200))])
    given = ("data.images=left.npy", "data.texts=right.npy", "data.pairs=pairs.csv", "hydra.run.dir=vectors")
    own = ("experiment=cca", "text_encoder=text_features", "solver.dimensions=[3,5]")
    vsehub("train", *own, "data=pairs", *given, cwd=features)
    record = json.loads((features / "vectors" / "run.json").read_text())
    assert record["solved"]["dimensions"] == 5
    assert record["metrics"]["test/rsum"] > 400


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        (("data=scenes", "data.size=tiny"), ("one feature vector an image", "vsehub extract")),
        (("solver.images=[]",), ("solver.images",)),
        (("solver.images=[0]",), ("solver.images",)),
        (("solver.dimensions=[2.5]",), ("solver.dimensions", "2.5")),
        (("text_encoder=text_gru",), ("linear encoders", "text_encoder=text_bag")),
    ],
)
def test_what_is_refused(features, vsehub, settings, parts):
    data = () if settings[0].startswith("data=") else ("data=precomp", f"data.root={features}", *GRID[-1:])
    said = vsehub("train", "experiment=cca", *data, *settings, "hydra.run.dir=refused", cwd=features, status=2).err
    assert all(part in said for part in parts), said

"""`vsehub search` over a folder of pictures and over a filled collection."""

import json
import shutil
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from PIL import Image
from tiny_towers import tiny_hf

from vsehub.components import Components, conf_folder
from vsehub.criteria import CSLS
from vsehub.data import Scenes
from vsehub.evaluation.trained import TrainedModel
from vsehub.evaluation.zero_shot import ZeroShot

TEXTS = ["a red circle", "two blue squares"]


@pytest.fixture
def checkpoint(trained, tmp_path):
    """A copy of the best checkpoint that may be written beside."""
    return shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path / "best.safetensors")


@pytest.fixture
def command(run_here):
    return partial(run_here, "search", "out=search", "overwrite=true")


@pytest.fixture
def folder(tmp_path):
    """The tiny scenes' pictures of the test split as files, some in folders below, beside what is no picture."""
    split = Scenes(size="tiny").load("test")
    place = tmp_path / "photos"
    for row, pixels in enumerate(split.images[:20]):
        below = place / ("a" if row % 2 else "b/c")
        below.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(below / f"{row}.png")
    (place / "notes.txt").write_text("no picture")
    (place / ".hidden.png").write_bytes(b"")
    return place


def found(out):
    """The names and scores of each list."""
    lists = []
    for line in out.splitlines():
        if line.startswith("rank"):
            lists.append([])
        elif lists and line.split()[:1] and line.split()[0].isdigit():
            cells = line.split()
            lists[-1].append((cells[-1], float(cells[1])))
    return lists


def names():
    return sorted([f"a/{row}.png" for row in range(20) if row % 2] + [f"b/c/{row}.png" for row in range(0, 20, 2)])


def test_a_folder_is_ranked_as_its_pictures_are(command, checkpoint, folder):
    split = Scenes(size="tiny").load("test")
    model = TrainedModel(checkpoint, Components([conf_folder()]))
    rows = [int(name.split("/")[-1].split(".")[0]) for name in names()]
    images, texts = model.encode_images(split.images[np.array(rows)]), model.encode_texts(TEXTS)
    scores = model.similarity(images, texts).T.detach()
    out = command(f"checkpoint={checkpoint}", f"folder={folder}", *TEXTS, "k=50")
    assert "The folder: 20 images." in out
    for one, row in zip(found(out), scores, strict=True):
        order = row.argsort(descending=True, stable=True).tolist()
        assert [name for name, _ in one] == [names()[item] for item in order]
        assert [score for _, score in one] == pytest.approx([row[item].item() for item in order], abs=1e-4)
    seen = model.similarity(images, model.encode("train").texts).T.detach()
    corrected = CSLS(k=10).rescore(scores, seen)
    out = command(f"checkpoint={checkpoint}", f"folder={folder}", *TEXTS, "k=20", "criterion=csls")
    assert out.count("inductive: its reference is the 480 captions of the train split.") == 2
    wanted = [[names()[item] for item in row.argsort(descending=True, stable=True).tolist()] for row in corrected]
    assert [[name for name, _ in one] for one in found(out)] == wanted


def test_a_published_model_and_a_reference_of_texts(command, folder, tmp_path):
    own = ZeroShot(f"hf:{tiny_hf(tmp_path / 'clip')}", None)
    own.use_folder(folder)
    expected = own.search(["a red circle"], 20, split="folder")
    given = (f"model=hf:{tmp_path / 'clip'}", f"folder={folder}", "a red circle", "k=20")
    listed = found(command(*given))
    rows = own.split("folder").names
    assert [name for name, _ in listed[0]] == [rows[row] for row in expected.rows[0].tolist()]
    texts = ["a big red box", "the blue circle", "two green", "a box in the circle", "with two red"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    out = command(*given, "criterion=csls", "criterion.k=2", f"reference={tmp_path / 'texts.txt'}")
    assert "inductive: its reference is the 5 texts of" in out
    vectors = own.similarity.vectors
    images, asked, seen = (
        vectors(one)
        for one in (own._side("folder", "images"), own.encode_texts(["a red circle"]), own.encode_texts(texts))
    )
    order = CSLS(k=2).rescore(asked @ images.T, seen @ images.T)[0].argsort(descending=True, stable=True)
    assert [name for name, _ in found(out)[0]] == [rows[row] for row in order.tolist()]
    assert "has no data of its own" in command(*given, "criterion=csls", status=2)


@pytest.mark.skipif(find_spec("lancedb") is None, reason="vsehub[lancedb] is not installed")
@pytest.mark.long
def test_a_filled_collection(run_here, command, checkpoint, folder, tmp_path):
    """The texts of a tower search what `rerank` filled with its vectors, and rank as rerank does."""
    model = TrainedModel(checkpoint, Components([conf_folder()]))
    split = Scenes(size="tiny").load("test")
    rows = [int(name.split("/")[-1].split(".")[0]) for name in names()]
    unit = model.similarity.vectors
    for name, vectors in (
        ("items", unit(model.encode_images(split.images[np.array(rows)]))),
        ("queries", unit(model.encode_texts(TEXTS))),
        ("reference", unit(model.encode("train").texts)),
    ):
        np.save(tmp_path / f"{name}.npy", vectors.detach().numpy())
    (tmp_path / "ids.txt").write_text("\n".join(names()) + "\n")
    (tmp_path / "labels.txt").write_text("\n".join(f"label {name}" for name in names()) + "\n")
    filled = "engine=lancedb", f"uri={tmp_path / 'shop'}", "collection=shop"
    files = [f"{name}={tmp_path / name}.npy" for name in ("items", "queries", "reference")]
    texts = f"item_ids={tmp_path / 'ids.txt'}", f"item_labels={tmp_path / 'labels.txt'}"
    stored = "engine=lancedb", f"uri={tmp_path / 'shop'}", "collection=shop"
    run_here("rerank", *files, *texts, "criterion=csls", "k=7", "out=ranked")
    run_here("index", "ranked", *stored)
    import pyarrow.parquet as pq

    ranking = pq.read_table(tmp_path / "ranked" / "ranking.parquet").to_pydict()
    out = command(f"checkpoint={checkpoint}", *filled, *TEXTS, "k=7", f"images={folder}")
    assert "shop at" in out
    assert "20 items" in out
    listed = found(out)
    assert [name.removeprefix("label ") for one in listed for name, _ in one] == ranking["item"]
    assert [score for one in listed for _, score in one] == pytest.approx(ranking["score"], abs=1e-3)
    page = (tmp_path / "search" / "index.html").read_text()
    assert page.count("data:image/") >= 14
    assert "is not calibrated" in command(f"checkpoint={checkpoint}", *filled, "a red box", "accept=0.5", status=2)
    best = [one[0][1] for one in listed]
    (tmp_path / "known.csv").write_text(f"query,item\n{int(np.argmin(best))},{names()[0]}\n")
    run_here("calibrate", "ranked", f"truth={tmp_path / 'known.csv'}", "false_accept=[0.5]")
    run_here("index", "ranked", *stored, "overwrite=true")
    record = json.loads((tmp_path / "ranked" / "result.json").read_text())
    least = record["calibration"]["rates"][0]["threshold"]
    own = [f"checkpoint={checkpoint}", *filled, *TEXTS, "k=7", "accept=0.5", "out=accepted"]
    out = command(*own)
    assert out.count("Nothing here at accept=0.5.") == sum(score <= least + 1e-4 for score in best) > 0
    assert [score for one in found(out) for _, score in one][:7] == [score for _, score in listed[int(np.argmax(best))]]
    assert "is not calibrated for it, only for 0.5" in command(*own[:-2], "accept=0.1", "out=other", status=2)
    other = tiny_hf(tmp_path / "clip")
    said = command(f"model=hf:{other}", *filled, "a red box", "k=7", status=2)
    assert "gives vectors of" in said
    assert "give the model whose vectors fill it" in said
    assert "k is 21; expected at most 20" in command(f"checkpoint={checkpoint}", *filled, "a red box", "k=21", status=2)
    said = command(f"checkpoint={checkpoint}", *filled, "a red box", "criterion=csls", status=2)
    assert "a collection ranks by the criterion with which it was filled" in said
    said = command(f"checkpoint={checkpoint}", *filled[:2], "collection=none", "a red box", status=2)
    assert "there is no collection none" in said
    assert "image finds captions" in command(f"checkpoint={checkpoint}", *filled, "image=3", "k=7", status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["folder=absent"], "folder: no such file or folder: absent"),
        (["folder=best.safetensors"], "folder: best.safetensors"),
        (["folder=empty"], "folder: empty holds no pictures"),
        (["folder=photos", "engine=lancedb", "uri=x"], "folder and index are given"),
        (["folder=photos", "image=a/1.png"], "image finds captions, and a folder has none"),
        (["folder=photos", "reference=absent.txt", "criterion=csls"], "reference: no such file or folder: absent.txt"),
        (["folder=photos", "reference=dev"], "reference is 'dev'; choose one of"),
        (["uri=somewhere"], "uri: of a collection"),
        (["folder=photos", "accept=0.1"], "accept: of a collection"),
        (["engine=lancedb", "uri=absent"], "uri: absent does not exist"),
        (["model=hf:clip"], "checkpoint is given with model"),
        (["prompt='a {}'"], "prompt: of model="),
    ],
)
def test_bad_input(command, checkpoint, folder, tmp_path, arguments, message):
    (tmp_path / "empty").mkdir()
    assert message in command("checkpoint=best.safetensors", "a red circle", *arguments, status=2)


def test_a_published_model_has_no_split(command):
    assert "a published model has no data of its own" in command("model=hf:clip", "a red circle", status=2)

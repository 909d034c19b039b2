"""The lines on your own embeddings in README.md, its page and the help texts, followed in order in one folder."""

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
CAPTIONS, IMAGES, DIM = 300, 100, 8
HELPS = ("conf/calibrate.yaml", "conf/diagnose.yaml", "conf/rerank.yaml")
PAGES = ("README.md", "docs/correct.md", *(pytest.param(page, marks=pytest.mark.long) for page in HELPS))


def written(name, whole=False):
    """The commands of a page, as lists of arguments; of README.md those of its section, unless `whole`."""
    text = (ROOT / name).read_text()
    if name == "README.md" and not whole:
        text = text.partition("\n## Correct the embeddings you have\n")[2].partition("\n## ")[0]
    # What is trained on vectors is followed in test_pairs_command.py.
    before, _, section = text.partition("\n## Adapt to your data\n")
    text = before + section[section.find("\n## ") :]
    if name.endswith(".md"):
        text = "\n".join(text.split("```")[1::2])
    lines = text.replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.strip().startswith("vsehub ")]


def unit(generator, rows):
    vectors = generator.normal(size=(rows, DIM))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def write_pairs(path, pairs):
    path.write_text("\n".join(["query,item", *(f"{query},{item}" for query, item in pairs)]) + "\n")


@pytest.fixture
def named_files(tmp_path):
    """The files that the lines name, as the README describes them."""
    generator = np.random.default_rng(0)
    captions, images, training = (unit(generator, rows) for rows in (CAPTIONS, IMAGES, 150))
    arrays = {"captions": captions, "images": images, "train_captions": training, "known": unit(generator, IMAGES)}
    arrays |= {"scores": captions @ images.T, "train_scores": training @ images.T}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    np.savez(tmp_path / "both.npz", text=captions, image=images)
    for side, names in (("caption", range(CAPTIONS)), ("image", range(IMAGES))):
        (tmp_path / f"{side}_ids.txt").write_text("".join(f"{side}-{n}\n" for n in names))
    write_pairs(tmp_path / "train_pairs.csv", ((row, row % IMAGES) for row in range(150)))
    for name in ("before", "after"):
        lists = generator.permuted(np.tile(np.arange(IMAGES), (CAPTIONS, 1)), axis=1)[:, :10]
        columns = {"query": np.arange(CAPTIONS).repeat(10), "item": lists.ravel(), "rank": np.tile(range(10), CAPTIONS)}
        pd.DataFrame(columns).to_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "photos").mkdir()
    for number in range(IMAGES):
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"image-{number}.jpg")


@pytest.mark.parametrize("page", PAGES)
def test_lines_followed_one_after_the_other(page, named_files, run_here, undrawn, tmp_path):
    commands = written(page)
    assert commands
    if any(command == "index" for command, *_ in commands):
        pytest.importorskip("faiss")
    for command, *settings in commands:
        values = dict(setting.split("=", 1) for setting in settings if "=" in setting)
        if "truth" in values:
            caption, image = ("caption-", "image-") if "query_ids" in values else ("", "")
            write_pairs(tmp_path / "pairs.csv", ((f"{caption}{n}", f"{image}{n // 3}") for n in range(CAPTIONS)))
        if command == "calibrate":  # by the names that the images have in a line
            image = "image-" if page.endswith(".md") else ""
            write_pairs(tmp_path / "known.csv", ((n, f"{image}{n}") for n in range(IMAGES)))
        run_here(command, *settings)
        if command in ("index", "calibrate"):
            continue
        record = json.loads((tmp_path / values.get("out", command) / "result.json").read_text())
        assert (record["truth"] is not None) == ("truth" in values)
        assert all((hub["image"] is not None) == ("item_images" in values) for hub in record["hubs"])
        assert (record["reference"]["kind"] == "inductive") == ("reference" in values or "reference_scores" in values)


def test_the_page_on_text_finds_hubs_and_corrects_them(run_here, undrawn, monkeypatch, tmp_path):
    pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    exec((ROOT / "docs/text.md").read_text().partition("```python\n")[2].partition("```")[0], {})
    for command in written("docs/text.md"):
        run_here(*command)
    record = json.loads((tmp_path / "ranked" / "result.json").read_text())
    assert record["rankings"][1]["gain"]["low"] > 10
    assert (record["verdict"]["level"], len(record["calibration"]["rates"])) == ("fail", 3)
    assert (tmp_path / "ranked" / "index.faiss").is_file()

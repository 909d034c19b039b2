"""The lines on your own embeddings in README.md, its page and the help texts, followed in order in one folder."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]
CAPTIONS, IMAGES, DIM = 300, 100, 8
PAGES = {
    "README.md": ["diagnose", "rerank", "index"],
    "docs/correct.md": [
        "diagnose",
        "rerank",
        "index",
        "rerank",
        "rerank",
        "diagnose",
        "diagnose",
        "rerank",
        "rerank",
        "calibrate",
        "index",
        "rerank",
    ],
    "conf/calibrate.yaml": ["rerank", "calibrate", "index"],
    "conf/diagnose.yaml": ["diagnose"] * 5,
    "conf/rerank.yaml": ["rerank"] * 3 + ["index"] + ["rerank"] * 3,
}


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


def write_pairs(folder, captions, images):
    """pairs.csv: three captions an image, by the names given."""
    pairs = [f"{caption},{images[n // 3]}" for n, caption in enumerate(captions)]
    (folder / "pairs.csv").write_text("\n".join(["query,item", *pairs]) + "\n")


@pytest.fixture
def given(tmp_path):
    """The files that the lines name, as the README describes them; returns their names."""
    generator = np.random.default_rng(0)
    captions, images = unit(generator, CAPTIONS), unit(generator, IMAGES)
    np.save(tmp_path / "captions.npy", captions)
    np.save(tmp_path / "images.npy", images)
    training = unit(generator, 150)
    np.save(tmp_path / "train_captions.npy", training)
    np.save(tmp_path / "scores.npy", captions @ images.T)
    np.save(tmp_path / "train_scores.npy", training @ images.T)
    np.savez(tmp_path / "both.npz", text=captions, image=images)
    ids = {"caption": [f"caption-{n}" for n in range(CAPTIONS)], "image": [f"scene-{n}" for n in range(IMAGES)]}
    for side, names in ids.items():
        (tmp_path / f"{side}_ids.txt").write_text("\n".join(names) + "\n")
    write_pairs(tmp_path, ids["caption"], ids["image"])
    known = [f"{row},{row % IMAGES}" for row in range(150)]
    (tmp_path / "train_pairs.csv").write_text("\n".join(["query,item", *known]) + "\n")
    np.save(tmp_path / "known.npy", unit(generator, IMAGES))
    (tmp_path / "known.csv").write_text("")  # by the names that the images have in a line
    (tmp_path / "photos").mkdir()
    for name in ids["image"]:
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / f"{name}.jpg")
    return {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("page", PAGES)
def test_lines_followed_one_after_the_other(page, given, run_here, undrawn, tmp_path):
    commands = written(page)
    assert [command for command, *_ in commands] == PAGES[page]
    if "index" in PAGES[page]:
        pytest.importorskip("faiss")
    named = set()
    for command, *settings in commands:
        values = dict(setting.split("=", 1) for setting in settings if "=" in setting)
        if "ray_address" in values:
            continue
        paths = [value for value in values.values() if re.search(r"[.][a-z]\w*|/$", value)]
        files = {path.partition("::")[0].strip("/") for path in paths}
        assert files <= given, "a line names a file that is not made here"
        named |= files
        if "truth" in values:
            sides = (("caption", CAPTIONS), ("scene", IMAGES))
            rows = [[f"{word}-{n}" if "query_ids" in values else n for n in range(count)] for word, count in sides]
            write_pairs(tmp_path, *rows)
        if command == "calibrate":
            names = [f"scene-{row}" for row in range(IMAGES)] if page.endswith(".md") else range(IMAGES)
            pairs = [f"{row},{name}" for row, name in enumerate(names)]
            (tmp_path / "known.csv").write_text("\n".join(["query,item", *pairs]) + "\n")
        run_here(command, *settings)
        if command in ("index", "calibrate"):
            continue
        record = json.loads((tmp_path / values.get("out", command) / "result.json").read_text())
        assert (record["truth"] is not None) == ("truth" in values)
        assert all((hub["image"] is not None) == ("item_images" in values) for hub in record["hubs"])
        assert (record["reference"]["kind"] == "inductive") == ("reference" in values or "reference_scores" in values)
    assert page != "docs/correct.md" or named == given - {"both.npz"}

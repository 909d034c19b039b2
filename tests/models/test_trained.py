"""`vsehub.load`: the scores of `vsehub search` and the metrics of `vsehub evaluate`, and what it refuses."""

import hashlib
import json
import re
import shutil

import numpy as np
import pytest
import torch
from checkpoint_files import changed

import vsehub
from vsehub.checks import InputError
from vsehub.criteria import CSLS, NearestNeighbor, RelaxedGreedyMatching
from vsehub.encoders import ImageFeatures, TextFeatures
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.models.checkpoint import write_checkpoint
from vsehub.similarities import Cosine

COSINE, SINGLE = Cosine(), Protocol("single")


@pytest.fixture(scope="module")
def model(trained):
    """The model of the run that all tests share."""
    return vsehub.load(trained / "checkpoints" / "best.safetensors")


def test_it_measures_and_searches_as_the_commands_do(model, trained, run_here):
    (path,) = (trained / "evaluations").glob("test-single-nns-*.json")
    measured, record = evaluate(model.encode("test"), COSINE, NearestNeighbor(), SINGLE), json.loads(path.read_text())
    assert (measured.metrics, model.digests) == (record["metrics"], record["checkpoints"])
    texts = ["a red circle", "a big blue square on green"]
    names = model.split("test").names
    out = run_here("search", f"checkpoint={model.path}", *texts, "k=7", "criterion=csls")
    printed = [line.split(maxsplit=3)[1:3] for line in out.splitlines() if re.match(r" +\d+  ", line)]
    hits = model.search(texts, 7, CSLS(k=10))
    rows = zip(*(field.flatten().tolist() for field in (hits.scores, hits.rows)), strict=True)
    assert printed == [[f"{score:.4f}", names[row]] for score, row in rows]
    of_image, test = model.search(images=model.split("test").images[3:4], k=160), model.encode("test")
    assert torch.allclose(of_image.scores, COSINE(test.images[3:4], test.texts).sort(descending=True).values, atol=1e-6)
    torch.testing.assert_close(of_image.scores, of_image.similarities)


def test_what_is_encoded_alone_is_what_a_split_is_encoded_as(model):
    split, encoded = model.split("test"), model.encode("test")
    for pictures in (split.images[5:9], torch.from_numpy(np.array(split.images[5:9]))):
        assert torch.allclose(model.encode_images(pictures), encoded.images[5:9], atol=1e-5)
    assert torch.allclose(model.encode_texts(split.captions[20:31]), encoded.texts[20:31], atol=1e-5)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda model: model.search("a red circle"), "texts"),
        (lambda model: model.search([]), "texts"),
        (lambda model: model.search(), "texts or images"),
        (lambda model: model.search(["red"], 33), "k is 33"),
        (lambda model: model.search(["red"], 3, RelaxedGreedyMatching()), "criterion"),
        (lambda model: model.encode_images(np.zeros((2, 5), np.float32)), "images"),
        (lambda model: model.encode_texts(np.zeros((2, 5), np.float32)), "texts"),
    ],
)
def test_bad_input(model, ask, named):
    with pytest.raises(InputError, match=named):
        ask(model)


def test_bad_settings_and_data(trained):
    best = trained / "checkpoints" / "best.safetensors"
    with pytest.raises(InputError, match="rooot"):
        vsehub.load(best, data={"rooot": "x"}).split("test")
    splits = [vsehub.load(best, data={"seed": seed}).split("test") for seed in (0, 5)]
    assert splits[0].fingerprint() != splits[1].fingerprint()


def test_texts_that_are_vectors_and_data_that_are_not_there(tmp_path):
    encoders = {"image_encoder": ImageFeatures([4], dim=3), "text_encoder": TextFeatures([5], dim=3)}
    weights = {
        f"{side}.{name}": value for side, encoder in encoders.items() for name, value in encoder.state_dict().items()
    }
    config = {
        "image_encoder": {"_target_": "vsehub.encoders.ImageFeatures", "image_shape": "???", "dim": 3},
        "text_encoder": {"_target_": "vsehub.encoders.TextFeatures", "text_shape": "???", "dim": 3},
        "similarity": {"_target_": "vsehub.similarities.Cosine"},
        "data": {"_target_": "vsehub.data.Precomp", "root": str(tmp_path / "absent")},
        "loader": {"max_words": None},
    }
    description = {"config": config, "vocabulary": None, "image_shape": [4], "text_shape": [5]}
    write_checkpoint(tmp_path / "model.safetensors", weights, description)
    model = vsehub.load(tmp_path / "model.safetensors", device="cpu")
    vectors = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = encoders["text_encoder"].eval()(vectors, torch.ones(6, dtype=torch.int64))
    assert torch.allclose(model.encode_texts(vectors), expected, atol=1e-6)
    with pytest.raises(InputError, match=r"\(4,\)"):
        model.encode_texts(vectors[:, 1:])
    with pytest.raises(InputError, match="texts"):
        model.encode_texts(["a text"])
    with pytest.raises(InputError, match="absent"):
        model.split("test")


def test_a_file_that_was_changed_is_refused(trained, tmp_path):
    """By the run's record; elsewhere only a damaged structure is noticed."""
    best = trained / "checkpoints" / "best.safetensors"
    assert vsehub.load(best).sha256 == hashlib.sha256(best.read_bytes()).hexdigest()
    run = shutil.copytree(trained, tmp_path / "run")
    other = changed(
        best, run / "checkpoints" / best.name, lambda _, weights: weights["image_encoder.linear.bias"].add_(1)
    )
    with pytest.raises(InputError, match=r"run\.json"):
        vsehub.load(other)
    vsehub.load(other.rename(tmp_path / "alone.safetensors")).encode("val")
    assert {path.name for path in tmp_path.iterdir()} == {"run", "alone.safetensors"}, "encodings are not stored"

"""Zero-shot: a published model measured as it is, on the road of a checkpoint."""

import json

import pytest
import torch
from tiny_photos import photos
from tiny_towers import SIDE, tiny_hf, tiny_open_clip

from vsehub.checks import InputError
from vsehub.criteria import NearestNeighbor
from vsehub.criteria.auto import Auto
from vsehub.data import Karpathy
from vsehub.evaluation import Protocol
from vsehub.evaluation.measurement import Measurement, measure
from vsehub.evaluation.zero_shot import ZeroShot, slug


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return photos(tmp_path_factory.mktemp("zero") / "photos")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_hf(tmp_path_factory.mktemp("zero") / "clip")


def test_the_scores_are_the_models_own(data, folder):
    from transformers import AutoModel, AutoTokenizer

    model = ZeroShot(f"hf:{folder}", Karpathy(**data), prompt="a photo of {} in red")
    encoded = model.encode("test")
    split = model.split("test")
    assert split.images.shape[1:] == (3, SIDE, SIDE)
    own, tokenizer = (one.from_pretrained(folder) for one in (AutoModel, AutoTokenizer))
    captions = [f"a photo of {one} in red" for one in split.captions]
    with torch.no_grad():
        asked = tokenizer(captions, return_tensors="pt", padding=True, truncation=True)
        texts = own.eval().get_text_features(asked["input_ids"], asked["attention_mask"]).pooler_output
    torch.testing.assert_close(encoded.texts.cpu(), texts, rtol=1e-4, atol=1e-5)
    asked = Measurement("test", NearestNeighbor(), "nns", Protocol("single"))
    record = measure(model, asked)
    assert record["zero_shot"]["prompt"] == "a photo of {} in red"
    assert (record["images"], record["checkpoints"]) == (8, model.digests)


def test_what_changes_the_vectors_changes_the_digest(data, folder, tmp_path):
    made = [
        ZeroShot(f"hf:{folder}", Karpathy(**data), **settings).sha256
        for settings in ({}, {"prompt": "a {}"}, {"pretrained": False})
    ]
    assert len(set(made)) == 3
    first, again = (ZeroShot(f"hf:{folder}", Karpathy(**data), keep=tmp_path).encode("test") for _ in range(2))
    assert (tmp_path / "clip.encoded" / "test.safetensors").is_file()
    assert torch.equal(again.images, first.images)


def test_the_criterion_is_chosen_on_validation(data, folder):
    model = ZeroShot(f"hf:{folder}", Karpathy(**data))
    for reference in ("queries", "train"):
        record = measure(model, Measurement("test", Auto(), "auto", Protocol("single"), reference))
        assert record["parameters"] in [settings for settings, _ in record["tuned"]["tried"]]


def test_the_command(data, tmp_path, run_here):
    folder = tiny_open_clip(tmp_path / "tiny")
    given = [f"model=open_clip:{folder}", "data=karpathy", *(f"data.{key}={value}" for key, value in data.items())]
    given += ["criterion=csls", f"out={tmp_path / 'out'}", "prompt='a photo of {}'"]
    run_here("evaluate", *given)
    (path,) = (tmp_path / "out").glob("test-single-csls-*.json")
    assert json.loads(path.read_text())["zero_shot"]["prompt"] == "a photo of {}"
    assert "measured before" in run_here("evaluate", *given)


def test_refusals(data, folder):
    for model, settings in (
        ("clip", {}),
        ("timm:resnet", {}),
        ("hf:", {}),
        (f"hf:{folder}", {"prompt": "a photo"}),
        (f"hf:{folder}", {"prompt": "{} {}"}),
    ):
        with pytest.raises(InputError, match=next(iter(settings), "model")):
            ZeroShot(model, Karpathy(**data), **settings)
    assert slug("open_clip:ViT-B-32/laion2b_s34b_b79k") == "ViT-B-32-laion2b_s34b_b79k"

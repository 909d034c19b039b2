"""Zero-shot: a published model measured as it is, on the road of a checkpoint."""

import pytest
import torch
from tiny_photos import photos
from tiny_towers import tiny_hf

from vsehub.checks import InputError
from vsehub.criteria import NearestNeighbor
from vsehub.data import Karpathy
from vsehub.evaluation import Protocol
from vsehub.evaluation.measurement import Measurement, measure
from vsehub.models.zero_shot import ZeroShot, slug


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return photos(tmp_path_factory.mktemp("zero") / "photos")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_hf(tmp_path_factory.mktemp("zero") / "clip")


def test_the_scores_are_the_models_own(data, folder):
    from transformers import AutoModel, AutoTokenizer

    model = ZeroShot(f"hf:{folder}", Karpathy(**data), prompt="a photo of {} in red")
    encoded, split = model.encode("test"), model.split("test")
    network, tokenizer = (auto.from_pretrained(folder) for auto in (AutoModel, AutoTokenizer))
    captions = [f"a photo of {caption} in red" for caption in split.captions]
    with torch.no_grad():
        tokens = tokenizer(captions, return_tensors="pt", padding=True, truncation=True)
        texts = network.eval().get_text_features(tokens["input_ids"], tokens["attention_mask"]).pooler_output
    torch.testing.assert_close(encoded.texts.cpu(), texts, rtol=1e-4, atol=1e-5)
    record = measure(model, Measurement("test", NearestNeighbor(), "nns", Protocol("single")))
    assert record["zero_shot"]["prompt"] == "a photo of {} in red"
    assert (record["images"], record["checkpoints"]) == (8, model.digests)


def test_what_changes_the_vectors_changes_the_digest(data, folder, tmp_path):
    made = [ZeroShot(f"hf:{folder}", Karpathy(**data), **settings).sha256 for settings in ({}, {"prompt": "a {}"})]
    assert len(set(made)) == 2
    first, again = (ZeroShot(f"hf:{folder}", Karpathy(**data), store=tmp_path).encode("test") for _ in range(2))
    assert (tmp_path / "clip.encoded" / "test-images.safetensors").is_file()
    assert torch.equal(again.images, first.images)


def test_refusals(data, folder):
    for model, prompt, named in (("clip", "{}", "model"), ("hf:", "{}", "model"), (f"hf:{folder}", "a", "prompt")):
        with pytest.raises(InputError, match=named):
            ZeroShot(model, Karpathy(**data), prompt=prompt)
    assert slug("open_clip:ViT-B-32/laion2b_s34b_b79k") == "ViT-B-32-laion2b_s34b_b79k"

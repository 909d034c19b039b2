"""Joint models as encoders: vectors, pixels and tokens equal to the libraries' own; adapters; checkpoints."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_towers import MOST, SIDE, WEIGHTS, tiny_hf, tiny_open_clip

from vsehub.checks import InputError
from vsehub.components import Components, conf_folder
from vsehub.data.photos.pictures import Pictures
from vsehub.data.text.vocabulary import dump_words, load_words
from vsehub.encoders import ImageTower, TextTower
from vsehub.encoders.pretrained.networks import weights_hash
from vsehub.losses import HAL
from vsehub.models.checkpoint import read_checkpoint, restore, write_checkpoint
from vsehub.similarities import Cosine
from vsehub.training.module import check_together, parameter_groups
from vsehub.types import Preparation

CAPTIONS = ["a red box on the circle", "two big blue circle", "the"]
LONG = "a " * 30
KINDS = ("clip", "siglip", "chinese_clip")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(library, folder) of one tiny model of each kind."""
    base = tmp_path_factory.mktemp("towers")
    models = {kind: ("hf", tiny_hf(base / kind, kind)) for kind in KINDS}
    return models | {"open_clip": ("open_clip", tiny_open_clip(base / "open_clip"))}


def towers(place, **settings):
    library, folder = place
    return (made(library, folder, **settings).eval() for made in (ImageTower, TextTower))


def subwords(place):
    return load_words(TextTower.subwords_of({"library": place[0], "model": place[1]}))


def batch(words, captions=CAPTIONS):
    rows = list(words.encode_all(captions))
    texts = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    for row, row_ids in zip(texts, rows, strict=True):
        row[: len(row_ids)] = torch.tensor(row_ids)
    return texts, torch.tensor(list(map(len, rows)))


def pixels(count=3):
    return torch.randint(0, 256, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_vectors_are_open_clips_own(folders, tmp_path):
    import open_clip

    place = folders["open_clip"]
    model, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{place[1]}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{place[1]}")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (50, 90, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    images, texts = towers(place)
    ours = Pictures([str(tmp_path / "a.png")]).prepared(images.preparation)[:]
    words = subwords(place)
    with torch.no_grad():
        vectors = model.eval().encode_image(preprocess(picture)[None])
        torch.testing.assert_close(images(torch.from_numpy(ours)), vectors, rtol=1e-5, atol=1e-6)
        captions = [*CAPTIONS, LONG, "It’s a café &amp; THE <b>Box</b>… 12", ""]
        vectors = model.encode_text(tokenizer(captions))
        torch.testing.assert_close(texts(*batch(words, captions)), vectors, rtol=1e-5, atol=1e-6)
    assert sum(parameter.numel() for side in (images, texts) for parameter in side.parameters()) == sum(
        parameter.numel() for name, parameter in model.named_parameters() if not name.startswith("logit")
    )  # one copy of the weights in both


def test_clips_tokens_are_open_clips_own():
    import open_clip

    original = open_clip.get_tokenizer("ViT-B-32")
    words = load_words(TextTower.subwords_of({"library": "open_clip", "model": "ViT-B-32"}))
    random = np.random.default_rng(0)
    texts = ["", " \t", "I'LL they've it's 10'000", "<start_of_text> x <END_OF_TEXT>", "ǅ ß 東京 नमस्ते 🚀🚀", LONG * 9]
    ranges = range(32, 127), range(0xA0, 0x600), range(0x3040, 0x30A0), range(0x1F300, 0x1F340)
    letters = [chr(code) for letters in ranges for code in letters]
    texts += ["".join(random.choice(letters, size)) for size in random.integers(1, 60, 200)]
    for text, row in zip(texts, original(texts).tolist(), strict=True):
        assert next(words.encode_all([text])) == np.trim_zeros(row, "b"), text
    assert len(words) == original.vocab_size


def test_vectors_are_transformers_own(folders):
    from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

    for kind in KINDS:
        place = folders[kind]
        model, tokenizer = (auto.from_pretrained(place[1]) for auto in (AutoModel, AutoTokenizer))
        images, texts = towers(place)
        padding = {"padding": "max_length" if kind == "siglip" else True, "truncation": True, "max_length": MOST}
        tokens = tokenizer([*CAPTIONS, LONG], return_tensors="pt", **padding)
        tokens = {
            name: tokens[name] for name in ("input_ids", "attention_mask") if kind != "siglip" or name == "input_ids"
        }
        processed = AutoImageProcessor.from_pretrained(place[1])(list(pixels()), return_tensors="pt")
        with torch.no_grad():
            vectors = model.eval().get_text_features(**tokens).pooler_output
            torch.testing.assert_close(texts(*batch(subwords(place), [*CAPTIONS, LONG])), vectors, rtol=1e-4, atol=1e-5)
            vectors = model.get_image_features(pixel_values=processed["pixel_values"]).pooler_output
            torch.testing.assert_close(images(pixels()), vectors, rtol=1e-4, atol=1e-5)
        assert images.space == texts.space
        check_together(images, texts, Cosine(), HAL())


def test_pictures_are_prepared_as_the_libraries_do(tmp_path):
    """Equal pixels for each way of resizing, of photos larger and smaller than wanted."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    random = np.random.default_rng(0)
    for width, height in ((100, 60), (61, 97), (20, 24), (32, 32)):
        picture = Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        path = tmp_path / f"{width}.png"
        picture.save(path)
        for mode in ("shortest", "longest", "squash"):
            for interpolation in ("bicubic", "bilinear"):
                cfg = PreprocessCfg(32, "RGB", (0, 0, 0), (1, 1, 1), interpolation, mode, 7)
                pixels = (image_transform_v2(cfg, is_train=False)(picture) * 255).round().to(torch.uint8)
                pictures = Pictures([str(path)]).prepared(Preparation(32, 32, mode, interpolation, 7))
                assert pictures.shape == (1, 3, 32, 32)
                assert torch.equal(torch.from_numpy(pictures[0]), pixels), (width, height, mode, interpolation)
    with pytest.raises(InputError, match=r"data\.pictures\.crops"):
        Pictures([str(path)], crops=10).prepared(Preparation(32, 32))


def test_long_texts_are_cut_counted_and_said(folders, caplog):
    for place in folders.values():
        words = subwords(place)
        caplog.clear()
        ids = list(words.encode_all([*CAPTIONS, LONG, LONG]))
        assert [len(row) for row in ids[3:]] == [MOST, MOST]
        assert "2 of 5" in caplog.text
        assert len(next(words.encode_all([LONG], max_words=4))) == 6
        again = load_words(json.loads(json.dumps(dump_words(words))))
        assert (again.most, again.clean, again.fingerprint()) == (words.most, words.clean, words.fingerprint())
        with pytest.raises(InputError, match=rf"takes {MOST}: cut with loader.max_words={MOST - 2}"):
            TextTower(*place)(torch.ones(1, MOST + 1, dtype=torch.int64), torch.tensor([MOST + 1]))


def test_what_is_trained(folders):
    """Frozen, with adapters, tuned: the parameters with gradient, and their rates."""
    words = subwords(folders["clip"])
    for made, place, arguments in (
        (ImageTower, folders["open_clip"], (pixels(),)),
        (TextTower, folders["clip"], batch(words)),
    ):
        frozen = made(*place).train()
        assert not any(parameter.requires_grad for parameter in frozen.parameters())
        assert not frozen.network.training
        adapted = made(*place, tune="lora", learning_rate=1e-4, lora_rank=2).train()
        trained = {name: parameter for name, parameter in adapted.named_parameters() if parameter.requires_grad}
        assert trained
        assert all("lora_" in name for name in trained)
        torch.testing.assert_close(adapted(*arguments), frozen(*arguments))  # B is 0 at first
        adapted(*arguments).square().sum().backward()
        assert all(parameter.grad is not None for name, parameter in trained.items() if "lora_B" in name)
        assert [group["lr"] for group in parameter_groups(adapted)] == [1e-4]
        tuned = made(*place, tune="all").train()
        tuned(*arguments).square().sum().backward()
        assert all(parameter.grad is not None for parameter in tuned.parameters())


@pytest.mark.parametrize("kind", ["open_clip", "siglip"])
def test_a_checkpoint_rebuilds_without_the_folder(kind, folders, tmp_path):
    """Adapters too; whatever folder or file the checkpoint names."""
    moved = tmp_path / "moved"
    moved.symlink_to(folders[kind][1])
    words, node = subwords(folders[kind]), {"library": folders[kind][0], "model": str(moved), "tune": "lora"}
    config = {"similarity": {"_target_": "vsehub.similarities.Cosine"}, "data": {}, "loader": {"max_words": None}}
    parts, weights = {}, {}
    for name, made in (("image_encoder", ImageTower), ("text_encoder", TextTower)):
        part = parts[name] = made(**node).eval()
        for key, parameter in part.named_parameters():
            if "lora_B" in key:
                torch.nn.init.normal_(parameter)
        config[name] = {"_target_": f"vsehub.encoders.{made.__name__}", **node, **part.rebuilt}
        weights |= {f"{name}.{key}": weight for key, weight in part.state_dict().items()}
    shape = {"image_shape": [3, SIDE, SIDE], "text_shape": None}
    write_checkpoint(tmp_path / "a.safetensors", weights, {"config": config, "vocabulary": dump_words(words), **shape})
    moved.unlink()
    for change in ({}, {"pretrained": True, "weights": "w.bin"}):
        checkpoint = read_checkpoint(tmp_path / "a.safetensors")
        checkpoint.config["image_encoder"] |= change
        again = restore(checkpoint, Components([conf_folder()]))
        assert torch.equal(again.image_encoder(pixels()), parts["image_encoder"](pixels()))
        assert torch.equal(again.text_encoder(*batch(words)), parts["text_encoder"](*batch(words)))
        assert again.image_encoder.preparation == parts["image_encoder"].preparation
    checkpoint.config["image_encoder"]["config"] = None
    with pytest.raises(InputError, match="config"):
        restore(checkpoint, Components([conf_folder()]))


@pytest.mark.parametrize(("kind", "name"), [("open_clip", WEIGHTS), ("clip", "model.safetensors")])
def test_weights_from_a_file(folders, kind, name):
    settings = {}, {"pretrained": False}, {"pretrained": False, "weights": f"{folders[kind][1]}/{name}"}
    complete, random, read = (weights_hash(ImageTower(*folders[kind], **arguments).network) for arguments in settings)
    assert complete == read != random
    with pytest.raises(InputError, match=r"^weights: "):
        ImageTower(*folders[kind], weights=__file__)


HOSTILE = {
    "auto_map": {"AutoModel": "evil--m.E"},
    "_attn_implementation": "evil/kernel",
    "attn_implementation": "evil/kernel",
    "experts_implementation": "evil/kernel",
    "use_kernels": True,
    "a_key_of_a_later_version": 1,
    "quantization_config": {"quant_method": "evil"},
    "backbone": "hf-hub:evil/model",
}


def test_a_description_holds_known_settings_and_nothing_else(folders, tmp_path):
    """What a model's folder says beyond them is left out; what a checkpoint says beyond them is refused."""
    copy = tmp_path / "own"
    shutil.copytree(folders["clip"][1], copy)
    (copy / "config.json").write_text(json.dumps(json.loads((copy / "config.json").read_text()) | HOSTILE))
    assert ImageTower("hf", str(copy)).rebuilt["config"] == ImageTower(*folders["clip"]).rebuilt["config"]
    wrapper = {"model_type": "timm_wrapper", "model_args": {"checkpoint_path": "payload"}}
    for kind in ("clip", "siglip", "open_clip"):
        library, folder = folders[kind]
        config = json.dumps(ImageTower(library, folder).rebuilt["config"])
        side, word = ("vision_config", "hidden_act") if library == "hf" else ("vision_cfg", "pool_type")
        changes = [{key: value} for key, value in HOSTILE.items()] + [wrapper, {word: "os.system"}]
        changes += [{"timm_model_name": name} for name in ("hf-hub:evil/model", "local-dir:evil", "vit.evil")]
        for change in changes:
            for inside in (False, True):
                changed = json.loads(config)
                (changed["architecture"][side] if inside else changed["architecture"]).update(change)
                with pytest.raises(InputError, match=f"^model: {folder}"):
                    ImageTower(library, folder, pretrained=False, config=changed)


@pytest.mark.parametrize(
    ("library", "model", "named"),
    [
        ("open_clip", "ViT-B-23/openai", "ViT-B-32"),
        ("open_clip", "ViT-B-32", "NAME/WEIGHTS"),
        ("open_clip", "ViT-B-32/laion2b_s34b_b79k", "hf download laion/CLIP-ViT-B-32-laion2B-s34B-b79K"),
        ("open_clip", "hf-hub:nobody/nothing", "hf download nobody/nothing open_clip_config.json"),
        ("open_clip", "xlm-roberta-base-ViT-B-32/laion5b_s13b_b90k", "xlm-roberta-base of transformers"),
        ("hf", "openai/clip-vit-base", "hf download openai/clip-vit-base"),
        ("timm", "x", "library is 'timm'"),
    ],
)
def test_unknown_models(library, model, named, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(InputError, match=named):
        ImageTower(library, model)


def test_spaces_that_do_not_meet(folders):
    first, other = folders["clip"], folders["open_clip"]
    with pytest.raises(InputError, match="give both the same model"):
        check_together(ImageTower(*first), TextTower(*other), Cosine(), HAL())

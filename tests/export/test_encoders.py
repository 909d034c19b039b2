"""Every kind of encoder, exported as ONNX, gives the vectors that it gives itself, whatever the batch."""

import pytest
import torch
from tiny_bert import PIECES, tiny_bert
from tiny_towers import MOST, SIDE, WORDS, tiny_hf, tiny_open_clip

from vsehub.encoders import (
    ImageAdapter,
    ImageBackbone,
    ImageCNN,
    ImageFeatures,
    ImageRegions,
    ImageTower,
    TextGRU,
    TextPretrained,
    TextTower,
    TextTransformer,
)
from vsehub.export.model import Encoded, write_encoder
from vsehub.export.onnx import Onnx

PICTURES = (3, 32, 32)
PIXELS = {"images": {0: "batch"}}
TOKENS = {"texts": {0: "batch", 1: "length"}, "lengths": {0: "batch"}}


@pytest.fixture
def form():
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"format=onnx needs {package}: vsehub[export]")
    return Onnx()


def texts(*lengths, known=20, end=None):
    """Word ids (N, L) of captions of these lengths, and the lengths."""
    found = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    drawn = torch.Generator().manual_seed(sum(lengths))
    for row, length in enumerate(lengths):
        found[row, :length] = torch.randint(3, known, (length,), generator=drawn)
        if end is not None:
            found[row, length - 1] = end
    return found, torch.tensor(lengths)


def batches(shape, whole=False):
    """Batches of 3, 1 and 5 inputs of random numbers: pixels, or features of which some regions are padding."""
    drawn = torch.Generator().manual_seed(0)
    found = []
    for rows in (3, 1, 5):
        if whole:
            found.append((torch.randint(0, 256, (rows, *shape), generator=drawn, dtype=torch.uint8),))
            continue
        images = torch.randn(rows, *shape, generator=drawn)
        if len(shape) == 2:
            images[0, 0] = images[-1, 2] = 0
        found.append((images,))
    return found


def check(form, encoder, given, axes, side, folder):
    told = write_encoder(Encoded(side, encoder.eval(), given, axes), form, folder)
    assert told["largest_difference"] <= 1e-5, type(encoder).__name__
    return told


CELLS = [
    {"cell": cell, "bidirectional": both, "layers": layers, "pooling": pooling}
    for cell, both, layers, pooling in (
        ("gru", False, 1, "last"),
        ("gru", True, 2, "last"),
        ("gru", True, 1, "gpo"),
        ("lstm", True, 2, "max"),
    )
]


@pytest.mark.parametrize(
    "settings",
    [CELLS[0], *(pytest.param(one, marks=pytest.mark.long) for one in CELLS[1:])],
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_words_through_cells(form, settings, tmp_path):
    torch.manual_seed(0)
    encoder = TextGRU(20, dim=6, word_dim=5, **settings)
    told = check(form, encoder, [texts(4, 2, 7), texts(1), texts(9, 3, 1, 1, 5)], TOKENS, "text", tmp_path)
    assert told["inputs"]["texts"]["shape"] == ["batch", "length"]
    assert told["outputs"] == (["vectors", "inside"] if settings["pooling"] == "none" else ["vectors"])


@pytest.mark.parametrize("pooling", ["last", "none"])
@pytest.mark.long
def test_words_through_attention(form, pooling, tmp_path):
    torch.manual_seed(0)
    encoder = TextTransformer(20, dim=6, word_dim=8, heads=2, max_positions=9, pooling=pooling)
    check(form, encoder, [texts(4, 2, 7), texts(1), texts(9, 3, 1, 1, 5)], TOKENS, "text", tmp_path)


@pytest.mark.long
def test_subwords_through_bert(form, tmp_path):
    encoder = TextPretrained(tiny_bert(tmp_path / "bert"), len(PIECES), dim=6)
    known = len(PIECES)
    given = [texts(4, 2, 7, known=known), texts(2, known=known), texts(9, 3, 2, 12, 5, known=known)]
    check(form, encoder, given, TOKENS, "text", tmp_path)


@pytest.mark.parametrize("pooling", ["flat", pytest.param("gpo", marks=pytest.mark.long)])
def test_pixels_through_convolutions(form, pooling, tmp_path):
    torch.manual_seed(0)
    encoder = ImageCNN(PICTURES, dim=6, width=4, stages=3, pooling=pooling)
    check(form, encoder, batches(PICTURES, whole=True), PIXELS, "image", tmp_path)


@pytest.mark.parametrize("pooling", ["mean", pytest.param("none", marks=pytest.mark.long)])
def test_regions_of_which_some_are_padding(form, pooling, tmp_path):
    torch.manual_seed(0)
    check(form, ImageRegions((4, 7), dim=6, pooling=pooling), batches((4, 7)), PIXELS, "image", tmp_path)


def test_vectors(form, tmp_path):
    torch.manual_seed(0)
    for encoder in (ImageFeatures((7,), dim=6), ImageAdapter((7,))):
        check(form, encoder, batches((7,)), PIXELS, "image", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("library", "model", "regions"), [("torchvision", "resnet18", 1), ("timm", "resnet10t", None)])
def test_pixels_through_networks_of_others(form, library, model, regions, tmp_path):
    pytest.importorskip(library)
    torch.manual_seed(0)
    encoder = ImageBackbone(PICTURES, model, 6, library, pretrained=False, regions=regions)
    check(form, encoder, batches(PICTURES, whole=True), PIXELS, "image", tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["open_clip", "clip", "siglip", "chinese_clip"])
def test_towers(form, kind, tmp_path):
    library = "open_clip" if kind == "open_clip" else "hf"
    pytest.importorskip("open_clip" if kind == "open_clip" else "transformers")
    folder = tiny_open_clip(tmp_path / "model") if kind == "open_clip" else tiny_hf(tmp_path / "model", kind)
    linear = 6 if kind == "clip" else None
    image = ImageTower(library, folder, linear=linear)
    told = check(form, image, batches((3, SIDE, SIDE), whole=True), PIXELS, "image", tmp_path)
    assert told["inputs"]["images"] == {"dtype": "uint8", "shape": ["batch", 3, SIDE, SIDE]}
    known, end = (49400, 49407) if kind == "open_clip" else (len(WORDS) - 1, len(WORDS) - 1)
    text = TextTower(library, folder, linear=linear)
    lengths = [(4, 2, 7), (2,), (MOST, 3, 2, 12, 5)]
    given = [texts(*one, known=known, end=end) for one in lengths]
    check(form, text, given, TOKENS, "text", tmp_path)


@pytest.mark.long
def test_adapters_on_a_tower(form, tmp_path):
    pytest.importorskip("peft")
    pytest.importorskip("transformers")
    torch.manual_seed(0)
    encoder = ImageTower("hf", tiny_hf(tmp_path / "model"), tune="lora")
    with torch.no_grad():
        for name, one in encoder.named_parameters():
            if "lora_B" in name:
                one.normal_()
    check(form, encoder, batches((3, SIDE, SIDE), whole=True), PIXELS, "image", tmp_path)

"""Every kind of encoder, exported as ONNX, gives the vectors that it gives itself, whatever the batch."""

from importlib.util import find_spec

import pytest
import torch
from tiny_bert import PIECES, tiny_bert
from tiny_towers import MOST, SIDE, WORDS, tiny_hf, tiny_open_clip

from vsehub.checks import InputError
from vsehub.encoders import (
    ImageAdapter,
    ImageBackbone,
    ImageCNN,
    ImageFeatures,
    ImageRegions,
    ImageTower,
    TextBag,
    TextFeatures,
    TextGRU,
    TextPretrained,
    TextTower,
    TextTransformer,
)
from vsehub.export.onnx import write_encoder
from vsehub.types import Encoder

pytestmark = pytest.mark.skipif(find_spec("onnxscript") is None, reason="pip install 'vsehub[export]'")
PICTURES = (3, 32, 32)
LENGTHS = ((4, 2, 7), (2,), (9, 3, 2, 2, 5))


def texts(lengths=LENGTHS, known=20, end=None):
    """Word ids (N, L) of captions of these lengths, and the lengths."""
    batches = []
    for sizes in lengths:
        ids = torch.zeros(len(sizes), max(sizes), dtype=torch.int64)
        drawn = torch.Generator().manual_seed(sum(sizes))
        for row, length in enumerate(sizes):
            ids[row, :length] = torch.randint(3, known, (length,), generator=drawn)
            if end is not None:
                ids[row, length - 1] = end
        batches.append({"texts": ids, "lengths": torch.tensor(sizes)})
    return batches


def images(*shape, name="images"):
    """Batches of 3, 1 and 5 pictures, or of random features of which some regions are padding."""
    drawn, batches = torch.Generator().manual_seed(0), []
    for rows in (3, 1, 5):
        if len(shape) == 3:
            batches.append({name: torch.randint(0, 256, (rows, *shape), generator=drawn, dtype=torch.uint8)})
            continue
        features = torch.randn(rows, *shape, generator=drawn)
        if len(shape) == 2:
            features[0, 0] = features[-1, 2] = 0
        batches.append({name: features})
    return batches


def check(encoder, batches, folder):
    side = "text" if "texts" in batches[0] else "image"
    described = write_encoder(side, encoder.eval(), batches, folder)
    assert described["largest_difference"] <= 1e-5
    return described


OWN = {
    "gru": (lambda: TextGRU(20, 6, 5), texts()),
    "gru both ways, deep": (lambda: TextGRU(20, 6, 5, layers=2, bidirectional=True), texts()),
    "gru gpo": (lambda: TextGRU(20, 6, 5, bidirectional=True, pooling="gpo"), texts()),
    "lstm": (lambda: TextGRU(20, 6, 5, layers=2, bidirectional=True, cell="lstm", pooling="max"), texts()),
    "transformer": (lambda: TextTransformer(20, 6, 8, heads=2, max_positions=9), texts()),
    "bag": (lambda: TextBag(20, 6), texts()),
    "cnn": (lambda: ImageCNN(PICTURES, 6, 4, stages=3), images(*PICTURES)),
    "cnn gpo": (lambda: ImageCNN(PICTURES, 6, 4, stages=3, pooling="gpo"), images(*PICTURES)),
    "regions": (lambda: ImageRegions((4, 7), 6, "mean"), images(4, 7)),
    "regions gpo": (lambda: ImageRegions((4, 7), 6, "gpo"), images(4, 7)),
    "features": (lambda: ImageFeatures((7,), 6), images(7)),
    "text features": (lambda: TextFeatures((7,), 6), images(7, name="texts")),
    "adapter": (lambda: ImageAdapter((7,)), images(7)),
    "resnet": (lambda: ImageBackbone(PICTURES, "resnet18", 6, pretrained=False), images(*PICTURES)),
    "resnet regions": (
        lambda: ImageBackbone(PICTURES, "resnet18", 6, pretrained=False, regions=1, pooling="mean"),
        images(*PICTURES),
    ),
    "timm": (lambda: ImageBackbone(PICTURES, "resnet10t", 6, "timm", pretrained=False), images(*PICTURES)),
}
SHORT = ("regions",)  # a CNN and a GRU: commands/test_export_command.py


@pytest.mark.parametrize(
    "name", [name if name in SHORT else pytest.param(name, marks=pytest.mark.long) for name in OWN]
)
def test_own_encoders_and_networks(name, tmp_path):
    torch.manual_seed(0)
    make, batches = OWN[name]
    described = check(make(), batches, tmp_path)
    if name == "gru":
        assert described["inputs"]["texts"] == {"dtype": "int64", "shape": ["batch", "length"]}


@pytest.mark.long
def test_subwords_through_bert(tmp_path):
    check(TextPretrained(tiny_bert(tmp_path / "bert"), len(PIECES), 6), texts(known=len(PIECES)), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["open_clip", "clip", "siglip", "chinese_clip"])
def test_towers(kind, tmp_path):
    library = "open_clip" if kind == "open_clip" else "hf"
    folder = tiny_open_clip(tmp_path / "model") if kind == "open_clip" else tiny_hf(tmp_path / "model", kind)
    image = ImageTower(library, folder, tune="lora" if kind == "clip" else "none")
    with torch.no_grad():
        for name, parameter in image.named_parameters():
            if "lora_B" in name:
                parameter.normal_()
    check(image, images(3, SIDE, SIDE), tmp_path)
    known, end = (49400, 49407) if kind == "open_clip" else (len(WORDS) - 1, len(WORDS) - 1)
    check(TextTower(library, folder), texts(((4, 2, 7), (2,), (MOST, 3, 2, 12, 5)), known, end), tmp_path)


class Unknown(Encoder):
    """An operator that ONNX lacks."""

    def forward(self, images):
        return torch.special.bessel_j0(images)


class Vanishing(Encoder):
    """NaN where the encoder itself gives a number."""

    called = False

    def forward(self, images):
        factor = torch.nan if self.called else 1.0
        self.called = images.shape[0] == 5  # after the last batch that is tried
        return images * factor


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (Unknown, "bessel_j0"),
        (Vanishing, "by nan"),
        (lambda: ImageRegions((4, 7), 6, "none"), "sets"),
    ],
)
def test_what_cannot_be_exported(make, named, tmp_path):
    encoder = make()
    with pytest.raises(InputError, match=named):
        write_encoder("image", encoder, images(4, 7) if isinstance(encoder, ImageRegions) else images(3), tmp_path)

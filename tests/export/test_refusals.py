"""What a format cannot express is said with the operator, and nothing is written."""

import pytest
import torch

import vsehub.export.onnx as onnx_format
from vsehub.checks import InputError
from vsehub.encoders import ImageFeatures
from vsehub.export.model import Encoded, write_encoder
from vsehub.export.onnx import Onnx
from vsehub.types import Encoder

for package in ("onnx", "onnxscript", "onnxruntime"):
    pytest.importorskip(package, reason=f"format=onnx needs {package}: vsehub[export]")
AXES = {"images": {0: "batch"}}


class Unknown(Encoder):
    """An operator that ONNX lacks."""

    def forward(self, images):
        return torch.special.bessel_j0(images)


class Branching(Encoder):
    """A step that depends on the values."""

    def forward(self, images):
        return images if images.sum() > 0 else -images


class Drifting(Encoder):
    """Other vectors at each call."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, images):
        self.calls += 1
        return images + 1e-3 * self.calls


class Vanishing(Encoder):
    """NaN where the encoder itself gives a number."""

    def __init__(self):
        super().__init__()
        self.called = False

    def forward(self, images):
        factor = torch.nan if self.called else 1.0
        self.called = images.shape[0] == 1  # after the last batch that is tried
        return images * factor


class Several(Encoder):
    """Sets in a way of its own."""

    gives = "sets"


@pytest.mark.parametrize(
    ("encoder", "said"),
    [
        (Unknown, r"the image encoder cannot be exported as onnx, nothing was written: .*bessel_j0"),
        (Branching, r"the image encoder cannot be exported as onnx, nothing was written: "),
        (Drifting, r"differs from the checkpoint's by .*e-0\d, more than 1e-04; nothing was written"),
        (Vanishing, r"differs from the checkpoint's by nan, more than 1e-04; nothing was written"),
        (Several, r"Several gives sets in a way that cannot be exported"),
    ],
)
def test_the_operator_is_named(encoder, said, tmp_path):
    given = [(torch.rand(rows, 3),) for rows in (3, 1)]
    if encoder is Several:
        encoder.forward = lambda self, images: images
    with pytest.raises(InputError, match=said):
        write_encoder(Encoded("image", encoder(), given, AXES), Onnx(), tmp_path)


def test_large_weights_lie_beside_the_file(tmp_path, monkeypatch):
    """As those of more than two gigabytes must: what is read is not the network in memory."""
    monkeypatch.setattr(onnx_format, "LIMIT", 1000)
    given = [(torch.rand(rows, 40),) for rows in (3, 1)]
    write_encoder(Encoded("image", ImageFeatures((40,), dim=30), given, AXES), Onnx(), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image.onnx", "image.onnx.data"]
    assert (tmp_path / "image.onnx.data").stat().st_size >= 40 * 30 * 4
    (tmp_path / "elsewhere").mkdir()
    for path in list(tmp_path.glob("image*")):
        path.rename(tmp_path / "elsewhere" / path.name)
    assert Onnx().opened(tmp_path / "elsewhere" / "image.onnx")(given[0][0].numpy())[0].shape == (3, 30)

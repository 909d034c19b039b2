import pytest
import torch

from vsehub.checks import InputError
from vsehub.encoders import ImageFeatures, TextFeatures


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_equals_the_encoder_of_image_features(dtype):
    """One and the same map for both sides, so that neither modality is favoured; lengths change nothing."""
    torch.manual_seed(0)
    ours, theirs = TextFeatures((6,), 4), ImageFeatures((6,), 4)
    ours.load_state_dict(theirs.state_dict())
    rows = torch.randn(5, 6).mul(torch.tensor([[1e-3], [1], [7], [-2], [300]])).to(dtype)
    encoded = ours(rows, torch.ones(5, dtype=torch.int64))
    assert torch.equal(encoded, theirs(rows))
    assert torch.equal(encoded, ours(rows, torch.tensor([3, 1, 4, 1, 5])))
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    expected = unit @ ours.linear.weight.double().T + ours.linear.bias.double()
    torch.testing.assert_close(encoded.double(), expected, rtol=1e-5, atol=1e-6)


def test_starts_as_said():
    encoder = TextFeatures((300,), 200)
    bound = (6 / 500) ** 0.5
    assert (encoder.linear.bias == 0).all()
    assert 0.99 * bound < encoder.linear.weight.abs().max() <= bound


def test_refuses_texts_that_are_no_vectors():
    with pytest.raises(InputError, match=r"one feature vector a text, but the data's texts have shape \(36, 12\)"):
        TextFeatures((36, 12))

import pytest
import torch
from looped import looped
from torch.nn.functional import normalize

from vsehub.checks import InputError
from vsehub.encoders import ImageCNN, ImageRegions
from vsehub.sets import Sets


def pooled(pooling, encoder, regions):
    """One set's encoding; the sets themselves where nothing pools."""
    kinds = {"none": lambda r: r, "mean": lambda r: r.mean(0), "max": lambda r: r.max(0).values}
    return kinds[pooling](regions) if pooling in kinds else encoder.pool(regions[None], torch.tensor([len(regions)]))[0]


def row_of(encoded, number):
    return encoded[torch.tensor([number])].vectors if isinstance(encoded, Sets) else encoded[number]


@looped("pooling", ["none", "mean", "max", "gpo"])
def test_the_networks_last_map_as_regions(pooling):
    torch.manual_seed(0)
    encoder = ImageCNN((3, 64, 96), dim=6, width=4, pooling=pooling).eval()
    pixels = torch.randint(0, 256, (3, 3, 64, 96), dtype=torch.uint8)
    last = encoder.features[:-1](pixels.float() / 255 - 0.5)
    assert last.shape[2:] == (4, 6)
    encoded = encoder(pixels)
    for number in range(3):
        regions = torch.stack([encoder.linear(last[number, :, y, x]) for y in range(4) for x in range(6)])
        expected = pooled(pooling, encoder, regions)
        torch.testing.assert_close(row_of(encoded, number), expected, rtol=1e-4, atol=1e-5)


@looped("side", [64, 48, 96])  # 4 x 4, 3 x 3 and 6 x 6
def test_a_last_map_of_even_sides_is_averaged_as_any_other(side):
    torch.manual_seed(0)
    encoder = ImageCNN((3, side, side), dim=6, width=4).eval()
    pixels = torch.rand(3, 3, side, side)
    quarters = torch.nn.AdaptiveAvgPool2d(2)(encoder.features[:-2](pixels - 0.5))
    torch.testing.assert_close(encoder(pixels), encoder.linear(quarters.flatten(1)), rtol=1e-5, atol=1e-6)


@looped("dtype", [torch.float16, torch.float32, torch.float64])
@looped("pooling", ["none", "mean", "max", "gpo"])
def test_regions_of_zeros_are_left_out_wherever_they_stand(pooling, dtype):
    torch.manual_seed(0)
    encoder = ImageRegions((5, 3), dim=6, pooling=pooling)
    images = torch.randn(4, 5, 3).to(dtype)
    images[0, 3:] = images[1, :4] = images[2, [0, 2]] = 0
    images[3, 1, :2] = 0  # a feature that is not 0 makes a region
    encoded = encoder(images)
    rows = [[0, 1, 2], [4], [1, 3, 4], [0, 1, 2, 3, 4]]
    for number, (image, count) in enumerate(zip(images, rows, strict=True)):
        expected = pooled(pooling, encoder, encoder.linear(normalize(image[count].float(), dim=1)))
        torch.testing.assert_close(row_of(encoded, number), expected, rtol=1e-5, atol=1e-6)


def test_refusals():
    with pytest.raises(InputError, match="1 of 2 images"):
        ImageRegions((2, 3), dim=4)(torch.tensor([[[1.0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]]))
    with pytest.raises(InputError, match="pooling"):
        ImageCNN((3, 64, 64), pooling="last")
    with pytest.raises(InputError, match="width is 20"):
        ImageCNN((3, 64, 64), width=20, norm="group")
    ImageCNN((3, 64, 64), width=12, norm="group")

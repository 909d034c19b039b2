"""The loss of mine.py against plain loops, with ties and a batch of one pair; the rows and gradient of its encoder."""

import math

import pytest
import torch
from mine import Patches, SoftMargin


def by_loops(scores, positives, beta):
    size, total = len(scores), 0.0
    for n in range(size):
        for m in range(size):
            if not positives[n, m]:
                total += math.log1p(math.exp(beta * (scores[n, m] - scores[n, n])))
            if not positives[m, n]:
                total += math.log1p(math.exp(beta * (scores[m, n] - scores[n, n])))
    return total / beta / size


@pytest.mark.parametrize("image_ids", [[0, 1, 2, 3, 4], [0, 1, 1, 2, 0], [3, 3, 3, 3, 3], [7]])
def test_equals_loops(image_ids):
    ids = torch.tensor(image_ids)
    scores = torch.rand(len(ids), len(ids), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    positives = ids[:, None] == ids[None, :]
    expected = by_loops(scores.numpy(), positives.numpy(), 8.0)
    assert SoftMargin(8.0)(scores, positives)["loss"].item() == pytest.approx(expected, rel=1e-12)


def test_a_row_of_the_encoder_depends_on_its_picture_only():
    encoder, random = Patches((3, 8, 8), dim=5), torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (4, 3, 8, 8), generator=random, dtype=torch.uint8)
    rows = encoder(pictures)
    assert rows.shape == (4, 5)
    torch.testing.assert_close(torch.cat([encoder(picture[None]) for picture in pictures]), rows)
    assert not torch.allclose(rows[0], rows[1])
    rows.sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in encoder.parameters())

"""Encoders of vectors: the linear map by its formula; adapters start at the frozen model and follow their formula."""

import re

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.encoders import ImageAdapter, ImageFeatures, TextAdapter, TextFeatures
from vsehub.losses import HAL
from vsehub.similarities import Cosine
from vsehub.training.module import check_together


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_features_are_one_map_for_both_sides(dtype):
    torch.manual_seed(0)
    ours, theirs = TextFeatures((6,), 4), ImageFeatures((6,), 4)
    ours.load_state_dict(theirs.state_dict())
    rows = torch.randn(5, 6).mul(torch.tensor([[1e-3], [1], [7], [-2], [300]])).to(dtype)
    encoded = ours(rows, torch.tensor([3, 1, 4, 1, 5]))
    assert torch.equal(encoded, theirs(rows))
    unit = rows.double() / rows.double().norm(dim=1, keepdim=True)
    expected = unit @ ours.linear.weight.double().T + ours.linear.bias.double()
    torch.testing.assert_close(encoded.double(), expected, rtol=1e-5, atol=1e-6)


def test_an_untrained_adapter_ranks_as_the_frozen_vectors_do():
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(200, 24, generator=generator) * 7 for _ in range(2))
    texts[3], texts[4] = texts[5], images[0]  # copies of a text and of an image
    frozen = Cosine()(images, texts)
    for settings in ({}, {"hidden": 0}, {"hidden": 6, "ratio": 0.9, "dropout": 0.5}):
        for training in (False, True):
            image, text = (kind((24,), **settings).train(training) for kind in (ImageAdapter, TextAdapter))
            scores = Cosine()(image(images), text(texts, torch.ones(200)))
            torch.testing.assert_close(scores, frozen, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_change_follows_its_formula(dtype):
    torch.manual_seed(0)
    rows = torch.randn(5, 8).mul(torch.tensor([[1e-2], [1], [7], [-2], [300]])).to(dtype)
    for hidden in (0, 3):
        image, text = ImageAdapter((8,), hidden, ratio=0.3), TextAdapter((8,), hidden, ratio=0.3)
        for parameter in image.parameters():
            torch.nn.init.normal_(parameter)
        text.load_state_dict(image.state_dict())
        vectors = image(rows).detach()
        assert torch.equal(vectors, text(rows, torch.tensor([3, 1, 4, 1, 5])))
        weights = [parameter.detach().double().numpy() for parameter in image.parameters()]
        for row, ours in zip(rows.double().numpy(), vectors.double().numpy(), strict=True):
            unit = row / np.sqrt((row**2).sum())
            change = unit
            for place in range(0, len(weights), 2):
                change = weights[place] @ (np.maximum(change, 0) if place else change) + weights[place + 1]
            moved = 0.7 * unit + 0.3 * change
            np.testing.assert_allclose(ours, moved / np.sqrt((moved**2).sum()), rtol=1e-4, atol=1e-5)


@looped(("kind", "shape"), [(ImageAdapter, (36, 12)), (TextFeatures, (3, 8, 8))])
def test_other_shapes_are_refused(kind, shape):
    with pytest.raises(InputError, match=re.escape(str(shape))):
        kind(shape)


def test_sides_of_different_sizes_are_refused():
    with pytest.raises(InputError, match="8 numbers"):
        check_together(ImageAdapter((8,)), TextAdapter((6,)), Cosine(), HAL())

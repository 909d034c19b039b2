"""Residual adapters: they start at the frozen model, follow their formula, and refuse what they cannot adapt."""

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.encoders import ImageAdapter, TextAdapter, TextFeatures
from vsehub.losses import HAL, InfoNCE
from vsehub.similarities import Cosine
from vsehub.training.module import check_together


def test_an_untrained_adapter_ranks_as_the_frozen_vectors_do():
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.randn(200, 24, generator=generator) * 7 for _ in range(2))
    texts[3], texts[4] = texts[5], images[0]  # copies of a text and of an image
    frozen = Cosine()(images, texts)
    for settings in ({}, {"hidden": 0}, {"hidden": 6, "ratio": 0.9, "dropout": 0.5}):
        for training in (False, True):
            image, text = (kind((24,), **settings).train(training) for kind in (ImageAdapter, TextAdapter))
            given = Cosine()(image(images), text(texts, torch.ones(200)))
            torch.testing.assert_close(given, frozen, rtol=0, atol=1e-6)
            for ours, theirs in ((given, frozen), (given.T, frozen.T)):
                order = theirs.argsort(dim=1, descending=True, stable=True)
                assert (ours.gather(1, order).diff(dim=1) <= 1e-6).all()
                assert torch.equal(ours.topk(1).values, ours.gather(1, order[:, :1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_change_follows_its_formula(dtype):
    torch.manual_seed(0)
    rows = torch.randn(5, 8).mul(torch.tensor([[1e-2], [1], [7], [-2], [300]])).to(dtype)
    for hidden in (0, 3):
        image, text = ImageAdapter((8,), hidden, ratio=0.3), TextAdapter((8,), hidden, ratio=0.3)
        for parameter in image.parameters():
            torch.nn.init.normal_(parameter)
        text.load_state_dict(image.state_dict())
        given = image(rows).detach()
        assert torch.equal(given, text(rows, torch.tensor([3, 1, 4, 1, 5])))
        weights = [one.detach().double().numpy() for one in image.parameters()]
        for row, ours in zip(rows.double().numpy(), given.double().numpy(), strict=True):
            unit = row / np.sqrt((row**2).sum())
            change = unit
            for place in range(0, len(weights), 2):
                change = weights[place] @ (np.maximum(change, 0) if place else change) + weights[place + 1]
            moved = 0.7 * unit + 0.3 * change
            np.testing.assert_allclose(ours, moved / np.sqrt((moved**2).sum()), rtol=1e-4, atol=1e-5)


def test_the_first_step_moves_every_kind_of_adapter():
    """The last layer starts at 0: gradients reach it, and from the second step on the first layer too."""
    torch.manual_seed(0)
    vectors = torch.randn(16, 8)
    pairs = torch.eye(16, dtype=torch.bool)
    for hidden in (0, 4):
        for loss in (InfoNCE(), HAL()):
            image, text = ImageAdapter((8,), hidden), TextAdapter((8,), hidden)
            optimizer = torch.optim.SGD([*image.parameters(), *text.parameters()], lr=0.1)
            for step in range(2):
                optimizer.zero_grad()
                scores = Cosine()(image(vectors), text(vectors + 0.3 * torch.randn(16, 8), torch.ones(16)))
                loss(scores, pairs)["loss"].backward()
                moved = [bool(one.grad.abs().sum() > 0) for one in image.parameters()]
                assert all(moved[-2:])
                assert all(moved) or step == 0
                optimizer.step()


def test_dropout_only_acts_in_training():
    torch.manual_seed(0)
    adapter = ImageAdapter((40,), dropout=0.5)
    torch.nn.init.normal_(adapter.change[-1].weight)
    rows = torch.randn(3, 40)
    assert not torch.equal(adapter(rows), adapter(rows))
    adapter.eval()
    assert torch.equal(adapter(rows), adapter(rows))
    assert sum(one.numel() for one in adapter.parameters()) == 40 * 10 + 10 + 10 * 40 + 40  # a quarter, as in the paper


def test_refusals():
    for make, message in (
        (lambda: ImageAdapter((36, 12)), r"takes one vector an image, but the data's images have shape \(36, 12\)"),
        (lambda: TextAdapter((3, 8, 8)), r"takes one vector a text, but the data's texts have shape \(3, 8, 8\)"),
        (lambda: ImageAdapter((8,), ratio=1.0), "ratio is 1.0; expected a number between 0"),
        (lambda: ImageAdapter((8,), ratio=0), "ratio is 0; expected a number between 0"),
        (lambda: TextAdapter((8,), hidden=-1), "hidden is -1; expected a whole number from 0 up, or null"),
        (lambda: TextAdapter((8,), hidden=True), "hidden is True"),
        (lambda: TextAdapter((8,), dropout=1.0), "dropout is 1.0"),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_sides_of_different_sizes_are_refused():
    for text in (TextAdapter((6,)), TextFeatures((6,), 4)):
        with pytest.raises(
            InputError, match=r"gives vectors of 8 numbers and the text encoder Text\w+ of [46]; an adap"
        ):
            check_together(ImageAdapter((8,)), text, Cosine(), HAL())
    check_together(ImageAdapter((8,)), TextFeatures((6,), 8), Cosine(), HAL())

"""Losses, similarities, encoders and extraction on a pretended device: nothing mixes devices."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pretended_device import back, moved, pretended
from test_contract import IMAGE_SHAPES, LARGE, TOWERS, batch, composed, encoding, instantiated, names

from vsehub.cli.nodes import build
from vsehub.encoders import ImageFeatures, TextFeatures
from vsehub.encoders.cca import LinearMap
from vsehub.sets import Sets
from vsehub.training.closed_form import FittedCca
from vsehub.types import NeighborStats

D = 8


@pytest.fixture(autouse=True)
def on_it():
    with pretended():
        yield


def same(found, expected):
    if isinstance(expected, Sets):
        assert torch.equal(back(found.lengths), expected.lengths)
        found, expected = found.vectors, expected.vectors
    torch.testing.assert_close(back(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", names("loss"))
@pytest.mark.parametrize("with_bank", [False, True])
def test_a_loss_and_its_gradient(name, with_bank):
    loss = instantiated("loss", name)
    scores, positives, stats = batch(9)
    if not (with_bank and loss.takes_neighbors):
        stats = None
    plain = scores.clone().requires_grad_()
    value = loss(plain, positives, stats)["loss"]
    value.backward()
    own = moved(loss)
    given = moved(scores.clone()).requires_grad_()
    found = own(given, moved(positives), None if stats is None else NeighborStats(*map(moved, stats)))["loss"]
    found.backward()
    torch.testing.assert_close(back(found), value.detach())
    torch.testing.assert_close(back(given.grad), plain.grad)


@pytest.mark.parametrize("name", names("similarity"))
def test_a_similarity(name):
    similarity = instantiated("similarity", name)
    images, texts = (encoding(similarity.takes, n, seed) for n, seed in ((5, 0), (7, 1)))
    expected = similarity(images, texts)
    found = moved(similarity)(moved(images), moved(texts))
    torch.testing.assert_close(back(found), expected)


def training_mode_off(module):
    """Without dropout, whose numbers differ, but with everything else as in training."""
    module.train()
    for part in module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return module


@pytest.mark.parametrize("name", [one for one in names("image_encoder") if one not in (*TOWERS, *LARGE)])
def test_an_image_encoder(name):
    shape = IMAGE_SHAPES.get(name, (3, 64, 64))
    node = composed("image_encoder", name).image_encoder
    if "pretrained" in set(node):
        pytest.skip("networks of other libraries run as they are")
    torch.manual_seed(0)
    encoder = training_mode_off(
        build("image_encoder", node, image_shape=list(shape), **({"dim": D} if "dim" in node else {}))
    )
    images = torch.rand(4, *shape)
    expected = encoder(images)
    found = moved(encoder)(moved(images))
    (found.vectors if isinstance(found, Sets) else found).sum().backward()
    same(found, expected)


@pytest.mark.parametrize("name", [one for one in names("text_encoder") if one not in TOWERS])
def test_a_text_encoder(name):
    node = composed("text_encoder", name).text_encoder
    if "model" in set(node):
        pytest.skip("networks of other libraries run as they are")
    torch.manual_seed(0)
    sized = {"dim": D} if "dim" in set(node) else {}
    if "text_shape" in set(node):
        texts, lengths = torch.rand(4, 16), torch.ones(4, dtype=torch.int64)
        encoder = build("text_encoder", node, text_shape=[16], **sized)
    else:
        lengths = torch.tensor([6, 2, 4, 1])
        texts = torch.randint(1, 20, (4, 6)).masked_fill(torch.arange(6) >= lengths[:, None], 0)
        encoder = build("text_encoder", node, vocabulary_size=20, **sized)
    encoder = encoder.eval()
    expected = encoder(texts, lengths)
    found = moved(encoder)(moved(texts), moved(lengths))
    (found.vectors if isinstance(found, Sets) else found).sum().backward()
    same(found, expected)


def test_a_solved_model_goes_into_encoders_there():
    random = np.random.default_rng(0)
    maps = [LinearMap(random.random(12), random.random((12, D))) for _ in range(2)]
    rows = F.normalize(torch.rand(4, 12), dim=1)
    expected, found = [], []
    for put, sides in ((back, expected), (moved, found)):
        encoders = [put(one) for one in (ImageFeatures((12,), D), TextFeatures((12,), D))]
        FittedCca(*maps, None, {}, 0.0).put_into(*encoders)
        sides += [encoders[0](put(rows)), encoders[1](put(rows), put(torch.ones(4)))]
    torch.testing.assert_close(back(found), expected)

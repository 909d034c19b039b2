"""Device handling on a machine without a GPU: nothing mixes devices, and a training step waits for nothing unnamed."""

import pytest
import torch
import torch.nn.functional as F
from pretended_device import back, moved, pretended, traffic
from test_contract import IMAGE_SHAPES, LARGE, TOWERS, batch, composed, encoding, instantiated, names

from vsehub.cli.nodes import build
from vsehub.losses import HAL
from vsehub.neighbors import MemoryBank
from vsehub.sets import Sets
from vsehub.training.module import RetrievalModule
from vsehub.types import Batch, NeighborStats

N, D, M = 12, 8, 40


@pytest.fixture(autouse=True)
def on_it():
    with pretended():
        yield


def there(value):
    if isinstance(value, Sets):
        return Sets(moved(value.vectors), moved(value.lengths))
    return None if value is None else moved(value)


def here(value):
    return Sets(back(value.vectors), back(value.lengths)) if isinstance(value, Sets) else back(value)


def same(found, expected):
    if isinstance(expected, Sets):
        assert torch.equal(here(found).lengths, expected.lengths)
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
    with traffic() as counted:
        found = own(given, moved(positives), None if stats is None else NeighborStats(*map(moved, stats)))["loss"]
        found.backward()
    torch.testing.assert_close(back(found), value.detach())
    torch.testing.assert_close(back(given.grad), plain.grad)
    assert not counted.counts, counted.places


@pytest.mark.parametrize("name", names("similarity"))
def test_a_similarity(name):
    similarity = instantiated("similarity", name)
    images, texts = (encoding(similarity.takes, n, seed) for n, seed in ((5, 0), (7, 1)))
    expected = similarity(images, texts)
    with traffic() as counted:
        found = moved(similarity)(there(images), there(texts))
    torch.testing.assert_close(back(found), expected)
    print(counted.places)


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
    with traffic() as counted:
        found = moved(encoder)(moved(images))
        (found.vectors if isinstance(found, Sets) else found).sum().backward()
    same(found, expected)
    print(counted.places)


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
    with traffic() as counted:
        found = moved(encoder)(moved(texts), moved(lengths))
        (found.vectors if isinstance(found, Sets) else found).sum().backward()
    same(found, expected)
    print(counted.places)


def unit(count, seed):
    random = torch.Generator().manual_seed(seed)
    images = torch.randn(count, D, generator=random)
    texts = images + 0.7 * torch.randn(count, D, generator=random)
    return F.normalize(images, dim=1), F.normalize(texts, dim=1), torch.arange(count) // 2, torch.arange(count)


@pytest.mark.parametrize("backend", ["exact"])
@pytest.mark.parametrize("exclude", ["image", "batch_captions"])
def test_the_bank(backend, exclude):
    filled, asked = unit(M, 0), unit(N, 1)
    plain, own = (MemoryBank(k=5, backend=backend, exclude=exclude) for _ in range(2))
    plain.fill(*filled)
    expected = plain.query(*asked, True)
    own.fill(*map(moved, filled))
    with traffic() as counted:
        found = own.query(*map(moved, asked), True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(back(one), other)
    print(counted.places)

"""Device handling on a machine without a GPU: nothing mixes devices, and a training step waits for nothing unnamed."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from pretended_device import back, moved, pretended, traffic
from test_contract import IMAGE_SHAPES, LARGE, TOWERS, batch, composed, encoding, instantiated, names

from vsehub import CorrectedSearch
from vsehub.cli.nodes import build
from vsehub.criteria import CSLS
from vsehub.encoders import ImageFeatures, TextGRU
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.evaluate import evaluate
from vsehub.losses import HAL
from vsehub.neighbors import MemoryBank
from vsehub.sets import Sets
from vsehub.similarities import Cosine
from vsehub.training.module import RetrievalModule
from vsehub.types import Batch, NeighborStats

N, D, M = 12, 8, 40
# All that a training step may wait for, by file: none of it is a matrix.
WAITS = {
    *("to_cpu encoders/texts.py", "from_cpu encoders/texts.py"),  # packed sequences want the captions' lengths there
    *("to_cpu encoders/pooling.py", "from_cpu encoders/pooling.py", "scalar encoders/pooling.py"),
    *("scalar encoders/images.py", "nonzero encoders/images.py"),  # regions that are all 0 are none
    *("scalar sets.py", "nonzero sets.py"),
    *("scalar similarities/scan/cross_attention.py", "from_cpu similarities/scan/cross_attention.py"),  # sizes of sets
    *("to_cpu similarities/scan/cross_attention.py", "to_cpu similarities/scan/tiles.py"),
    "from_cpu similarities/scan/tiles.py",
    "scalar neighbors/bank.py",  # how many entries of the bank are the batch's own
}


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
    assert set(counted.places) <= WAITS, counted.places


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
    assert set(counted.places) <= WAITS, counted.places


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
    assert set(counted.places) <= WAITS, counted.places


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
    assert set(counted.places) <= WAITS, counted.places


@pytest.mark.parametrize("name", names("criterion"))
def test_a_criterion(name):
    criterion = instantiated("criterion", name)
    if name == "auto":
        pytest.skip("auto is a choice among criteria")
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 15, 11))
    scores, reference = queries @ items.T, more @ items.T
    further = None
    if criterion.correction.reference_items_as == "rows":
        further = items[:4] @ items.T
    for given in (None, reference) if criterion.inductive else (None,):
        expected = criterion.rescore(scores, given, reference_item_scores=further)
        found = criterion.rescore(moved(scores), there(given), reference_item_scores=there(further))
        torch.testing.assert_close(back(found), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", names("criterion"))
def test_a_criterions_search(name):
    criterion = instantiated("criterion", name)
    if name == "auto" or criterion.matching is not None:
        pytest.skip("it has no search of its own")
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 35, 21))
    expected = criterion.search(queries, items, more, 5)
    found = criterion.search(*map(moved, (queries, items, more)), 5)
    torch.testing.assert_close(back(found[0]), expected[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(back(found[1]), expected[1])


@pytest.mark.parametrize("bf16", [False, True])
def test_an_evaluation(bf16):
    images, texts, image_ids, _ = unit(20, 3)
    split = EncodedSplit(images[::2].contiguous(), texts, image_ids)
    protocol = instantiated("protocol", "single")
    expected = evaluate(split, Cosine(), CSLS(k=3), protocol, bf16=bf16)
    own = EncodedSplit(*map(moved, (split.images, split.texts, split.image_index)))
    found = evaluate(own, Cosine(), CSLS(k=3), protocol, bf16=bf16)
    assert found.metrics == pytest.approx(expected.metrics, abs=1e-4)
    assert found.histograms == expected.histograms


@pytest.mark.parametrize("criterion", ["nns", "csls", "is", "sinkhorn"])
def test_corrected_search(criterion):
    random = torch.Generator().manual_seed(0)
    queries, items, more = (F.normalize(torch.randn(n, D, generator=random), dim=1) for n in (9, 35, 21))
    searches = [CorrectedSearch(criterion, k=4, device=device).fit(items, reference=more) for device in (None, "npu")]
    for search in searches:
        search.calibrate(queries, torch.arange(9))
    expected, found = (search.search(queries, p_values=True, accept=0.5) for search in searches)
    torch.testing.assert_close(here(found[2]), expected[2])
    assert torch.equal(here(found[1]), expected[1])
    torch.testing.assert_close(here(found[0]), expected[0], rtol=1e-4, atol=1e-5)


class Step(RetrievalModule):
    """A module without a trainer, which logs nothing."""

    def log_dict(self, *_, **__):
        """Nothing."""


@pytest.mark.parametrize("chunk", [None, 5])
@pytest.mark.parametrize("with_bank", [False, True])
def test_a_training_step(chunk, with_bank):
    """The default encoders without dropout: the same loss and weights after three steps."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 8, (N,), generator=random)
    texts = torch.randint(4, 30, (N, 8), generator=random).masked_fill(torch.arange(8) >= lengths[:, None], 0)
    given = Batch(torch.rand(N, 12, generator=random), texts, lengths, torch.arange(N) // 2, torch.arange(N))
    filled = unit(M, 0)

    def trained(there):
        torch.manual_seed(0)
        encoders = ImageFeatures((12,), D), TextGRU(30, D, 6, bidirectional=True, pooling="gpo")
        module = Step(
            *encoders, Cosine(), HAL(), partial(torch.optim.Adam, lr=0.01), lambda optimizer: None, chunk=chunk
        )
        for part in (*encoders, module):
            there(part)
        if with_bank:
            module.bank = MemoryBank(k=5, backend="exact")
            module.bank.fill(*map(there, filled))
        optimizer = torch.optim.Adam(module.parameters(), lr=0.01, foreach=False)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = module.training_step(Batch(*map(there, given[:5])), 0)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 2.0, foreach=False)
            optimizer.step()
            losses.append(loss.detach())
        return losses, list(module.parameters())

    expected, weights = trained(lambda one: one)
    with traffic() as counted:
        found, own = trained(moved)
    torch.testing.assert_close(back(found), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        [back(one.detach()) for one in own], [one.detach() for one in weights], rtol=1e-3, atol=1e-4
    )
    assert set(counted.places) <= WAITS, counted.places

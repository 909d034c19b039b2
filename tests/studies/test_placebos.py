"""The placebos of the bank's study, and N_10 of a batch's items."""

import torch
import torch.nn.functional as F

from experiments.bank.placebos import BlindHAL, CountingBank
from vsehub.losses import HAL
from vsehub.types import NeighborStats


def test_placebos_keep_the_weights_and_lose_whose_they_are():
    size = 6
    scores = torch.rand(size, size, dtype=torch.float64)
    positives = torch.eye(size, dtype=torch.bool)
    hubs = torch.tensor([4.0, 0, 9, 1, 2, 30])
    stats = NeighborStats(*torch.rand(2, size, 3, dtype=torch.float64), hubs, hubs.flip(0))
    settings = {"alpha": 5.0, "beta": 5.0}
    weights = HAL(**settings).weights(scores, stats)
    by_order = {
        order: BlindHAL(order=order, **settings).weights(scores, stats)
        for order in ("own", "constant", "permuted", "sorted", "reversed")
    }
    assert torch.equal(by_order["own"], weights)
    for entries in (positives, ~positives):
        between = weights[entries]
        torch.testing.assert_close(by_order["constant"][entries], between.mean().expand(len(between)))
        together = (hubs[:, None] + hubs.flip(0)[None])[entries]
        for order, direction in (("sorted", 1), ("reversed", -1)):
            assert torch.equal(by_order[order][entries].sort().values, between.sort().values)
            by_hubs = by_order[order][entries][together.argsort(stable=True)]
            different = together.sort().values.diff() != 0
            assert (direction * by_hubs.diff()[different] >= 0).all()
    turned = [3, 4, 5, 0, 1, 2]
    assert torch.equal(by_order["permuted"], weights[turned][:, turned])


def test_the_bank_counts_how_often_an_item_would_be_among_the_nearest():
    torch.manual_seed(0)
    images, texts = (F.normalize(torch.randn(40, 4), dim=1) for _ in range(2))
    photos = torch.arange(40) // 2
    bank = CountingBank(k=5, backend="exact")
    bank.fill(images, texts, photos, torch.arange(40))
    batch = [F.normalize(torch.randn(3, 4), dim=1) for _ in range(2)]
    stats = bank.query(*batch, torch.tensor([0, 7, 30]), torch.tensor([100, 101, 102]))
    for side, entries, others, counts in (
        (batch[1], images, texts, stats.text_centrality),
        (batch[0], texts, images, stats.image_centrality),
    ):
        for item, photo, count in zip(side, (0, 7, 30), counts, strict=True):
            nearer = (entries @ others.T > (entries @ item)[:, None]) & (photos[:, None] != photos[None, :])
            expected = ((nearer.sum(dim=1) < 10) & (photos != photo)).sum()
            assert count == expected

import torch
from looped import looped
from torch.nn.functional import normalize

from vsehub.losses import HAL, NeighborRetr
from vsehub.neighbors import MemoryBank

PAIRS, KEPT = 300, 60


def trained(loss, with_bank, steps=60):
    """Two linear maps, trained on noisy views of the same points; R@1 in % on pairs that training did not see."""
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(PAIRS + KEPT, 8, generator=generator)
    sides = [points @ torch.randn(8, 24, generator=generator) for _ in range(2)]
    sides = [side + 0.3 * torch.randn(side.shape, generator=generator) for side in sides]
    maps = [(0.1 * torch.randn(24, 16, generator=generator)).requires_grad_() for _ in range(2)]
    optimizer = torch.optim.Adam(maps, lr=0.01)
    encoded = lambda rows: [normalize(side[rows] @ one, dim=1) for side, one in zip(sides, maps, strict=True)]  # noqa: E731
    bank, ids, positives = MemoryBank(10, "exact"), torch.arange(PAIRS), torch.eye(64, dtype=torch.bool)
    for step in range(steps):
        if with_bank and step % 20 == 0:
            bank.fill(*(side.detach() for side in encoded(ids)), ids, ids)
        rows = torch.randperm(PAIRS, generator=generator)[:64]
        images, texts = encoded(rows)
        found = bank.query(images, texts, rows, rows, loss.takes_centrality) if with_bank else None
        value = loss(images @ texts.T, positives, found)["loss"]
        assert torch.isfinite(value)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    images, texts = encoded(torch.arange(PAIRS, PAIRS + KEPT))
    return 100 * float(((images @ texts.T).argmax(dim=1) == torch.arange(KEPT)).float().mean())


@looped(
    ("loss", "with_bank"),
    [
        (NeighborRetr(), False),
        (NeighborRetr(), True),
        (NeighborRetr(neighbor_weight=0.0), True),
        (HAL(statistics="batch"), False),
        (HAL(), True),
    ],
)
def test_pairs_that_were_not_seen_find_each_other(loss, with_bank):
    """By chance R@1 is 1.7 %."""
    assert trained(loss, with_bank, steps=0) < 10
    assert trained(loss, with_bank) > 60

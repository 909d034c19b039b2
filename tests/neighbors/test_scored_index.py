import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors import ExactIndex, MemoryBank, ScoredIndex, ShortlistIndex
from vsehub.neighbors import bank as scored_index
from vsehub.sets import Sets
from vsehub.types import Similarity


class BestMatch(Similarity):
    """The mean over a text's words of their best region: asymmetric, of sets, no inner product."""

    takes = "sets"

    def forward(self, images, texts):
        regions, words = (side.vectors.split(side.lengths.tolist()) for side in (images, texts))
        return torch.stack([torch.stack([(w @ r.T).amax(dim=1).mean() for w in words]) for r in regions])


def sets(count, seed, dim=6):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 5, (count,), generator=generator)
    return Sets(torch.randn(int(lengths.sum()), dim, generator=generator), lengths)


@pytest.fixture(params=["images", "texts"])
def side(request):
    return request.param


def by_hand(queries, entries, side, k):
    scores = BestMatch()(queries, entries) if side == "texts" else BestMatch()(entries, queries).T
    return scores.topk(k, dim=1)


def test_everything_scored_is_exact_also_by_a_shortlist_of_all(side, monkeypatch):
    monkeypatch.setattr(scored_index, "BLOCK_ELEMENTS", 40)  # three queries at a time
    queries, entries = sets(7, 0), sets(13, 1)
    whole = ShortlistIndex(entries, BestMatch(), side, 13, ExactIndex)
    for index in (ScoredIndex(entries, BestMatch(), side), whole):
        torch.testing.assert_close(index.search(queries, 5), tuple(by_hand(queries, entries, side, 5)))


def test_a_short_shortlist_keeps_its_best(side):
    queries, entries = sets(60, 0), sets(200, 1)
    index = ShortlistIndex(entries, BestMatch(), side, 3, ExactIndex)
    values, positions = index.search(queries, 4)
    scores = BestMatch()(queries, entries) if side == "texts" else BestMatch()(entries, queries).T
    torch.testing.assert_close(values, scores.gather(1, positions))
    assert (values.diff(dim=1) <= 0).all()
    exact = scores.topk(4, dim=1).indices
    overlap = torch.tensor([len({*a} & {*b}) for a, b in zip(exact.tolist(), positions.tolist(), strict=True)])
    assert 0.2 < overlap.sum().item() / (4 * 60) < 1.0


@pytest.mark.parametrize("shortlist", [None, 30])
def test_the_banks_neighbours_are_those_of_loops(shortlist):
    images, texts, similarity = sets(30, 2), sets(30, 3), BestMatch()
    image_ids, caption_ids = torch.arange(30) // 2, torch.arange(30)
    bank = MemoryBank(k=5, shortlist=shortlist)
    bank.fill(images, texts, image_ids, caption_ids, similarity)
    batch_images, batch_texts, ids = sets(4, 4), sets(4, 5), torch.tensor([0, 3, 3, 40])
    neighbors = bank.query(batch_images, batch_texts, ids, torch.tensor([0, 6, 7, 90]))
    i2t, t2i = similarity(batch_images, texts), similarity(images, batch_texts).T
    for stats, scores in zip(neighbors[:2], (i2t, t2i), strict=True):
        for row in range(4):
            allowed = scores[row, image_ids != ids[row]]
            torch.testing.assert_close(stats[row], allowed.sort(descending=True).values[:5])


def test_a_bank_of_sets_needs_their_similarity():
    entries = sets(20, 0)
    with pytest.raises(InputError, match="images and texts are Sets; give the similarity that compares them"):
        MemoryBank(2, "exact").fill(entries, entries, torch.arange(20), torch.arange(20))


@pytest.mark.parametrize("shortlist", [None, 1])
def test_the_centrality_of_sets_is_exact_whatever_the_shortlist(shortlist, monkeypatch):
    monkeypatch.setattr(scored_index, "BLOCK_ELEMENTS", 40)  # three queries at a time
    images, texts, entries = sets(7, 0), sets(7, 1), (sets(13, 2), sets(13, 3))
    bank = MemoryBank(3, "exact", shortlist=shortlist)
    bank.fill(*entries, torch.arange(13), torch.arange(13), BestMatch())
    stats = bank.query(images, texts, torch.arange(7), torch.arange(7), centrality=True)
    torch.testing.assert_close(stats.image_centrality, BestMatch()(images, entries[1]).mean(dim=1))
    torch.testing.assert_close(stats.text_centrality, BestMatch()(entries[0], texts).mean(dim=0))

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank
from vsehub.neighbors.faiss import loaded_faiss

FAISS = pytest.param("faiss", marks=pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed"))
BACKENDS = [FAISS, "exact"]


def naive(queries, items, query_excludes, k):
    """Row by row in numpy: similarities of the entries that are not excluded, sorted, the first k."""
    rows = []
    for query, excludes in zip(queries.numpy(), query_excludes, strict=True):
        left = [float(query @ item) for item, gone in zip(items.numpy(), excludes, strict=True) if not gone]
        rows.append(sorted(left, reverse=True)[:k])
    return np.array(rows)


def unit(generator, rows, dimensions, coarse=False):
    vectors = torch.randn(rows, dimensions, generator=generator)
    if coarse:  # few distinct vectors: duplicates and ties
        vectors = vectors.sign()
    return torch.nn.functional.normalize(vectors, dim=1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("exclude", ["image", "partner", "batch_captions"])
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16), n=st.integers(1, 9), m=st.integers(14, 40), d=st.integers(1, 6), coarse=st.booleans()
)
def test_equals_naive_oracle(backend, exclude, seed, n, m, d, coarse):
    generator = torch.Generator().manual_seed(seed)
    bank_images, bank_texts = unit(generator, m, d, coarse), unit(generator, m, d, coarse)
    images, texts = unit(generator, n, d, coarse), unit(generator, n, d, coarse)
    bank_image_ids = torch.arange(m) // 3
    bank_caption_ids = torch.arange(m)
    image_ids = torch.randint(0, 8, (n,), generator=generator)
    caption_ids = torch.randint(0, m + 5, (n,), generator=generator)
    k = 3
    bank = MemoryBank(k, backend, exclude)
    bank.fill(bank_images, bank_texts, bank_image_ids, bank_caption_ids)
    stats = bank.query(images, texts, image_ids, caption_ids)
    of_image = (bank_image_ids[None, :] == image_ids[:, None]).numpy()
    of_caption = (bank_caption_ids[None, :] == caption_ids[:, None]).numpy()
    in_batch = np.tile(of_caption.any(axis=0), (n, 1))
    no_texts, no_images = {
        "image": (of_image, of_image), "partner": (of_caption, of_image), "batch_captions": (in_batch, in_batch)
    }[exclude]  # fmt: skip
    np.testing.assert_allclose(stats.image_to_text, naive(images, bank_texts, no_texts, k), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.text_to_image, naive(texts, bank_images, no_images, k), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**16), n=st.integers(1, 9), m=st.integers(14, 40), coarse=st.booleans())
def test_centrality_is_the_mean_similarity_to_all_entries(backend, seed, n, m, coarse):
    generator = torch.Generator().manual_seed(seed)
    entries, queries = ([unit(generator, rows, 4, coarse) for _ in range(2)] for rows in (m, n))
    queries = [side.requires_grad_() for side in queries]
    ids = torch.arange(m) // 3
    bank = MemoryBank(3, backend)
    bank.fill(*entries, ids, torch.arange(m))
    stats = bank.query(*queries, ids[:n], torch.arange(n), centrality=True)
    wanted = [
        [float(np.mean([float(query @ entry) for entry in other])) for query in side.detach()]
        for side, other in ((queries[0], entries[1]), (queries[1], entries[0]))
    ]
    np.testing.assert_allclose(stats.image_centrality, wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.text_centrality, wanted[1], rtol=1e-5, atol=1e-6)
    assert not stats.image_centrality.requires_grad
    plain = bank.query(*queries, ids[:n], torch.arange(n))
    assert plain.image_centrality is None
    assert plain.text_centrality is None
    assert torch.equal(plain.image_to_text, stats.image_to_text)


def test_k_is_a_share_of_the_bank_by_default():
    generator = torch.Generator().manual_seed(0)
    bank = MemoryBank(None, "exact")
    for size, k in ((40, 10), (1500, 13), (28322, 250)):
        vectors = unit(generator, size, 2)
        bank.fill(vectors, vectors, torch.arange(size), torch.arange(size))
        assert bank.k == k


EYE, IDS = torch.eye(12), torch.arange(12)


def filled(images=EYE, texts=EYE, image_ids=IDS, **settings):
    bank = MemoryBank(**settings)
    bank.fill(images, texts, image_ids, IDS)
    return bank


@looped(
    ("call", "named"),
    [
        (lambda: filled(k=10, image_ids=IDS // 3), "k is 10"),
        (lambda: filled(k=5, exclude="batch_captions").query(EYE[:8], EYE[:8], IDS[:8], IDS[:8]), "8 of .* 12 pairs"),
        (lambda: filled(k=3, texts=EYE[:11]), "texts"),
        (lambda: MemoryBank(3).query(EYE, EYE, IDS, IDS), "empty"),
        (lambda: MemoryBank(backend="annoy"), "backend is 'annoy'"),
        (lambda: MemoryBank(exclude="none"), "exclude is 'none'"),
        (lambda: MemoryBank(0), "k is 0"),
        (lambda: MemoryBank(2.5), "k is 2.5"),
        (lambda: MemoryBank(shortlist=1.5), "shortlist is 1.5"),
        (lambda: filled(k=3, backend="exact").query(EYE[:, :8], EYE, IDS, IDS), "queries"),
        (lambda: filled(k=3, backend="faiss").query(EYE, EYE[:, :8], IDS, IDS), "queries"),
    ],
)
def test_bad_input(call, named):
    with pytest.raises(InputError, match=named):
        call()

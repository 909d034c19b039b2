import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank
from vsehub.neighbors.faiss import loaded_faiss

FAISS = pytest.param("faiss", marks=pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed"))
BACKENDS = [FAISS, "exact"]


def naive(queries, items, query_excludes, k):
    """Row by row in numpy: similarities of the entries that are not excluded, sorted, the first k."""
    rows = []
    for query, excludes in zip(queries.numpy(), query_excludes, strict=True):
        kept = [float(query @ item) for item, gone in zip(items.numpy(), excludes, strict=True) if not gone]
        rows.append(sorted(kept, reverse=True)[:k])
    return np.array(rows)


def unit(generator, rows, dimensions, coarse=False):
    vectors = torch.randn(rows, dimensions, generator=generator)
    if coarse:  # few distinct vectors: duplicates and ties
        vectors = vectors.sign()
    return torch.nn.functional.normalize(vectors, dim=1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("exclude", ["image", "batch_captions"])
@settings(max_examples=30, deadline=None)
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
    if exclude == "image":
        gone = (bank_image_ids[None, :] == image_ids[:, None]).numpy()
    else:
        gone = np.tile(np.isin(bank_caption_ids.numpy(), caption_ids.numpy()), (n, 1))
    np.testing.assert_allclose(stats.image_to_text, naive(images, bank_texts, gone, k), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.text_to_image, naive(texts, bank_images, gone, k), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_own_image_is_never_a_neighbour(backend):
    generator = torch.Generator().manual_seed(0)
    vectors = unit(generator, 60, 8)
    ids = torch.arange(60) // 5
    bank = MemoryBank(10, backend)
    bank.fill(vectors, vectors, ids, torch.arange(60))
    stats = bank.query(vectors, vectors, ids, torch.arange(60))
    assert stats.image_to_text.shape == (60, 10)
    assert (stats.image_to_text < 0.999).all()
    assert (stats.image_to_text.diff(dim=1) <= 0).all()
    assert not stats.image_to_text.requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=20, deadline=None)
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
        [float(np.mean([float(one @ entry) for entry in other])) for one in side.detach()]
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


def test_bank_smaller_than_k():
    vectors = torch.eye(12)
    with pytest.raises(InputError, match=r"bank of 12 pairs, 3 of them of one image, leaves 9 .* k is 10"):
        MemoryBank(10, "exact").fill(vectors, vectors, torch.arange(12) // 3, torch.arange(12))


def test_bank_emptied_by_the_batch():
    vectors = torch.eye(12)
    bank = MemoryBank(5, "exact", "batch_captions")
    bank.fill(vectors, vectors, torch.arange(12), torch.arange(12))
    with pytest.raises(InputError, match="8 of the bank's 12 pairs are in the batch"):
        bank.query(vectors[:8], vectors[:8], torch.arange(8), torch.arange(8))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "annoy"}, "bank backend is 'annoy'; choose one of 'auto', 'faiss', 'exact'"),
        ({"exclude": "none"}, "bank exclude is 'none'"),
        ({"k": 0}, "bank k is 0"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(InputError, match=message):
        MemoryBank(**arguments)


def test_query_before_fill():
    with pytest.raises(InputError, match="the bank is empty"):
        MemoryBank(3).query(torch.eye(3), torch.eye(3), torch.arange(3), torch.arange(3))


def test_shapes_that_differ():
    with pytest.raises(InputError, match=r"texts has shape \(11, 12\); expected a matrix \(12, 12\)"):
        MemoryBank(3).fill(torch.eye(12), torch.eye(12)[:11], torch.arange(12), torch.arange(12))

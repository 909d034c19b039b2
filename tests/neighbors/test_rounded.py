"""Scores of vectors rounded to bfloat16: which numbers they are, when they are computed, and what they leave behind."""

import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.metrics import top_k
from vsehub.neighbors import rounded, tiles
from vsehub.neighbors.exact import ExactIndex
from vsehub.neighbors.rounded import RoundedVectors, has_bf16, products, rounded_products, uses_bf16
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import as_vectors


def unit(rows, dim, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=generator, dtype=dtype), dim=1)


def expected(queries, items):
    """The product of the rounded factors, in the type of the vectors."""
    return queries.bfloat16().to(queries.dtype) @ items.bfloat16().to(items.dtype).T


@looped("shape", [(1, 1, 1), (3, 2, 5), (1, 64, 4096), (7, 33, 1000), (130, 128, 500)])
@looped("dtype", [torch.float32, torch.float64])
def test_factors_are_rounded_and_sums_are_not(shape, dtype):
    queries, items = unit(shape[0], shape[1], 1, dtype), unit(shape[2], shape[1], 2, dtype)
    scores = rounded_products(items)(queries, None)
    assert scores.dtype == dtype
    torch.testing.assert_close(scores, expected(queries, items), rtol=0, atol=1e-5)
    memory = torch.empty_like(scores)
    assert rounded_products(items)(queries, memory) is memory
    assert torch.equal(memory, scores)
    if shape[0] > 100:  # neither the float32 product nor sums in bfloat16
        assert (scores - queries @ items.T).abs().max() > 1e-4
        assert len(scores.unique()) > 0.9 * scores.numel() > 5 * len(scores.bfloat16().unique())


@looped("before", ["none", "ieee"])
def test_the_setting_of_the_process_is_as_before(before):
    matmul = torch.backends.mkldnn.matmul
    own = matmul.fp32_precision
    try:
        matmul.fp32_precision = before
        queries, items = unit(200, 64, 1), unit(300, 64, 2)
        exact = queries @ items.T
        rounded_products(items)(queries, None)
        assert matmul.fp32_precision == before
        with pytest.raises(RuntimeError, match="shape"):
            rounded_products(items)(queries[:, :5], None)
        assert matmul.fp32_precision == before
        assert torch.equal(queries @ items.T, exact)
    finally:
        matmul.fp32_precision = own


def test_searches_by_rounded_scores(monkeypatch):
    """The tiles of a search and the bank's index."""
    for name, size in (("TILE_QUERIES", 7), ("TILE_ITEMS", 40), ("QUERIES_HELD", 20)):
        monkeypatch.setattr(tiles, name, size)
    queries, items = unit(50, 24, 1), unit(130, 24, 2)
    values, positions = top_k(expected(queries, items), 5)
    for found in (nearest(queries_of(queries), RoundedVectors(queries_of(items)), 5)[0], search(items, queries)):
        torch.testing.assert_close(found[0], values, rtol=0, atol=1e-6)
        assert torch.equal(found[1], positions)
    assert not torch.equal(nearest(queries_of(queries), queries_of(items), 5)[0][0], values)


def queries_of(vectors):
    return as_vectors("vectors", vectors)


def search(items, queries):
    return ExactIndex(items, bf16=True).search(queries, 5)


def test_when_scores_are_rounded(monkeypatch):
    for fast in (False, True):
        monkeypatch.setattr(rounded, "has_bf16", lambda device, fast=fast: fast and device == "cpu")
        assert [uses_bf16(word, "cpu") for word in ("32", "bf16", "auto")] == [False, True, fast]
        assert not uses_bf16("auto", "cuda")
        assert not any(uses_bf16(word, "cpu", "it rains") for word in ("32", "auto"))
        with pytest.raises(InputError, match="precision is bf16, but it rains; omit precision"):
            uses_bf16("bf16", "cpu", "it rains")


@looped(
    ("capabilities", "fast"),
    [
        ({}, False),
        ({"avx512_bf16": True}, True),
        ({"amx_bf16": True}, True),
        ({"amx_bf16": False, "avx2": True}, False),
    ],
)
def test_which_cpus_multiply_it(capabilities, fast):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
        assert has_bf16("cpu") is fast


@pytest.mark.parametrize("score", [products, rounded_products])
@pytest.mark.parametrize("rows", [1, 3, 70])
def test_the_score_of_an_item_does_not_depend_on_the_items_beside_it(score, rows):
    generator = torch.Generator().manual_seed(0)
    for dimensions in (5, 33, 256, 515):
        items = torch.randn(40, dimensions, generator=generator)
        queries = torch.randn(rows, dimensions, generator=generator)
        whole = score(items)(queries, None)
        for width in (1, 2, 7, 15, 16, 17, 31):
            for start in range(0, 40, width):
                alone = score(items[start : start + width])(queries, None)
                assert torch.equal(alone, whole[:, start : start + width]), (dimensions, width, start)

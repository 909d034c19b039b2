"""Searches in several threads give the lists of one, and leave torch as it was."""

import pytest
import torch
from looped import looped
from test_defined import NASTY, oracle, random

from vsehub.neighbors import int8, tiles
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.in_memory import InMemory
from vsehub.neighbors.threads import in_threads
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import Concatenated, as_vectors


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(tiles, "THREADED", 0)
    monkeypatch.setattr(tiles, "LEAST_ROWS", 10)
    monkeypatch.setattr(tiles, "TILE_ITEMS", 64)
    yield
    torch.set_num_threads(before)


@looped("name", list(NASTY))
@looped("screened", [False, True])
def test_lists_follow_the_definition(name, screened, monkeypatch):
    """Forty queries, which three threads share; under two corrections at once, of one array and of two."""
    if screened:  # as far as this processor has what it takes
        monkeypatch.setattr(int8, "FASTER", float("inf"))
        for setting, value in {"OPENED_ITEMS": 64, "OPENED_FOR_EACH": 1, "SCREENED_QUERIES": 0}.items():
            monkeypatch.setattr(tiles, setting, value)
        int8.steps_of_queries.cache_clear()
    used = []
    monkeypatch.setattr(tiles, "in_threads", lambda count: used.append(count) or in_threads(count))
    items = NASTY[name](130)
    queries = torch.cat([random(38, items.shape[1], 20), items[:1], torch.zeros(1, items.shape[1])])
    correct = Affine(0.75, random(len(items), 1, 21)[:, 0])
    parts = Concatenated([as_vectors("items", items[:70]), as_vectors("items", items[70:])])
    for source in (InMemory.of(as_vectors("items", items)), InMemory.of(parts)):
        for k in (1, 10):
            for found, one in zip(
                nearest(as_vectors("q", queries), source, k, [None, correct]), (None, correct), strict=True
            ):
                values, positions = oracle(queries, items, k, one)
                assert torch.equal(found[0], values), k
                assert torch.equal(found[1], positions), k
    int8.steps_of_queries.cache_clear()
    assert set(used) == {3}
    assert torch.get_num_threads() == 3


def test_torch_computes_alone_within_and_as_before_after():
    def search(call):
        with in_threads(2) as each:
            return each(call, range(5))

    assert search(lambda part: (part, torch.get_num_threads())) == [(part, 1) for part in range(5)]
    assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError):
        search(lambda part: 1 / part)
    assert torch.get_num_threads() == 3


def test_few_queries_and_little_work_need_no_threads(monkeypatch):
    monkeypatch.setattr(tiles, "in_threads", lambda count: pytest.fail("threads") if count > 1 else in_threads(count))
    queries, items = random(40, 8, 1), InMemory.of(as_vectors("items", random(100, 8, 2)))
    monkeypatch.setattr(tiles, "THREADED", 40 * 100 * 8 + 1)
    nearest(as_vectors("queries", queries), items, 3)
    monkeypatch.setattr(tiles, "THREADED", 0)
    monkeypatch.setattr(tiles, "LEAST_ROWS", 40)
    nearest(as_vectors("queries", queries), items, 3)

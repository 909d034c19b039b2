"""Choosing the criterion: the rule, the folds and the samples."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, Auto, Sinkhorn
from vsehub.criteria.choose import choose, choose_row
from vsehub.neighbors.vectors import as_vectors, row_digests
from vsehub.positives import Positives


def unit(rows):
    return torch.nn.functional.normalize(rows, dim=1)


def hubby(queries=300, items=120, dim=16, seed=0):
    """Queries near their items, in a space in which some items are near all queries; which item each wants."""
    random = torch.Generator().manual_seed(seed)
    side = torch.full((dim,), dim**-0.5)
    among = torch.randn(items, dim, generator=random) + 2.5 * torch.randn(items, 1, generator=random).exp() * side
    among = unit(among)
    wanted = torch.randint(items, (queries,), generator=random)
    rows = unit(among[wanted] + 0.14 * torch.randn(queries, dim, generator=random) + 0.5 * side)
    return rows, among, wanted


def sources(*vectors):
    return [as_vectors("vectors", rows) for rows in vectors]


def pairs(wanted, items):
    return Positives.from_pairs(torch.arange(len(wanted)), wanted, len(wanted), items)


def by_loops(values):
    means = [sum(row) / len(row) for row in values]
    best = max(range(len(values)), key=means.__getitem__)
    gains = [value - plain for value, plain in zip(values[best], values[0], strict=True)]
    mean = sum(gains) / len(gains)
    variance = sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return best if mean > (variance / len(gains)) ** 0.5 else 0


def test_the_rule_is_that_of_loops():
    random = np.random.default_rng(0)
    rows, lucky = set(), 0
    for _ in range(200):
        values = random.random((4, 12)).round(1) + 0.15 * random.normal(size=(4, 1))
        row = choose_row(values)
        assert row == by_loops(values)
        rows.add(row)
        lucky += row == 0 and values.mean(axis=1).argmax() > 0
    assert rows == set(range(4))
    assert lucky > 10, "a row that is better by less than a standard error is not chosen"
    assert choose_row(np.tile(random.random(12), (3, 1))) == 0, "what changes nothing is not chosen over plain search"


@looped("inside", [False, True])
def test_ranks_are_those_of_a_search_by_what_the_reference_holds_besides(inside):
    """A query that the reference holds is corrected by the other folds alone, without copies of itself."""
    queries, items, wanted = hubby(90, 30)
    queries[[7, 50]], wanted[[7, 50]] = queries[3].clone(), wanted[3].clone()  # a caption that was written three times
    reference = torch.cat([hubby(40, 30, seed=3)[0], queries if inside else hubby(20, 30, seed=4)[0]])
    query_rows, among, reference_rows = sources(queries, items, reference)
    choice = choose(Auto(["csls"]), query_rows, pairs(wanted, 30), among, reference_rows, seed=5)
    assert choice.folds == (5 if inside else 0)
    digests = row_digests(query_rows)
    random = np.random.default_rng(5)
    random.permutation(90)
    distinct, group = np.unique(digests, return_inverse=True)
    fold = (random.permutation(len(distinct)) % 5)[group]
    assert len(distinct) == 88
    assert fold[3] == fold[7] == fold[50]
    for tried in choice.tried:
        ranks = list[int]()
        for query in range(90):
            left_out = queries[torch.from_numpy(fold == fold[query])]
            rest = ~(reference[:, None] == left_out).all(dim=2).any(dim=1)
            assert not (reference[rest] == queries[query]).all(dim=1).any()
            gone = set(wanted.tolist()) - set(wanted[torch.from_numpy(fold == fold[query])].tolist())
            index = [item for item in range(30) if not (inside and item in gone)]
            place = index.index(int(wanted[query]))
            if tried.name == "nns":
                scores = (queries[query] @ items[index].T)[None]
            else:
                query_scores, others = queries[query : query + 1] @ items[index].T, reference[rest] @ items[index].T
                scores = CSLS(**tried.parameters).rescore(query_scores, others)
            ranks.append((scores[0] >= scores[0, place]).sum().item())
        assert tried.rank == pytest.approx(np.exp(np.log(ranks).mean())), tried


def test_large_data_are_sampled_with_all_answers(monkeypatch):
    monkeypatch.setattr("vsehub.criteria.choose.MOST_SCORES", 6000)
    monkeypatch.setattr("vsehub.criteria.choose.MOST_QUERIES", 60)
    monkeypatch.setattr("vsehub.criteria.choose.MOST_REFERENCE", 90)
    monkeypatch.setattr("vsehub.neighbors.vectors.BLOCK", 7)
    queries, items, wanted = hubby(200, 120)
    query_rows, among = sources(queries, items)
    first, again = (choose(Auto(), query_rows, pairs(wanted, 120), among, seed=2) for _ in range(2))
    assert (first.queries, first.reference) == (60, 90)
    assert 40 <= first.items <= 60
    assert first.tried == again.tried


def test_what_cannot_be_chosen_is_refused_and_what_cannot_be_applied_left_out():
    queries, items, wanted = hubby(80, 30)
    query_rows, among = sources(queries, items)
    few = Positives.from_pairs(torch.arange(49), wanted[:49], 80, 30, complete=False)
    same = as_vectors("queries", queries[:1].expand(60, -1).contiguous())
    copies = pairs(wanted[:1].expand(60), 30)
    for arguments, message in (((query_rows, few, among), "49 queries"), ((same, copies, among, same), "to choose by")):
        with pytest.raises(InputError, match=message):
            choose(Auto(), *arguments)
    far = as_vectors("queries", 100 * queries)  # mutual proximity and local scaling take distances of unit vectors
    tried = choose(Auto(), far, pairs(wanted, 30), among).tried
    assert len(tried) == len(Auto().with_grids(80))
    for settings, message in (({"among": ["clsl"]}, "clsl"), ({"among": ["nns"]}, "nns")):
        with pytest.raises(InputError, match=message):
            Auto(**settings)


def test_candidates_fit_the_reference_and_the_default_is_among_them():
    for rows in (3, 50, 1000):
        candidates = Auto().with_grids(rows)
        assert candidates[0][0] == "nns"
        assert all(criterion.parameters().get("k", 1) <= rows for _, criterion in candidates)
        assert any(
            name == "sinkhorn" and criterion.parameters() == Sinkhorn().parameters() for name, criterion in candidates
        )
    assert {name for name, _ in Auto(indexable=True).with_grids(9)} == {"nns", "sinkhorn", "csls", "is", "nnn", "dn"}
    assert Auto(["is"]).untuned(1)[0] == Auto(["is"]).untuned(1000)[0] == "is"
    assert [Auto().untuned(rows)[0] for rows in (1, 199, 200, 1000)] == ["csls", "csls", "sinkhorn", "sinkhorn"]

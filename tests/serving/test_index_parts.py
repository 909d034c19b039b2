"""Indexes in several files against one index of all items, and their note."""

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.serving import NoteQueries, build_index
from vsehub.serving.index_parts import IndexParts, part_names

pytest.importorskip("faiss")


@pytest.fixture
def sides():
    generator = torch.Generator().manual_seed(3)
    items = torch.randn(300, 6, generator=generator)
    items[250:] = items[:50]  # ties across the files
    return torch.randn(40, 6, generator=generator), items, torch.randn(300, generator=generator)


@pytest.mark.parametrize("rows", [1000, 300, 7, 299])
@pytest.mark.parametrize("corrected", [True, False])
def test_the_parts_rank_as_one_index(sides, rows, corrected, tmp_path):
    queries, items, bias = sides
    bias[250:] = bias[:50]
    parts = IndexParts.build(tmp_path, items, bias, 2.0, "flat", rows)
    assert [path.name for path in parts.files] == part_names(300, rows)
    values, positions = parts.search(queries, 12, corrected)
    score = (
        2.0 * queries.double() @ items.double().T - bias.double() if corrected else queries.double() @ items.double().T
    )
    expected = score.sort(dim=1, descending=True, stable=True)
    assert torch.allclose(values.double(), expected.values[:, :12], atol=1e-4)
    wrong = positions != expected.indices[:, :12]
    assert torch.allclose(score.gather(1, positions)[wrong], expected.values[:, :12][wrong], atol=1e-5)


def test_more_than_a_part_holds_and_more_than_all_hold(sides, tmp_path):
    queries, items, bias = sides
    parts = IndexParts.build(tmp_path, items, bias, 1.0, "flat", 7)
    assert sorted(parts.search(queries, 300)[1][0].tolist()) == list(range(300))
    with pytest.raises(InputError, match="k is 301; expected 1 to 300"):
        parts.search(queries, 301)


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf", "ivfpq"])
@pytest.mark.parametrize("normalize", [None, True])
def test_the_note_runs_and_finds_the_same(sides, kind, normalize, tmp_path, monkeypatch):
    queries, items, bias = sides
    items = torch.cat([items, items[:212] + 0.1])
    folder = tmp_path / "it's {a} folder [1]"
    folder.mkdir()
    if normalize:
        items = torch.nn.functional.normalize(items)
    bias = torch.cat([bias, bias[:212]])
    parts = IndexParts.build(folder, items, bias, 2.0, kind, 256)
    np.save(tmp_path / "queries.npy", queries.numpy())
    monkeypatch.chdir(tmp_path)
    pasted = {}
    exec(parts.usage_note(str(folder), 4, NoteQueries(normalize=normalize)), pasted)
    asked = torch.nn.functional.normalize(queries) if normalize else queries
    values, positions = parts.search(asked, 4)
    assert np.allclose(pasted["scores"], values, atol=1e-5)
    assert (pasted["positions"] == positions.numpy()).mean() > 0.99
    times = parts.measured_time(queries, 4)
    assert times["plain"] > 0
    assert times["corrected"] > 0


def test_a_single_index_of_the_same_mean(sides, tmp_path):
    _queries, items, bias = sides
    (tmp_path / "parts").mkdir()
    one, parts = build_index(items, bias, 2.0), IndexParts.build(tmp_path / "parts", items, bias, 2.0, "flat", 100)
    assert parts.facts == one.facts
    with pytest.raises(InputError, match="bias has 299 entries"):
        IndexParts.build(tmp_path, items, bias[1:], 2.0, "flat", 100)

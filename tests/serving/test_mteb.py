"""The search backend of MTEB, by its protocol."""

from inspect import signature

import numpy as np
import pytest
import torch

from vsehub import CorrectedSearch
from vsehub.checks import InputError
from vsehub.serving.mteb import CorrectedIndex


def cosine(queries, items):
    normalized = torch.nn.functional.normalize
    return normalized(torch.as_tensor(queries), dim=1) @ normalized(torch.as_tensor(items), dim=1).T


def test_the_protocol():
    """Documents that come in parts; all of them ranked, and those that a first stage ranked."""
    random = np.random.default_rng(0)
    queries, items, reference = (random.normal(size=(n, 8)).astype(np.float32) + 0.5 for n in (9, 30, 40))
    for other_queries in (None, torch.from_numpy(reference).bfloat16()):
        index = CorrectedIndex("csls", other_queries)
        for part in (slice(0, 20), slice(20, 30)):
            index.add_documents(torch.from_numpy(items[part]), [f"d{row}" for row in range(30)][part])
        fitted_on = queries if other_queries is None else other_queries.float().numpy()
        search = CorrectedSearch("csls", normalize=True).fit(items, reference=fitted_on)
        values, positions = index.search(torch.from_numpy(queries), 5, cosine)
        assert positions == search.search(queries, 5)[1].tolist()
        assert values == search.search(queries, 5)[0].tolist()
        some = {f"q{row}": [f"d{column}" for column in (7, 25, 3, 11)] for row in range(9)} | {"q4": []}
        values, places = index.search(queries, 3, cosine, some, {row: f"q{row}" for row in range(9)})
        order = search.search(queries, 30)[1].tolist()
        for row in range(9):
            candidates = [7, 25, 3, 11] if row != 4 else []
            wanted = [item for item in order[row] if item in candidates][:3]
            assert [candidates[place] for place in places[row]] == wanted
            assert values[row] == sorted(values[row], reverse=True)
    with pytest.raises(InputError, match="normalize"):
        index.search(queries, 5, lambda some, others: torch.as_tensor(some) @ torch.as_tensor(others).T)
    index.clear()
    index.add_documents(items[:4], list("abcd"))
    assert np.shape(index.search(queries, 5, cosine)[1]) == (9, 4)


@pytest.mark.parametrize("method", ["add_documents", "search", "clear"])
def test_the_protocol_is_that_of_the_installed_mteb(method):
    protocol = pytest.importorskip("mteb").IndexEncoderSearchProtocol
    methods = (getattr(side, method) for side in (protocol, CorrectedIndex))
    wanted, offered = (list(signature(function).parameters) for function in methods)
    assert offered == wanted

"""Maps fitted to known pairs: their closed forms, a choice without luck, and the files that `vsehub adapt` writes."""

import json
import re
import shlex

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors.vectors import as_vectors
from vsehub.positives import Positives
from vsehub.ranking import adapt
from vsehub.ranking.adapt import GRID, fit_maps, try_maps

N, D = 160, 12


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def pairs(noise, seed=0):
    """Pairs that differ most along a few directions, which a map can remove, or (noise 0) not at all there."""
    random = np.random.default_rng(seed)
    items = random.normal(size=(3 * N, D))
    queries = items[:N] + 0.5 * random.normal(size=(N, D))
    queries[:, :3] += noise * random.normal(size=(N, 3))
    return unit(queries), unit(items)


def aligned(queries, items):
    return Positives.from_pairs(torch.arange(len(queries)), torch.arange(len(queries)), len(queries), len(items))


def test_the_closed_forms_against_numpy():
    """Whitening makes the differences of its pairs white; the ridge is least squares with rows for the identity."""
    queries, items = pairs(2.0)
    maps = fit_maps(torch.from_numpy(queries), torch.from_numpy(items[:N]))
    a, b = (side - side.mean(axis=0) for side in (queries.astype(float), items[:N].astype(float)))
    k = (a - b).T @ (a - b) / N
    for scale in GRID:
        values, axes = np.linalg.eigh(k + scale * np.trace(k) / D * np.eye(D))
        expected = axes @ np.diag(values**-0.5) @ axes.T
        for side in maps[f"whiten λ={scale:g}"]:
            ratio = side.matrix.numpy() / expected
            np.testing.assert_allclose(ratio, ratio[0, 0], rtol=1e-3)
        root = np.sqrt(scale * np.trace(b.T @ b) / D) * np.eye(D)
        solved = np.linalg.lstsq(np.vstack([b, root]), np.vstack([a, root]))[0]
        ours, theirs = maps[f"ridge λ={scale:g}"]
        np.testing.assert_array_equal(ours.matrix, np.eye(D))
        np.testing.assert_allclose(theirs.matrix, solved, atol=1e-5)
        np.testing.assert_allclose(
            theirs(torch.from_numpy(items)), unit((items - items[:N].mean(axis=0)) @ solved), atol=1e-5
        )


def test_folds_do_not_leak(monkeypatch):
    """Queries that share an answer stay together, and wrong answers gain nothing though maps fit them."""
    queries, items = pairs(2.0)
    fitted, answers = [], np.repeat(np.arange(N // 2), 2)
    positives = Positives.from_pairs(torch.arange(N), torch.from_numpy(answers), N, len(items))
    original = adapt.fit_maps
    monkeypatch.setattr(adapt, "fit_maps", lambda a, b, grid: fitted.append((a, b)) or original(a, b, grid))
    trial = try_maps(as_vectors("queries", queries), as_vectors("items", items), positives)
    rows = {row.tobytes(): number for number, row in enumerate(queries)}
    assert len(fitted) == 5
    assert trial.items == pytest.approx(len(items) - N // 2 * 0.8, abs=1), "items that only other folds want are gone"
    for fold, (a, b) in enumerate(fitted):
        targets = answers[[rows[row.numpy().tobytes()] for row in a]]
        assert not set(targets) & set(trial.groups[trial.folds == fold]), "groups are numbered as their answers"
        np.testing.assert_array_equal(b, items[targets])
    assert max(trial.gain(row)["low"] for row in range(len(trial.candidates))) < 0


def test_too_few_answers():
    queries, items = pairs(2.0)
    positives = Positives.from_pairs(torch.arange(N), torch.arange(N) // 4, N, len(items))
    with pytest.raises(InputError, match="truth: 40"):
        try_maps(as_vectors("queries", queries), as_vectors("items", items), positives)


@pytest.fixture
def files(tmp_path):
    """Makes the files of pairs whose queries have ids, in a folder."""

    def write(noise):
        queries, items = pairs(noise)
        np.savez(tmp_path / "q.npz", vectors=3 * queries, ids=np.array([f"query {row}" for row in range(N)]))
        np.save(tmp_path / "m.npy", items)
        lines = [f"query {row},{row}" for row in range(N)]
        (tmp_path / "pairs.csv").write_text("\n".join(["query,item", *lines]) + "\n")
        return "queries=q.npz::vectors", "items=m.npy", "truth=pairs.csv", "normalize=true"

    return write


def test_a_map_that_helps_is_written(files, run_here, monkeypatch, tmp_path):
    said = run_here("adapt", *files(2.5), "out=a d")
    record = json.loads((tmp_path / "a d" / "result.json").read_text())
    assert record["gain"]["low"] > 0
    assert record["next"] in said
    assert record["map"] in {candidate["map"] for candidate in record["candidates"]}
    monkeypatch.chdir(tmp_path / "a d")
    code = re.search("```python\n(.*?)```", (tmp_path / "a d" / "USAGE.md").read_text(), re.DOTALL)[1]
    names = {"query": np.load(tmp_path / "q.npz")["vectors"][7]}
    exec(code, names)
    np.testing.assert_allclose(names["mapped"], np.load("queries.npy")[7], atol=1e-5)
    monkeypatch.chdir(tmp_path)
    run_here(*shlex.split(record["next"])[1:])
    assert "overwrite=true" in run_here("adapt", *files(2.5), "out=a d", status=2)


def test_nothing_is_written_where_no_map_helps(files, run_here, tmp_path):
    assert "no map is shown to help" in run_here("adapt", *files(0.0), "out=adapted")
    assert [path.name for path in (tmp_path / "adapted").iterdir() if path.name[0] != "."] == ["result.json"]

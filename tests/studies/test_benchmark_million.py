"""The benchmark at a million items runs at tiny sizes; what it measures is not tested."""

import json
from importlib import import_module

import numpy as np
import pytest
import torch

from vsehub.metrics import Occurrences, occurrence_metrics
from vsehub.neighbors.faiss import loaded_faiss

NAMES = ("common", "evaluation", "generated", "million_parts", "million")
TINY = ("--items", "2000", "--queries", "30", "--dim", "16", "--rounds", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def scripts():
    """The benchmarks' modules."""
    return {name: import_module(f"experiments.benchmarks.{name}") for name in NAMES}


@pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed")
@pytest.mark.long
def test_all_parts(scripts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scripts["million_parts"], "STEPS", (500, 1000))
    scripts["million"].main([*TINY, "--out", str(tmp_path / "million.json")])
    record = json.loads((tmp_path / "million.json").read_text())
    assert [row["items"] for row in record["growth"]["rows"]] == [500, 1000, 2000]
    assert record["memory"]["start_gb"] < record["memory"]["peak_gb"] < 3
    recalls = {row["kind"]: row["recall"] for row in record["kinds"]["rows"]}
    assert recalls["flat"] == {"plain": 1.0, "corrected": 1.0}
    assert min(recalls["ivf"]["corrected"], recalls["hnsw"]["corrected"]) > 0.9
    assert record["engine"]["search"]["ratios"]["both"] > 1
    assert "### A million items" in capsys.readouterr().out


@pytest.mark.long
def test_full_takes_the_queries_as_their_own_reference(scripts, tmp_path, monkeypatch):
    monkeypatch.setattr(scripts["million_parts"], "FULL", 70)
    out = tmp_path / "million.json"
    scripts["million"].main([*TINY, "--full", "--parts", "memory", "--out", str(out)])
    record = json.loads(out.read_text())
    assert (record["memory"]["queries"], record["memory"]["reference"]) == (70, 70)
    assert "engine" not in record


def test_no_room_for_the_items(scripts, capsys):
    with pytest.raises(SystemExit):
        scripts["million"].main(["--items", str(10**12)])
    assert "set TMPDIR to a folder that has" in capsys.readouterr().err


def test_generated_vectors_have_hubs(scripts, tmp_path, monkeypatch):
    generated = scripts["generated"]
    monkeypatch.setattr(generated, "BLOCK", 700)
    items, queries = generated.vectors(2000, 64, seed=1), generated.vectors(500, 64, seed=2)
    counts = Occurrences(len(items), (10,))
    counts.add((queries @ items.T).topk(10).indices)
    assert occurrence_metrics(counts.counts)["skew_10"] > 1.2  # chance alone: 0.63
    generated.write(tmp_path / "items.npy", 2000, 64, seed=1)
    np.testing.assert_array_equal(np.load(tmp_path / "items.npy"), items.half().numpy())
    torch.testing.assert_close(items.norm(dim=1), torch.ones(2000))

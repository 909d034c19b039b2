"""The benchmarks run at tiny sizes; what they measure is not tested."""

import json
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_towers import tiny_open_clip

from vsehub.training.datamodule import RetrievalDataModule

NAMES = ("common", "sources", "ways", "throughput", "bank", "hal", "chunk", "evaluation", "gpu_equality", "gpu_check")
NAMES += (
    "devices",
    "rehearsal",
    "generated",
    "cluster",
    "serving",
    "towers",
    "exported",
    "exact",
)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def scripts():
    """The benchmarks' modules."""
    return {name: import_module(f"experiments.benchmarks.{name}") for name in NAMES}


@pytest.fixture(scope="module")
def data(scripts):
    module = RetrievalDataModule(scripts["sources"].Synthetic(images=80, dim=12), batch_size=16)
    module.setup()
    return module


def test_exact_search_prints_its_tables_once(scripts, tmp_path, monkeypatch, capsys):
    times = {way: {"median": 0.1, "p99": 0.2} for way in ("FAISS flat", "ours, plain", "ours, corrected")}
    cell = {"queries": 1, "k": 10, "seconds": times, "as FAISS": 1.0}

    def measure(name, size, options):
        return {"set": name, "items": size[0], "dim": size[1], "preparation": [0.0, 0.0], "cells": [cell]}

    monkeypatch.setattr(scripts["exact"], "measure", measure)
    scripts["exact"].main(["--sizes", "50x8", "70x8", "--out", str(tmp_path / "exact.json")])
    said = capsys.readouterr()
    for items in (50, 70):
        assert said.out.count(f"clustered: {items} x 8; preparation") == 1
        assert said.err.count(f"clustered: {items} x 8") == 1


def test_exact_search_keeps_the_sets_that_are_not_measured_again(scripts, tmp_path, monkeypatch):
    times = {way: {"median": 0.1, "p99": 0.2} for way in ("FAISS flat", "ours, plain", "ours, corrected")}
    cell = {"queries": 1, "k": 10, "seconds": times, "as FAISS": 1.0}
    measured = iter(range(3))

    def measure(name, size, options):
        own = [float(next(measured)), 0.0]
        return {"set": name, "items": size[0], "dim": size[1], "preparation": own, "cells": [cell]}

    monkeypatch.setattr(scripts["exact"], "measure", measure)
    path = tmp_path / "exact.json"

    def kept(*sizes):
        scripts["exact"].main(["--sizes", *sizes, "--out", str(path)])
        return [(one["items"], one["preparation"][0]) for one in json.loads(path.read_text())["results"]]

    assert kept("70x8", "50x8") == [(50, 1.0), (70, 0.0)]
    assert kept("70x8") == [(50, 1.0), (70, 2.0)]
    changed = json.loads(path.read_text())
    changed["hardware"]["cpu"] = "Another"
    path.write_text(json.dumps(changed))
    measured = iter([7])
    assert kept("50x8") == [(50, 7.0)]


@pytest.mark.long
def test_both_ways_train(scripts, data):
    throughput = scripts["throughput"]
    result = throughput.compare(data, CPU, "bf16-mixed", rounds=2, block=1, dim=16) | {"data": "synthetic"}
    assert result["ratio"] > 0
    assert set(result["stages"]) == {"load", "encode", "loss", "backward", "optimiser"}
    races = throughput.races(data.source, CPU, "32-true", 590, [0], batch=80, dim=16, every=50)
    assert [one["steps"] for found in races.values() for one in found] == [100, 100]
    assert all(one["seconds"] > 0 and 0 <= one["rsum"] < 590 for found in races.values() for one in found)
    (first,) = throughput.races(data.source, CPU, "32-true", 1, [0], batch=16, dim=16, every=3)["ours"]
    assert first["steps"] == 3
    result |= {"dim": 16, "target": 590, "every": 50, "seeds": [0], "races": races}
    assert "times** as fast" in throughput.text(result, "bf16-mixed", 16)


def test_both_ways_are_the_same_model(scripts, data):
    ways = [scripts["ways"].Way(data, CPU, "32-true", plain=plain, dim=16) for plain in (True, False)]
    batch = ways[0].next_batch()
    plain, ours = (way.module.text_encoder(batch.texts, batch.lengths) for way in ways)
    torch.testing.assert_close(plain, ours, rtol=1e-4, atol=1e-5)
    features = torch.from_numpy(data.load("train")[0].images[batch.image_ids.numpy()]).float()
    torch.testing.assert_close(batch.images, features)


@pytest.mark.long
def test_processes_take_turns_and_their_losses_agree(scripts):
    devices = scripts["devices"]
    sizes = {"batch": 16, "processes": 2, "dim": 8, "steps": 1}
    options = SimpleNamespace(root=None, synthetic=80, rounds=2, **sizes)
    found = devices.compare(options, "GRU over the tree of prefixes")
    assert found["loss_off"] < 1e-2
    assert found["alone"]["count"] == found["several"]["count"] == 2
    assert "| GRU over the tree of prefixes |" in devices.text(
        sizes | {"data": "synthetic", "precision": "32-true", "entries": [found]}
    )


@pytest.mark.long
def test_rehearsal(scripts, tmp_path):
    rehearsal = scripts["rehearsal"]
    rehearsal.write(tmp_path, 60, 8)
    before = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
    rehearsal.write(tmp_path, 60, 8)
    assert [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())] == before
    result = rehearsal.run(tmp_path, 1, ["embedding_dim=8", "text_encoder.word_dim=4", "trainer.accelerator=cpu"])
    assert (result["pairs"], result["bank"]) == (300, 15)
    assert all(seconds > 0 for seconds in result["seconds"].values())
    assert "MB of main memory" in rehearsal.text(result | {"settings": []})


@pytest.mark.long
def test_towers_give_what_the_bare_models_give(scripts, tmp_path):
    towers, model = scripts["towers"], tiny_open_clip(tmp_path / "model")
    with torch.inference_mode():
        for calls in towers.ways("open_clip", model, 3, CPU).values():
            torch.testing.assert_close(calls["vsehub"](), calls["bare"]())
        (tmp_path / "photos").mkdir()
        calls = towers.extracting(model, 2, 5, CPU, tmp_path / "photos")
        bare = torch.cat(calls["bare"]())
        calls["vsehub"]()
        (part,) = (tmp_path / "photos" / "parts-0").glob("*.npz")
        with np.load(part) as held:
            (stored,) = (held[name] for name in held.files if held[name].ndim == 2)
        torch.testing.assert_close(torch.from_numpy(stored), torch.nn.functional.normalize(bare, dim=1))
        entry = {"library": "open_clip", "side": "files, extract"} | towers.compared(calls, 5, 2, CPU)
    assert "| open_clip | 5 files, extract |" in towers.text([entry])


@pytest.mark.long
def test_exported_encoders(scripts, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason=f"format=onnx needs {package}: vsehub[export]")
    exported = scripts["exported"]
    made = exported.encoders("ViT-B-32", 4)["cnn"]
    entry = exported.measured("cnn", made, 2, tmp_path)
    assert entry["difference"] < 1e-4
    assert "| cnn | 4 |" in exported.text([entry])
    side, _, _, batches, _ = exported.encoders("ViT-B-32", 4)["gru"]()
    assert side == "text"
    assert [len(lengths) for _, lengths in batches] == [4] * exported.BATCHES
    assert all(ids.shape[1] == lengths.max() for ids, lengths in batches)


def test_bank(scripts, data):
    result = scripts["bank"].measure(data, CPU, "32-true", rounds=2, block=1, dim=16)
    assert result["bank_pairs"] == 20
    assert set(result["backends"]) == set(scripts["bank"].backends())
    assert "a step without" in scripts["bank"].text(result | {"data": "synthetic"})


def test_hal_writes_its_results(scripts, tmp_path, capsys):
    scripts["hal"].main(["--sizes", "300", "--rounds", "1", "--device", "cpu", "--out", str(tmp_path / "hal.json")])
    record = json.loads((tmp_path / "hal.json").read_text())
    assert len(record["entries"]) == 6
    assert record["hardware"]["cpu"]
    assert "### HAL: forward and backward" in capsys.readouterr().out


def test_a_step_in_parts_is_the_same_step(scripts):
    entries = [{"chunk": chunk} | scripts["chunk"].step(4, chunk, 32, "convnext_tiny", 1, CPU) for chunk in (None, 2)]
    assert entries[0]["loss"] == pytest.approx(entries[1]["loss"], rel=1e-5)
    assert entries[0]["gradient"] == pytest.approx(entries[1]["gradient"], rel=1e-5)
    entries[0]["peak_mb"] = 2.0
    assert "| 2 |" in scripts["chunk"].text({"batch": 4, "side": 32, "model": "convnext_tiny", "entries": entries})


@pytest.mark.long
def test_evaluation(scripts):
    result = scripts["evaluation"].measure(600, CPU, rounds=1, dim=16)
    assert result["ratio"] > 0
    assert 1 < result["extra_mb"] < 200
    assert "extra peak memory" in scripts["evaluation"].text(result)
    assert "evaluation, scores in bf16" in scripts["evaluation"].text(result)
    assert [one["queries"] for one in result["rounding"].values()] == [600, 1000]


def test_gpu_checks_hold_on_the_cpu(scripts, data):
    check = scripts["gpu_check"]
    rows = scripts["gpu_equality"].bank_rows(CPU, pairs=400, queries=8, k=20, dim=16)
    rows += scripts["gpu_equality"].text_rows(CPU, dim=16, captions=8)
    rows += scripts["gpu_equality"].limit_rows(CPU, queries=2, dim=4)
    rows += scripts["gpu_equality"].rounded_rows(CPU, rows=64, dim=32)
    rows += scripts["gpu_equality"].shortlist_rows(CPU, queries=3, entries=20, candidates=7, dim=8)
    assert scripts["gpu_equality"].memory_rows(CPU) == []
    assert scripts["gpu_equality"].sinkhorn_rows(CPU, 5, 30, 8, 3)[0][2] is None
    assert [name for name, _, holds in rows if holds is False] == []
    assert sum(holds is True for *_, holds in rows) >= 7
    speeds = {name: found for name, found, _ in check.speed_rows(CPU, data, steps=2, dim=16)}
    assert len(speeds) == 5
    assert speeds["of a step, each waited for: load, encode, loss, backward, optimiser"].count(",") == 4
    assert check.cost_rows(CPU, data, [260], dim=16)


def test_gpu_check_compares_precisions(scripts, monkeypatch):
    check = scripts["gpu_check"]
    reached = {"32-true": iter([300.0, 304.0]), "bf16-mixed": iter([297.0, 300.0])}
    monkeypatch.setattr(check, "train", lambda precision, *rest: next(reached[precision]))
    assert check.precision_rows(CPU, 1, [0, 1], [])[-1] == ("bf16-mixed below fp32, seeds' spread", "+3.5, 4.0", True)


def test_gpu_check_trains(scripts, vsehub, monkeypatch, tmp_path):
    def run(command, **settings):
        assert command[:3] == [sys.executable, "-m", "vsehub"]
        vsehub(*command[3:], cwd=tmp_path)

    monkeypatch.setattr(scripts["gpu_check"].subprocess, "run", run)
    settings = ["data.size=tiny", "image_encoder.width=4", "text_encoder.word_dim=8", "embedding_dim=8"]
    assert 0 < scripts["gpu_check"].train("32-true", 0, CPU, 1, settings) <= 600
    losses = scripts["gpu_check"].step_losses(1, CPU, [*settings, "image_encoder.norm=group", "loader.batch_size=16"])
    assert len(losses) > 2
    assert losses[-1] != losses[0]


def test_gpu_check_compares_processes(scripts, monkeypatch):
    check = scripts["gpu_check"]
    assert check.process_rows(1, CPU, [])[0][2] is None
    for several, holds in (([2.0, 1.0001], True), ([2.0, 1.01], False), ([2.0], False)):
        monkeypatch.setattr(check, "step_losses", lambda n, *rest, found=several: [2.0, 1.0] if n == 1 else found)
        assert check.process_rows(4, CPU, [])[0][2] is holds


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_gpu_check_without_a_gpu_says_so(scripts, capsys):
    scripts["gpu_check"].main([])
    assert capsys.readouterr().out.count("\n") == 1


def test_a_billion_items_on_paper(scripts):
    """Twice the GPUs halve arithmetic and reading, not what the driver does; Sinkhorn makes eleven passes for one."""
    cluster = scripts["cluster"]
    taken = {way: {"median": 2.0, "least": 2.0, "most": 2.0} for way in ("local", "1 worker", "2 workers")}
    result = {
        **{"items": 10_000, "queries": 100, "reference": 100, "shards": 4, "ray": "2", "shard_seconds": 0.36},
        **{name: {"csls": taken, "sinkhorn": taken} for name in ("seconds", "cpu_seconds")},
        **{"load": 0.5, "product_flops": cluster.flops(10_000, 100, 100, 1)},
        **{"start_seconds": 20.0, "peak_bytes": 2**29, "bound_bytes": 2**30},
    }
    rows = {(name, count): [float(one) for one in hours] for name, count, *hours in cluster.on_paper(result)}
    few, many = rows["sinkhorn", 8], rows["sinkhorn", 64]
    assert few[0] == pytest.approx(8 * many[0], abs=0.05)
    assert few[2] == many[2] == pytest.approx(13 * 1e9 / 131_072 * 0.36 / 3600, abs=0.01)
    assert few[3] == pytest.approx(sum(few[:3]), abs=0.02)
    # Half of the product's rate is assumed of a GPU too.
    assert few[0] == pytest.approx(1024e9 * (16_384 + 11 * 10_000) / 67e12 / 0.5 / 8 / 3600, abs=0.01)
    assert few[1] == pytest.approx(13 * 512e9 * (2 / 1e9 + 4 / 25e9) / 8 / 3600, abs=0.01)
    assert "| csls | 1 worker | 2 s (2 to 2) | 5,000 | 2.00 s | 5,000 | 1.00 |" in cluster.text(result)


@pytest.mark.long
def test_serving(scripts, tmp_path, capsys):
    sizes = ["--items", "300", "--dim", "8", "--queries", "60", "--requests", "5", "--clients", "4", "--seconds", "1"]
    scripts["serving"].main([*sizes, "--out", str(tmp_path / "serving.json")])
    record = json.loads((tmp_path / "serving.json").read_text())
    assert record["failed"] == 0
    assert record["requests"] > 4
    assert record["by query"]["count"] == record["plain"]["count"] == 5
    assert "0 failed" in capsys.readouterr().out

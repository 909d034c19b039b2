"""What earlier versions wrote is read: tests/kept/VERSION/ holds a small file of every kind (docs/stability.md)."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import vsehub
from vsehub.data.noise import read_index
from vsehub.extraction.folder import file_names, finished
from vsehub.io.records import EMBEDDINGS, EXTRACTION, read_record
from vsehub.neighbors.faiss import load_faiss
from vsehub.report.pages.embeddings import embeddings_page
from vsehub.report.runs import read_runs
from vsehub.rerank.table import read_ranking
from vsehub.serving import load_index
from vsehub.serving.databases.facts import Facts
from vsehub.training.checkpoint import load_state

KEPT = sorted(path.parent for path in Path(__file__).with_name("kept").glob("*/about.json"))


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def kept(request, tmp_path):
    """A copy: what is computed beside the files stays out of the checkout."""
    return Path(shutil.copytree(request.param, tmp_path / request.param.name))


@pytest.fixture
def expected(kept):
    return np.load(kept / "expected.npz")


def test_there_is_a_folder_of_this_version():
    assert vsehub.__version__ in [path.name for path in KEPT], "run python tests/kept/make.py"


def test_no_file_names_a_folder_of_the_machine_that_wrote_it(kept):
    for path in kept.rglob("*"):
        if path.suffix in (".json", ".csv", ".log", ".md", ".yaml", ".txt"):
            absolute = re.findall(r"(?<![\w.:/<~)-])/[\w.-]+/[\w./-]*", path.read_text())
            assert not [one for one in absolute if not one.startswith("/data/")], path


def test_a_checkpoint(kept, expected):
    model = vsehub.load(kept / "run" / "checkpoints" / "best.safetensors", device="cpu")
    encoded = model.encode("test")
    found = model.similarity(encoded.images, encoded.texts)
    np.testing.assert_allclose(found.numpy(), expected["similarities"], rtol=1e-4, atol=1e-5)


def test_the_state_of_a_training(kept, run_here):
    state = load_state(kept / "run" / "checkpoints" / "last.ckpt")
    assert state["epoch"] == 0
    assert {name for name in state["state_dict"] if name.startswith("text_encoder.")}
    path = kept / "run" / "run.json"
    record = json.loads(path.read_text())
    stopped = {name: value for name, value in record.items() if name not in ("best", "metrics")}
    # As a run is left that Ctrl-C ends after an epoch, in the place where it is now.
    path.write_text(json.dumps(stopped | {"status": "stopped"}).replace("/data/run", str(kept / "run")))
    said = run_here("train", f"resume={kept.name}/run", "trainer.max_epochs=2")
    assert "rsum" in said
    assert json.loads(path.read_text())["epochs"] == 2


def test_the_records_of_a_run_and_its_evaluation(kept):
    (run,) = read_runs([kept / "run"])
    assert {one["criterion"] for one in run.evaluations.values()} == {"nns", "csls"}


def test_noisy_pairs(kept):
    source = vsehub.load(kept / "run" / "checkpoints" / "best.safetensors").source
    index = read_index(kept / "run" / "noise_index.npz", source.load("train"))
    assert index.rate == 0.2
    assert index.protocol == "captions"


@pytest.mark.parametrize("name", ["ranking", "page"])
def test_a_corrected_ranking(kept, expected, name):
    record = read_record(kept / "rerank" / "result.json", EMBEDDINGS, "")
    if name == "page":
        assert "csls" in embeddings_page(record)
        return
    found, _ = read_ranking(kept / "rerank" / "ranking.parquet")
    assert np.array_equal(np.asarray(found), expected["positions"])


@pytest.mark.skipif(load_faiss() is None, reason="FAISS is not installed")
def test_an_index(kept, expected):
    index = load_index(kept / "rerank" / "index.faiss", trust=True)
    _, positions = index.search(np.load(kept / "queries.npy"), 3)
    assert np.array_equal(positions, expected["positions"])


def test_a_fitted_search(kept, expected):
    search = vsehub.CorrectedSearch.load(kept / "search.safetensors")
    scores, positions = search.search(np.load(kept / "queries.npy"))
    assert np.array_equal(positions, expected["positions"])
    np.testing.assert_allclose(scores, expected["scores"], rtol=1e-5)


def test_extracted_features(kept):
    record = read_record(kept / "features" / "manifest.json", EXTRACTION, "")
    assert finished(kept / "features", record["settings"], file_names(["test"]))


def test_the_facts_of_a_collection(kept):
    facts = Facts.read((kept / "facts.json").read_text(), "items")
    assert (facts.criterion, facts.reference) == ("csls", "reference.npy")
    torch.testing.assert_close(facts.scale, 2.0)

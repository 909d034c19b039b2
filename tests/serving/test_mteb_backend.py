"""The backend of MTEB must find what the criteria find, and MTEB must be able to run it."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.serving import MTEBBackend


def vectors(rows, seed, dim=12):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)) + 0.4


def unit(matrix):
    return torch.nn.functional.normalize(matrix, dim=1)


def dot(one, other):
    return torch.as_tensor(one) @ torch.as_tensor(other).T


def cosine(one, other):
    return dot(unit(torch.as_tensor(one)), unit(torch.as_tensor(other)))


QUERIES, DOCUMENTS, REFERENCE = vectors(30, 0), vectors(50, 1), vectors(40, 2)
IDS = [f"d{row}" for row in range(50)]


def filled(*arguments, **settings):
    backend = MTEBBackend(*arguments, **settings)
    backend.add_documents(DOCUMENTS[:20].numpy(), IDS[:20])
    backend.add_documents(DOCUMENTS[20:], IDS[20:])
    return backend


@looped("reference", [None, REFERENCE])
@looped("similarity", [dot, cosine])
def test_it_finds_what_the_criterion_finds(reference, similarity):
    sides = [unit(one) if similarity is cosine else one for one in (QUERIES, DOCUMENTS)]
    seen = None if reference is None else unit(reference) if similarity is cosine else reference
    for criterion in (CSLS(k=3), NearestNeighbor()):
        values, positions = filled(criterion, reference).search(QUERIES.numpy(), 7, similarity)
        expected = criterion.search(*sides, seen, 7)
        np.testing.assert_allclose(values, expected[0], rtol=1e-5)
        assert positions == expected[1].tolist()
    assert np.array(filled().search(QUERIES, 1000, similarity)[1]).shape == (30, 50)


def test_bad_input():
    with pytest.raises(InputError, match="documents"):
        MTEBBackend().search(QUERIES, 5, dot)
    backend = filled()
    with pytest.raises(InputError, match="similarity_fn"):
        backend.search(QUERIES, 5, lambda one, other: -torch.cdist(one, other))
    with pytest.raises(InputError, match="top_ranked"):
        backend.search(QUERIES, 5, dot, {"q0": ["d1"]}, {0: "q0"})
    backend.add_documents(DOCUMENTS[:3], IDS[:3])
    with pytest.raises(InputError, match="ids"):
        backend.search(QUERIES, 5, dot)
    backend.clear()
    with pytest.raises(InputError, match="documents"):
        backend.search(QUERIES, 5, dot)


@pytest.mark.long
def test_mteb_runs_it_on_a_retrieval_task(monkeypatch, tmp_path):
    """A task and a model made on the spot: each text is the number of a vector."""
    mteb = pytest.importorskip("mteb", reason="mteb is not installed: pip install 'vsehub[mteb]'")
    datasets = pytest.importorskip("datasets")
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata
    from mteb.models import SearchEncoderWrapper
    from mteb.models.model_meta import ModelMeta

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    random = torch.Generator().manual_seed(0)
    documents = unit(torch.randn(60, 16, generator=random) + 2.5 * torch.randn(60, 1, generator=random).exp() * 0.25)
    wanted = torch.randint(60, (80,), generator=random)
    queries = unit(documents[wanted] + 0.14 * torch.randn(80, 16, generator=random) + 0.125)
    rows = {f"query {row}": one for row, one in enumerate(queries)} | {
        f"document {row}": one for row, one in enumerate(documents)
    }

    class Task(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="Numbers",
            description="Texts that stand for vectors.",
            reference=None,
            dataset={"path": "none", "revision": "1"},
            type="Retrieval",
            category="t2t",
            modalities=["text"],
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, **_):
            table = [
                datasets.Dataset.from_list([{"id": f"{kind[0]}{row}", "text": f"{kind} {row}"} for row in range(count)])
                for kind, count in (("query", 80), ("document", 60))
            ]
            answers = {f"q{row}": {f"d{item}": 1} for row, item in enumerate(wanted.tolist())}
            split = {"queries": table[0], "corpus": table[1], "relevant_docs": answers, "top_ranked": None}
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    class Model:
        mteb_model_meta = ModelMeta.create_empty({"name": "vsehub/numbers", "revision": "1"})

        def encode(self, inputs, **_):
            return torch.stack([rows[text] for batch in inputs for text in batch["text"]])

        def similarity(self, one, other):
            return cosine(one, other)

        similarity_pairwise = None

    def precision(backend):
        model = SearchEncoderWrapper(Model(), index_backend=backend)
        found = mteb.evaluate(model, Task(), cache=None, co2_tracker=False, show_progress_bar=False)
        return found.task_results[0].scores["test"][0]["hit_rate_at_1"]

    def expected(criterion):
        return (criterion.search(queries, documents, None, 1)[1][:, 0] == wanted).float().mean().item()

    plain, corrected = precision(None), precision(MTEBBackend("csls", parameters={"k": 5}))
    assert plain == pytest.approx(expected(NearestNeighbor()), abs=1e-4)
    assert corrected == pytest.approx(expected(CSLS(k=5)), abs=1e-4)
    assert corrected > plain

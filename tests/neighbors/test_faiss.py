"""FAISS where it cannot be loaded, and when a bank searches with it."""

from types import SimpleNamespace

import torch

from vsehub.neighbors import MemoryBank, bank
from vsehub.neighbors import faiss as faiss_index


def test_where_a_bank_searches(monkeypatch):
    """By FAISS where its build sees the device of the vectors, and exactly where FAISS does not go as deep."""
    monkeypatch.setattr(bank, "FaissIndex", lambda vectors: "faiss")
    monkeypatch.setattr(bank, "ExactIndex", lambda vectors: "exact")
    cpu, cuda = (SimpleNamespace(device=torch.device(name), is_cuda=name == "cuda") for name in ("cpu", "cuda"))
    ids = torch.arange(9000)
    monkeypatch.setattr(bank, "ShortlistIndex", lambda entries, similarity, side, shortlist, index: index(entries))
    sets = SimpleNamespace(takes="sets")
    for gpus, vectors, k, backend, similarity, wanted in (
        (0, cpu, 10, "auto", None, "faiss"),
        (0, cpu, 3000, "auto", None, "faiss"),
        (0, cpu, 10, "exact", None, "exact"),
        (0, cuda, 10, "auto", None, "exact"),
        (0, cuda, 10, "faiss", None, "faiss"),
        (1, cuda, 10, "auto", None, "faiss"),
        (1, cuda, 2047, "auto", None, "faiss"),
        (1, cuda, 2048, "faiss", None, "exact"),
        (1, cuda, 511, "auto", sets, "faiss"),
        (1, cuda, 512, "faiss", sets, "exact"),  # four times 513 candidates
        (1, cuda, 10, "exact", None, "exact"),
    ):
        library = SimpleNamespace(get_num_gpus=lambda gpus=gpus: gpus, StandardGpuResources=None)
        monkeypatch.setattr(faiss_index, "loaded_faiss", lambda library=library: (library, ""))
        one = MemoryBank(k, backend)
        one.plan(ids, ids)
        assert one._index(vectors, similarity, "images") == wanted, (gpus, vectors, k, backend, similarity)

"""FAISS where it cannot be loaded, and when a bank searches with it."""

import sys
from types import SimpleNamespace

import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank, bank
from vsehub.neighbors import faiss as faiss_index
from vsehub.neighbors.faiss import loaded_faiss, required_faiss


class Broken:
    """A build for GPUs whose libraries are missing: importing it raises."""

    def __init__(self, error):
        self.error = error

    def find_spec(self, name, path=None, target=None):
        if name == "faiss":
            raise self.error
        return None


@pytest.mark.parametrize("error", [RuntimeError("libcublas.so.12:\n cannot open"), OSError("x"), ImportError("y")])
def test_a_build_that_cannot_be_loaded_is_named_with_its_reason(monkeypatch, error):
    for name in [name for name in sys.modules if name == "faiss" or name.startswith("faiss.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(error), *sys.meta_path])
    reason = f"cannot be loaded ({' '.join(str(error).split())})"
    assert loaded_faiss() == (None, reason)
    with pytest.raises(InputError, match="an index needs FAISS, which cannot be loaded"):
        required_faiss("an index", "omit it")
    vectors, ids = torch.eye(12), torch.arange(12)
    filled = MemoryBank(3)
    filled.fill(vectors, vectors, ids, ids)
    assert filled.running_backend == "exact"


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

"""FAISS where it cannot be loaded, and when a bank searches with it."""

import sys
from types import SimpleNamespace

import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank, bank
from vsehub.neighbors.bank import ExactIndex
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


def test_auto_searches_with_faiss_on_a_cpu_only(monkeypatch):
    monkeypatch.setattr(bank, "FaissIndex", lambda vectors: "faiss")
    monkeypatch.setattr(bank, "loaded_faiss", lambda: (SimpleNamespace(), ""))
    cpu, elsewhere = torch.eye(3), torch.eye(3, device="meta")
    assert MemoryBank()._vector_index(cpu) == MemoryBank(backend="faiss")._vector_index(elsewhere) == "faiss"
    for one, vectors in ((MemoryBank(), elsewhere), (MemoryBank(backend="exact"), cpu)):
        assert isinstance(one._vector_index(vectors), ExactIndex)

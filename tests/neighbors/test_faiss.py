"""FAISS where it cannot be loaded, and on a GPU as far as that can be seen without one."""

import logging
import sys
from types import SimpleNamespace

import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank, bank
from vsehub.neighbors import faiss as faiss_index
from vsehub.neighbors.exact import ExactIndex
from vsehub.neighbors.faiss import GPU_SCRATCH, FaissIndex, gpu_resources, loaded_faiss, required_faiss

CUDA = torch.device("cuda")


class Broken:
    """A build for GPUs whose libraries are missing: importing it raises."""

    def __init__(self, error):
        self.error = error

    def find_spec(self, name, path=None, target=None):
        if name == "faiss":
            raise self.error
        return None


@pytest.mark.parametrize("error", [RuntimeError("libcublas.so.12:\n cannot open"), OSError("x"), ImportError("y")])
def test_a_build_that_cannot_be_loaded_is_named_with_its_reason(monkeypatch, caplog, error):
    for name in [name for name in sys.modules if name == "faiss" or name.startswith("faiss.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Broken(error), *sys.meta_path])
    reason = f"cannot be loaded ({' '.join(str(error).split())})"
    assert loaded_faiss() == (None, reason)
    with pytest.raises(InputError, match="an index needs FAISS, which cannot be loaded"):
        required_faiss("an index", "omit it")
    vectors, ids = torch.eye(12), torch.arange(12)
    with caplog.at_level(logging.INFO):
        filled = MemoryBank(3)
        filled.fill(vectors, vectors, ids, ids)
    assert f"FAISS {reason}: the bank searches exactly in torch on cpu" in caplog.text
    assert filled.running_backend == "exact"


def test_where_a_bank_searches(monkeypatch, caplog):
    """Deeper than FAISS goes on a GPU it is exact, whatever was asked for: else it would fail after an epoch."""
    monkeypatch.setattr(bank, "loaded_faiss", lambda: (SimpleNamespace(), ""))
    ids = torch.arange(9000) // 5
    for gpu in (True, False):
        monkeypatch.setattr(bank, "on_gpu", lambda faiss, gpu=gpu: gpu)
        for backend in ("auto", "faiss", "exact"):
            for k, deep in ((10, False), (2043, False), (2044, True)):
                one = MemoryBank(k, backend)
                one.plan(ids, torch.arange(9000))
                exact = backend == "exact" or (gpu and deep) or (not gpu and backend == "auto")
                assert one._index_type(CUDA, one._deepest, 65_536) is (ExactIndex if exact else FaissIndex)
                assert one._index_type(torch.device("cpu"), one._deepest, 100_000) is (
                    ExactIndex if backend == "exact" else FaissIndex
                )
    with caplog.at_level(logging.INFO):
        monkeypatch.setattr(bank, "on_gpu", lambda faiss: True)
        assert one._index_type(CUDA, 1, 10) is ExactIndex
        MemoryBank(3, "faiss")._index_type(CUDA, 2049, 10)
        assert MemoryBank(3, "faiss")._index_type(CUDA, 10, 65_537) is ExactIndex
    assert "FAISS reserves no memory for more than 65536 vectors added to a GPU, and there are 65537" in caplog.text
    assert (
        "FAISS finds at most 2048 neighbours on a GPU, and 2049 are searched: the bank searches exactly" in caplog.text
    )


def test_a_gpu_has_one_set_of_resources_with_bounded_memory(monkeypatch):
    monkeypatch.setattr(faiss_index, "_RESOURCES", {})
    calls = []

    class Resources:
        def setTempMemory(self, size):
            calls.append(("scratch", size))

        def setPinnedMemory(self, size):
            calls.append(("pinned", size))

    library = SimpleNamespace(StandardGpuResources=Resources)
    first = gpu_resources(library, 0)
    assert gpu_resources(library, 0) is first
    assert gpu_resources(library, 1) is not first
    assert [name for name, _ in calls] == ["scratch", "pinned"] * 2
    assert calls[0][1] == GPU_SCRATCH

"""Log-sums of scores that are never written: interpreted on the CPU, compiled for GPUs, and where they are used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from vsehub.criteria import Sinkhorn
from vsehub.criteria.base import fit_all
from vsehub.criteria.sinkhorn import fused_log_sums
from vsehub.neighbors.tiles import ScoreColumns, score_columns
from vsehub.neighbors.vectors import as_vectors

KILOBYTE = 1024


def sides():
    random = torch.Generator().manual_seed(0)
    return [as_vectors("vectors", normalize(torch.randn(n, 8, generator=random), dim=1)) for n in (50, 20)]


@pytest.mark.long
def test_the_kernel_in_tritons_interpreter():
    pytest.importorskip("triton", reason="this torch comes without triton")
    cases = Path(__file__).parent / "fused_cases.py"
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", str(cases)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=cases.parents[2])
    assert done.returncode == 0, done.stdout[-8000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize(
    ("capability", "precision", "shared", "depth"),
    [
        (75, "ieee", 64, 32),
        (80, "tf32x3", 163, 64),
        pytest.param(86, "tf32x3", 99, 32, marks=pytest.mark.long),
        pytest.param(90, "tf32x3", 227, 64, marks=pytest.mark.long),
    ],
)
def test_the_kernel_compiles(capability, precision, shared, depth, tmp_path, monkeypatch):
    """For GPUs that this machine lacks, in their shared memory (kilobytes)."""
    triton = pytest.importorskip("triton", reason="this torch comes without triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from vsehub.neighbors import fused

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    tensors, numbers = ("first", "second", "bias", "sums"), ("rows", "columns", "dimensions", "span")
    constants = {"TILE": fused.TILE, "DEPTH": fused.depth_in(shared * KILOBYTE), "BIASED": True, "PRECISION": precision}
    types = dict.fromkeys(tensors, "*fp32") | dict.fromkeys(numbers, "i32") | {"scale": "fp32"}
    source = ASTSource(fused._log_sums, types | dict.fromkeys(constants, "constexpr"), constants)
    assert constants["DEPTH"] == depth
    options = {"num_warps": fused.WARPS, "num_stages": fused.STAGES}
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert compiled.metadata.shared <= shared * KILOBYTE


def test_other_scores_are_computed_plainly(monkeypatch):
    """On the CPU; where triton is missing or does not work; of given scores."""
    items, reference = sides()
    columns = score_columns(reference, items)
    assert fused_log_sums(columns) is None
    plain = fit_all([Sinkhorn()], items, reference)[0][0]
    monkeypatch.setattr(ScoreColumns, "float32_on_cuda", True)
    monkeypatch.delitem(sys.modules, "vsehub.neighbors.fused", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    assert fused_log_sums(columns) is None
    assert torch.equal(fit_all([Sinkhorn()], items, reference)[0][0], plain)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU is here")
def test_a_gpu():
    from vsehub.neighbors import fused

    device = torch.device("cuda", torch.cuda.current_device())
    assert fused.works_on(device)

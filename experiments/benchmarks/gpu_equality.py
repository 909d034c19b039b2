"""Comparison of a device's answers with the CPU's, and of fast ways with plain ones: bank, Sinkhorn, text encoder."""

import numpy as np
import torch

from experiments.benchmarks import bank, common
from vsehub.data.text.tokens import TokenTable
from vsehub.encoders import TextGRU
from vsehub.models.encode import encode_texts
from vsehub.neighbors import MemoryBank
from vsehub.sets import Sets
from vsehub.similarities import CrossAttention
from vsehub.types import Similarity

Row = tuple[str, str, bool | None]  # what, what was found, whether it holds (None: a figure without a verdict)


def bank_rows(
    device: torch.device, pairs: int = 28_000, queries: int = 256, k: int = 250, dim: int = 1024
) -> list[Row]:
    """Each backend's neighbours on the device against the exact ones on the CPU."""
    return [neighbor_row(device, backend, pairs, queries, k, dim) for backend in bank.backends()]


def neighbor_row(device: torch.device, backend: str, pairs: int, queries: int, k: int, dim: int) -> Row:
    """Neighbours that a bank finds on the device, against the exact ones on the CPU; what searched is named."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(pairs, dim, generator=generator), dim=1) for _ in range(2)
    )
    everything = images, texts, torch.arange(pairs) // 5, torch.arange(pairs)

    def answer(backend: str, where: torch.device) -> tuple[torch.Tensor, str]:
        filled = MemoryBank(k, backend)
        there = [tensor.to(where) for tensor in everything]
        filled.fill(*there)
        stats = filled.query(*(tensor[:queries] for tensor in there))[:2]
        return torch.stack(stats).cpu(), filled.running_backend

    expected, _ = answer("exact", torch.device("cpu"))
    stats, running = answer(backend, device)
    error = (stats - expected).abs().max().item()
    name = f"bank of {pairs:,}, k = {k:,}, {running}, vectors on {device}: largest difference from the CPU"
    return name, f"{error:.1e}", error < 1e-5


def shortlist_rows(
    device: torch.device, queries: int = 128, entries: int = 2_000, candidates: int = 72, dim: int = 1024
) -> list[Row]:
    """SCAN's scores of shortlists, many queries at a time, against query by query: equal, and how long both take."""
    generator = torch.Generator().manual_seed(0)

    def sets(count: int, least: int, most: int) -> Sets:
        lengths = torch.randint(least, most + 1, (count,), generator=generator)
        return Sets(torch.randn(int(lengths.sum()), dim, generator=generator), lengths).to(device)

    images, texts, similarity = sets(queries, 36, 36), sets(entries, 8, 22), CrossAttention()
    chosen = torch.randint(entries, (queries, candidates), generator=generator).to(device)
    ways = {
        "at once": lambda: similarity.candidate_scores_at_once(images, texts, chosen, "texts"),
        "query by query": lambda: Similarity.candidate_scores(similarity, images, texts, chosen, "texts"),
    }
    with torch.no_grad():
        at_once, one_by_one = (way() for way in ways.values())
        seconds = common.interleave(ways, 3, device)
    error = (at_once - one_by_one).abs().max().item()
    times = ", ".join(f"{1e3 * min(runs):.1f} ms {name}" for name, runs in seconds.items())
    name = f"SCAN, {queries} images x {candidates} candidate texts: largest difference"
    return [(name, f"{error:.1e}; {times}", error < 1e-4)]


def text_rows(device: torch.device, dim: int = 1024, captions: int = 128) -> list[Row]:
    """The text encoder on the device against the CPU: states and gradients, without and with TF32, and evaluation."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 20, (captions,), generator=generator)
    texts = torch.randint(1, 3000, (captions, 20), generator=generator)
    texts[torch.arange(20) >= lengths[:, None]] = 0
    torch.manual_seed(0)
    encoder = TextGRU(3000, dim)

    def run(where: torch.device) -> list[torch.Tensor]:
        moved = encoder.to(where)
        moved.zero_grad()
        states = moved(texts.to(where), lengths.to(where))
        states.square().sum().backward()
        return [states.detach().cpu(), moved.gru.weight_hh_l0.grad.cpu().clone()]

    expected = run(torch.device("cpu"))
    allowed, rows = torch.backends.cudnn.allow_tf32, []
    for tf32 in (False, True) if device.type == "cuda" else (False,):
        torch.backends.cudnn.allow_tf32 = tf32
        errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in zip(run(device), expected, strict=True)]
        name = f"text GRU {'with' if tf32 else 'without'} TF32: relative difference of states, gradients"
        rows.append((name, ", ".join(f"{error:.1e}" for error in errors), None if tf32 else max(errors) < 1e-4))
    torch.backends.cudnn.allow_tf32 = allowed
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).numpy()
    table = TokenTable(texts[texts > 0].int().numpy(), offsets)
    on_cpu, others = (encode_texts(encoder.to(where), table, np.arange(captions)).cpu() for where in ("cpu", device))
    error = ((others - on_cpu).abs().max() / on_cpu.abs().max()).item()
    return [*rows, ("captions encoded for evaluation: relative difference", f"{error:.1e}", error < 1e-5)]

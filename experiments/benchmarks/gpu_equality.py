"""Whether a device gives the CPU's answers: the bank's backends, the text encoder."""

import bank
import torch

from vsehub.encoders import TextGRU
from vsehub.neighbors import MemoryBank
from vsehub.neighbors.faiss import load_faiss, on_gpu

Row = tuple[str, str, bool | None]  # what, what was found, whether it holds (None: a figure without a verdict)


def bank_rows(
    device: torch.device, pairs: int = 28_000, queries: int = 256, k: int = 250, dim: int = 1024
) -> list[Row]:
    """Each backend's neighbours on the device against the exact ones on the CPU."""
    generator = torch.Generator().manual_seed(0)
    images, texts = (
        torch.nn.functional.normalize(torch.randn(pairs, dim, generator=generator), dim=1) for _ in range(2)
    )
    ids, captions = torch.arange(pairs) // 5, torch.arange(pairs)

    def answer(backend: str, where: torch.device):
        filled = MemoryBank(k, backend)
        everything = [tensor.to(where) for tensor in (images, texts, ids, captions)]
        filled.fill(*everything)
        found = filled.query(*(tensor[:queries] for tensor in everything))[:2]
        return torch.stack(found).cpu(), filled.running_backend

    expected, _ = answer("exact", torch.device("cpu"))
    rows: list[Row] = []
    for backend in bank.backends():
        found, running = answer(backend, device)
        error = (found - expected).abs().max().item()
        where = "" if running.startswith("faiss") else f" in torch on {device.type}"
        rows.append((f"bank, {running}{where}: largest difference from the CPU", f"{error:.1e}", error < 1e-5))
    faiss = load_faiss()
    if faiss is None or not on_gpu(faiss):
        rows.append(("FAISS on a GPU", "not in this installation; exact torch is what ran on the device", None))
    return rows


def text_rows(device: torch.device, dim: int = 1024, captions: int = 128) -> list[Row]:
    """The text encoder's states and gradients on the device against the CPU's, without and with TF32."""
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
    return rows

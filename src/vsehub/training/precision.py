"""bf16 where the hardware has it."""

import torch


def resolve_precision(precision: str, accelerator: str = "auto") -> str:
    """Lightning's precision; "auto" is bf16-mixed where GPU or CPU multiply bfloat16 in hardware, else 32-true."""
    if precision != "auto":
        return precision
    on_gpu = accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available()
    fast = torch.cuda.is_bf16_supported(including_emulation=False) if on_gpu else cpu_has_bf16()
    return "bf16-mixed" if fast else "32-true"


def cpu_has_bf16() -> bool:
    """Whether this CPU has AMX tiles or AVX-512 bfloat16; elsewhere bfloat16 products are emulated and slower."""
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(capabilities.get("amx_bf16") or capabilities.get("avx512_bf16"))

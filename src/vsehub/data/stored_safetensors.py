"""Vectors in .safetensors files, mapped where they lie."""

import json
from pathlib import Path

import numpy as np
import torch

from vsehub.data.stored import Stored, checked_kind, chosen, readable

_FLOATS = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


def read_safetensors(path: Path, key: str | None) -> Stored:
    from safetensors import SafetensorError, safe_open

    with readable(path, SafetensorError):
        # Opened for its checks alone: its torch tensors are private maps, which a file beyond the memory is denied.
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
            found = {
                name: (tuple(one.get_shape()), _FLOATS.get(one.get_dtype(), one.get_dtype()))
                for name, one in slices.items()
            }
        name = chosen(path, key, found)
        dtype = checked_kind(f"{path}::{name}", *found[name])
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            begin = 8 + length + json.loads(file.read(length))[name]["data_offsets"][0]
        bits = np.dtype(np.int16 if dtype == torch.bfloat16 else found[name][1]).newbyteorder("<")
        return Stored(np.memmap(path, bits, "r", begin, found[name][0]), dtype)

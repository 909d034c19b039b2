"""Vectors in .pt and .pth files: tensors alone, which torch reads without running anything."""

import zipfile
from pathlib import Path

import torch
from torch import Tensor

from vsehub.checks import InputError, require
from vsehub.data.vectors.formats import StoredMatrix, checked_kind, chosen
from vsehub.io.arrays import readable


def read_tensors(path: Path, key: str | None) -> StoredMatrix:
    """The tensor that `torch.save` wrote, or the tensor `key` of a dictionary of tensors, mapped where torch can.

    Raises InputError if the file is damaged, or holds anything but tensors: other objects could run code.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # whatever torch's unpickler makes of a damaged or hostile file
        raise InputError(
            f"{path} is damaged, or holds more than tensors, which could run code ({type(error).__name__}). "
            "Save the tensor alone: torch.save(tensor, 'vectors.pt')"
        ) from error
    tensors = found if isinstance(found, dict) else {"": found}
    require(
        all(isinstance(name, str) and isinstance(one, Tensor) for name, one in tensors.items()),
        f"{path} holds {type(found).__name__}; expected a tensor or a dictionary of tensors",
    )
    with readable(path, TypeError):  # of tensors without numbers, of unequal rows and other views
        if isinstance(found, Tensor):
            require(key is None, f"{path} is one tensor without a name; remove '::{key}'")
            name, label = "", str(path)
        else:
            name = chosen(
                path,
                key,
                {one: (tuple(part.shape), str(part.dtype).removeprefix("torch.")) for one, part in tensors.items()},
            )
            label = f"{path}::{name}"
        tensor = tensors[name].detach()
        dtype = checked_kind(label, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
        require(
            tensor.layout == torch.strided and tensor.is_contiguous(),
            f"{label} is sparse or a view of other numbers; save tensor.contiguous()",
        )
        return StoredMatrix((tensor.view(torch.int16) if dtype == torch.bfloat16 else tensor).numpy(), dtype)

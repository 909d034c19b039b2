"""Random matrices, nasty ones among them, and how a case says what is wrong."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError

TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SHARES = (0.5, 0.2, 0.15, 0.15)


class Wrong(Exception):
    """What a case did that it must not."""


def check(condition: Any, text: str, *shown: Any) -> None:
    """Raise Wrong with the text, each {} in it being one of what is shown, unless the condition holds."""
    if not condition:
        raise Wrong(text.replace("{}", "%s") % shown if shown else text)


def refused(call: Callable[[], Any]) -> tuple[Any, InputError | None]:
    """What the call gives, or its InputError."""
    try:
        return call(), None
    except InputError as error:
        return None, error


def describe(values: Tensor) -> str:
    """Shape, type and range of a tensor."""
    least, most = (values.double().min().item(), values.double().max().item()) if values.numel() else (0, 0)
    return f"{tuple(values.shape)} {str(values.dtype).removeprefix('torch.')} [{least:.3g}, {most:.3g}]"


def size(random: np.random.Generator) -> int:
    """1 to 12, now and then more."""
    return int(random.integers(1, 13) if random.random() < 0.97 else random.integers(13, 60))


def matrix(random: np.random.Generator, rows: int, columns: int, cosines: bool) -> np.ndarray:
    """A float64 matrix of one of many kinds."""
    kind = random.integers(7)
    if kind == 0:
        values = random.integers(-3, 4, (rows, columns)) / 4
    elif kind == 1:
        values = np.full((rows, columns), random.choice([0.0, -0.0, 1.0, -0.5, 0.3]))
    elif kind == 2:
        values = -np.abs(random.normal(size=(rows, columns)))
    elif kind == 3:
        values = random.normal(size=(rows, columns))
        values = values[random.integers(rows, size=rows)][:, random.integers(columns, size=columns)]
    elif kind == 4:
        values = random.choice([-1.0, 0.0, 1.0], (rows, columns))
    else:
        values = random.normal(size=(rows, columns))
    return np.clip(values / 2, -1, 1) if cosines and kind != 1 else values


def scaled(random: np.random.Generator, values: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """The values as they are or at an extreme scale."""
    wide = dtype == torch.float64
    scales = (1e-30, 1e30, 1e-300 if wide else 1e-38, 1e-310 if wide else 1e-43, 1e4, 1e-4, 1e300 if wide else 1e37)
    return values * random.choice(scales) if random.random() < 0.3 else values


def spoilt(random: np.random.Generator, values: np.ndarray, share: float = 0.12) -> np.ndarray:
    """The values, in a share of the cases with NaN or infinities among them."""
    if random.random() < share:
        values = values.copy()
        bad = random.choice([np.nan, np.inf, -np.inf], size=values.shape)
        if random.random() < 0.7:
            bad[...] = random.choice([np.nan, np.inf, -np.inf])
        where = random.random(values.shape) < random.choice([0.02, 0.2, 1.0])
        where.flat[random.integers(values.size)] = True
        values[where] = bad[where]
    return values


def tensor(random: np.random.Generator, values: np.ndarray, dtype: torch.dtype) -> Tensor:
    """A tensor of the type, its rows or its columns in one stretch of memory."""
    made = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
    return made.T.contiguous().T if random.random() < 0.3 else made


def exact(values: Tensor) -> np.ndarray:
    """The numbers in a tensor as float64."""
    return values.double().numpy()


def limits(*types: torch.dtype) -> torch.finfo:
    """Those of the type that is computed in, of several the narrower: float32 at least."""
    return torch.finfo(torch.float64 if set(types) == {torch.float64} else torch.float32)

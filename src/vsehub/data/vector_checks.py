"""What vectors must be to be searched: whole rows, unit norms where cosine is meant, one space on both sides."""

from dataclasses import dataclass, replace

import torch

from vsehub.checks import InputError, require
from vsehub.data.passes import Rows, byte_bar
from vsehub.data.vectors import VectorFile, row_norms


@dataclass(frozen=True)
class Norms:
    """Norms of the rows as they are stored: the least, the most, and the share within `tolerance` of 1."""

    least: float
    most: float
    unit_share: float
    tolerance: float


def look_through(vectors: VectorFile, progress: bool = False) -> Norms:
    """Read every row once, in bounded memory. progress: show a bar where there is much to read.

    The norms are told apart from 1 by more than 1e-3, in half precision 1e-2. InputError where rows hold NaN, infinite
    values or zeros alone, and where `vectors.normalize` is None and rows are no unit vectors.
    """
    half = vectors.dtype in (torch.float16, torch.bfloat16)
    tolerance = 1e-2 if half else 1e-3
    bad = {"NaN": Rows(), "infinite values": Rows(), "zeros alone": Rows()}
    off = Rows()
    least, most = float("inf"), 0.0
    row_bytes = vectors.dtype.itemsize * vectors.shape[1]
    with byte_bar(f"checking {vectors}", row_bytes * len(vectors), progress) as bar:
        for first, rows in replace(vectors, normalize=False).blocks():
            norms = row_norms(rows).cpu()
            masks = (norms.isnan(), norms.isinf(), norms == 0)
            for found, mask in zip(bad.values(), masks, strict=True):
                found.add(first, mask.numpy())
            off.add(first, ((norms - 1).abs() > tolerance).numpy())
            least, most = min(least, norms.min().item()), max(most, norms.max().item())
            bar.update(row_bytes * len(rows))
    found = [f"{rows} hold {what}" for what, rows in bad.items() if rows.count]
    as_what = " as float32" if vectors.dtype == torch.float64 else ""
    require(
        not found,
        f"{vectors}: of {len(vectors)} rows, counted from 0, {'; '.join(found)}{as_what}. Embed what they stand for "
        "again, or leave these rows out on both sides",
    )
    norms = Norms(least, most, 1 - off.count / len(vectors), tolerance)
    require(
        vectors.normalize is not None or off.count == 0,
        f"{vectors}: the norms of the rows lie between {least:.4g} and {most:.4g}; {norms.unit_share:.1%} are 1 within "
        f"{tolerance:g}, rows {off} are not. Set normalize=true to divide each row by its norm (cosine), or "
        "normalize=false to take the inner products as they are",
    )
    return norms


def same_space(queries: VectorFile, items: VectorFile, reference: VectorFile | None = None) -> None:
    """InputError unless all have one dimension; where some look transposed (D, n), it says which."""
    given = [queries, items] + ([] if reference is None else [reference])
    if len({one.shape[1] for one in given}) == 1:
        return
    shapes = "; ".join(f"{one}: {one.shape[0]} rows of {one.shape[1]} numbers" for one in given)
    raise InputError(f"the vectors are not of one space: {shapes}. {_advice(given)}")


def _advice(given: list[VectorFile]) -> str:
    """Which of them would have to be transposed for all to be of one dimension."""
    others = {one.shape[1]: [other for other in given if other.shape[1] != one.shape[1]] for one in given}
    options = [rest for dim, rest in others.items() if all(one.shape[0] == dim for one in rest)]
    if not options and len({one.shape[0] for one in given}) == 1 and all(one.shape[0] < one.shape[1] for one in given):
        options = [given]
    if not options:
        return "Give vectors of the same model on all sides"
    names = " or the ".join(" and ".join(one.name for one in option) for option in options)
    return f"It looks as if the {names} were transposed, a vector a column: save array.T, a vector a row"

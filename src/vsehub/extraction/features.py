"""Pictures through a network, chunk by chunk; the next are read while these are computed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import InputError, require
from vsehub.data.sources import CaptionedImages
from vsehub.extraction.chunks import Chunk, ChunkFiles
from vsehub.io.progress import ahead

T = TypeVar("T")


class Processes(NamedTuple):
    """rank: of this process, from 0. world: how many. local: the rank on this machine, which picks the GPU."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Processes":
        """From RANK, WORLD_SIZE and LOCAL_RANK; without them there is one. Raises InputError for impossible values."""
        given = {name: environment.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        try:
            rank, world = int(given["RANK"] or 0), int(given["WORLD_SIZE"] or 1)
            local = rank if given["LOCAL_RANK"] is None else int(given["LOCAL_RANK"])
        except ValueError as error:
            raise InputError(f"the environment has {given}; expected whole numbers, as torchrun sets them") from error
        require(
            0 <= rank < world and local >= 0 and (given["RANK"] is None) == (given["WORLD_SIZE"] is None),
            f"the environment has {given}; expected RANK from 0 to WORLD_SIZE - 1, as torchrun sets them, or neither",
        )
        return cls(rank, world, local)

    def own(self, work: Sequence[T]) -> list[T]:
        """What of `work` this process does: every piece is one process's."""
        return list(work[self.rank :: self.world])


_AHEAD = 2  # batches that are read ahead
_NAMED = 5


def extract(
    features: Callable[[Tensor], Tensor],
    splits: Mapping[str, CaptionedImages],
    chunks: Sequence[Chunk],
    files: ChunkFiles,
    *,
    batch_size: int,
    dtype: torch.dtype,
    device: torch.device,
    bf16: bool = False,
) -> int:
    """Find and store the features of the chunks that are not there yet; how many images that were.

    features: pixels (b, ...) as the data gives them, on `device` -> (b, ...). dtype: in which they are stored. bf16:
    compute in mixed precision. Raises InputError naming the images whose features cannot be used.
    """
    missing = [chunk for chunk in chunks if not files.done(chunk)]
    images = sum(chunk.stop - chunk.start for chunk in missing)
    whole = sum(chunk.stop - chunk.start for chunk in chunks)
    pinned = device.type == "cuda"

    def read(rows: Chunk) -> Tensor:
        pixels = torch.from_numpy(
            np.require(splits[rows.split].images[rows.start : rows.stop], requirements=["C", "W"])
        )
        return pixels.pin_memory() if pinned else pixels

    def store(chunk: Chunk, found: list[Tensor]) -> None:
        stored = torch.cat(found).to(dtype).cpu()
        refuse_unusable(stored, chunk, splits[chunk.split].names)
        files.write(chunk, stored.numpy())

    writing: Future | None = None
    bar = tqdm(total=whole, initial=whole - images, desc="extracting", unit=" images", disable=None, smoothing=0.05)
    with bar, ThreadPoolExecutor(1) as writer, torch.inference_mode():
        batches = ahead((read(rows) for chunk in missing for rows in _batches(chunk, batch_size)), _AHEAD)
        for chunk in missing:
            found = []
            for _ in _batches(chunk, batch_size):
                pixels = next(batches).to(device, non_blocking=True)
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    found.append(features(pixels))
                bar.update(len(pixels))
            if writing is not None:
                writing.result()
            writing = writer.submit(store, chunk, found)
        if writing is not None:
            writing.result()
    return images


def _batches(chunk: Chunk, size: int) -> Iterator[Chunk]:
    for start in range(chunk.start, chunk.stop, size):
        yield Chunk(chunk.split, start, min(start + size, chunk.stop))


def refuse_unusable(stored: Tensor, chunk: Chunk, names: Sequence[str] | None) -> None:
    """InputError naming the images of a chunk whose features hold NaN or infinite values, or are zeros alone."""
    rows = stored.flatten(1)
    largest = rows.abs().amax(dim=1).float()  # NaN where there is one
    bad = [row for row, value in enumerate(largest.tolist()) if not 0 < value < float("inf")]
    named = [f"image {chunk.start + row}" if names is None else names[chunk.start + row] for row in bad[:_NAMED]]
    more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
    require(
        not bad,
        f"{chunk.split}: the features of {', '.join(named)}{more} hold NaN or infinite values or are zeros alone. Look "
        "at these pictures and at the weights; with dtype=float16 give dtype=float32, with precision=bf16 precision=32",
    )

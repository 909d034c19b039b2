"""Features of pictures, computed chunk by chunk while the next pictures are read."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from vsehub.data.sources import CaptionedImages
from vsehub.encoders.precision import without_tf32
from vsehub.extraction.chunks import Chunk, ChunkFiles
from vsehub.io.progress import ahead, bar
from vsehub.io.rows import UnusableRows

_AHEAD = 2  # batches that are read ahead


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
    """Extract and store the chunks that are not done yet; returns the number of images of these chunks.

    features: pixels (b, ...) of the data, on `device` -> (b, ...). dtype: of the stored features. bf16:
    whether to compute in mixed precision. Raises InputError naming the images whose features cannot be used.
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
        refuse_unusable(stored, chunk, splits[chunk.split].name_of)
        files.write(chunk, stored.numpy())

    writing: Future[None] | None = None
    steps = bar("extracting", total=whole, initial=whole - images, unit=" images", smoothing=0.05)
    with steps, ThreadPoolExecutor(1) as writer, torch.inference_mode(), without_tf32():
        batches = ahead((read(rows) for chunk in missing for rows in _batches(chunk, batch_size)), _AHEAD)
        for chunk in missing:
            found = []
            for _ in _batches(chunk, batch_size):
                pixels = next(batches).to(device, non_blocking=True)
                with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                    found.append(features(pixels))
                steps.update(len(pixels))
            if writing is not None:
                writing.result()
            writing = writer.submit(store, chunk, found)
        if writing is not None:
            writing.result()
    return images


def _batches(chunk: Chunk, size: int) -> Iterator[Chunk]:
    for start in range(chunk.start, chunk.stop, size):
        yield Chunk(chunk.split, start, min(start + size, chunk.stop))


def refuse_unusable(stored: Tensor, chunk: Chunk, name: Callable[[int], str]) -> None:
    """Raise InputError naming the images of a chunk whose features contain NaN or infinite values, or only zeros."""
    unusable = UnusableRows(name)
    largest = stored.flatten(1).abs().amax(dim=1).float()  # NaN if any value is NaN
    unusable.add(chunk.start, largest.numpy())
    unusable.refuse(
        f"{chunk.split}: of the features, those of",
        "Look at these pictures and at the weights; with dtype=float16 give dtype=float32, with precision=bf16 "
        "precision=32",
    )

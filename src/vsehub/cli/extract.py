"""`vsehub extract`: features of pictures by a pretrained network, once, in the layout of data=precomp."""

import logging
import os
import shutil
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import InputError, one_of, positive, require, whole
from vsehub.cli import app

if TYPE_CHECKING:
    import torch

    from vsehub.data.captioned import CaptionedImages
    from vsehub.encoders.image_backbone import ImageBackbone
    from vsehub.extraction.chunks import Chunk

log = logging.getLogger(__name__)
MANIFEST, PARTS, SCHEMA = "manifest.json", "parts", 1


def main() -> None:
    """Run the command."""
    app.run(extract, "extract")


def extract(cfg: DictConfig) -> None:
    """Extract what is missing; the first of several processes puts all together."""
    from vsehub.cli.build import build_source
    from vsehub.extraction import features as extraction
    from vsehub.extraction.chunks import ChunkFiles, chunks_of
    from vsehub.extraction.layout import assemble, captions_each
    from vsehub.extraction.processes import Processes
    from vsehub.files import write_json

    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    processes, out = Processes.of(os.environ), Path(cfg.out)
    refuse_settings(cfg, processes.world)
    source = build_source(cfg)
    splits = {split: source.load(split) for split in cfg.splits}
    each = captions_each(splits, cfg.captions)
    encoder, device = built(cfg, splits), chosen_device(cfg.device, processes.local)
    bf16 = uses_bf16(cfg.precision, device)
    settings = work_settings(cfg, encoder, splits, bf16)
    if finished(out, settings | {"captions": each}, cfg):
        return
    chunks = chunks_of({split: len(loaded.images) for split, loaded in splits.items()}, cfg.chunk)
    refuse_small_disk(out, encoder, cfg, chunks)
    files = ChunkFiles(out / PARTS, settings, cfg.overwrite)
    for split, loaded in splits.items():
        left_out = len(loaded.captions) - each * len(loaded.images)
        log.info("%s: %d images, %d captions of each; %d left out", split, len(loaded.images), each, left_out)

    images = extraction.extract(
        feature_function(encoder, cfg.regions, device),
        splits,
        processes.own(chunks),
        files,
        batch_size=cfg.batch_size,
        dtype=dtype_of(cfg.dtype),
        device=device,
        bf16=bf16,
    )
    seconds = time.perf_counter() - began
    if processes.rank > 0:
        print(f"process {processes.rank} of {processes.world}: {images} images in {seconds:.0f} s; the first writes {out}")
        return
    files.wait(chunks, cfg.patience, log.info)
    written = assemble(out, splits, chunks, files, each)
    timing = {"started": started, "images": images, "seconds": seconds, "processes": processes.world}
    write_json(out / MANIFEST, manifest(cfg, encoder, splits, written, settings | {"captions": each}, timing))
    files.remove()
    print(f"written to {out}: {', '.join((*written, MANIFEST))}")
    print(f"train on them with: vsehub train data=precomp data.root={out}")

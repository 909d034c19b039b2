"""`vsehub extract`: extract features of pictures with a pretrained network, in the layout of data=precomp."""

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, one_of, positive, precision_word, require, whole
from vsehub.cli import app
from vsehub.io.outputs import require_writable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vsehub.data.sources import CaptionedImages, Source
    from vsehub.encoders.pretrained.networks import Backbone
    from vsehub.extraction.chunks import ChunkFiles

log = logging.getLogger(__name__)


def main() -> None:
    """Run the command."""
    app.run(extract, "extract")


def extract(cfg: DictConfig) -> None:
    """Extract the missing features; with several processes, the first one assembles the files."""
    import torch

    from vsehub.extraction import features, folder
    from vsehub.extraction.chunks import ChunkFiles, Processes, chunks_of
    from vsehub.extraction.folder import assemble, captions_each
    from vsehub.io.files import write_json
    from vsehub.neighbors.rounded import uses_bf16

    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    require(not OmegaConf.is_missing(cfg, "out"), "out is not set; give out=FOLDER")
    processes, out = Processes.of(os.environ), Path(cfg.out)
    refuse_settings(cfg, processes.world)
    require_writable(out)
    dtype = getattr(torch, cfg.dtype)
    source = build_source(cfg)
    splits = {split: source.load(split).with_own_captions() for split in cfg.splits}
    each, sizes = captions_each(splits, cfg.captions), {split: len(loaded.images) for split, loaded in splits.items()}
    device = device_of(cfg.device, processes.local)
    bf16, backbone = uses_bf16(precision_word(cfg.precision), device.type), built(cfg, splits).to(device)
    settings = work_settings(cfg, backbone, splits, bf16)
    whole_settings = settings | {"captions": each}
    if folder.finished(out, whole_settings, cfg.splits, cfg.overwrite, cfg.verify):
        if processes.rank == 0 and (out / folder.PARTS).exists():
            with suppress(InputError):  # chunks of another command
                removed(ChunkFiles(out / folder.PARTS, settings))  # the command was killed before it removed them
        how = "checksums" if cfg.verify else "sizes"
        print(f"{out} already holds this extraction; nothing to do. The files' {how} are unchanged")
        return
    compute = backbone if cfg.regions is None else partial(backbone.regions, side=cfg.regions)
    folder.require_room(out, sum(sizes.values()) * bytes_each(compute, splits, device, dtype))
    chunks, files = chunks_of(sizes, cfg.chunk), ChunkFiles(out / folder.PARTS, settings, cfg.overwrite)
    for split, loaded in splits.items():
        left_out = len(loaded.captions) - each * sizes[split]
        log.info("%s: %d images, %d captions of each; %d captions omitted", split, sizes[split], each, left_out)

    own = processes.own(chunks)
    images = features.extract(
        compute, splits, own, files, batch_size=cfg.batch_size, dtype=dtype, device=device, bf16=bf16
    )
    if processes.rank > 0:
        print(f"process {processes.rank} of {processes.world} has finished its part: {images} images")
        return
    try:
        if processes.world > 1:  # a single process has extracted all, or another command has removed the chunks
            files.wait(chunks, cfg.patience, log.info)
        written = assemble(out, splits, chunks, files, each)
    except InputError:
        if not folder.finished(out, whole_settings, cfg.splits):
            raise
        removed(files)  # the same command was run twice, and the other one has finished and removed the chunks
        print(f"{out} holds this extraction; another process has finished it")
        return
    timing = {
        "started": started,
        "seconds": time.perf_counter() - began,
        "images": images,
        "processes": processes.world,
    }
    write_json(out / folder.MANIFEST, record(cfg, backbone, splits, whole_settings) | {"files": written, "run": timing})
    removed(files)
    print(f"written to {out}: {', '.join((*written, folder.MANIFEST))}")
    print(f"to train on them: vsehub train data=precomp data.root={out}")


def removed(files: "ChunkFiles") -> None:
    """Remove the chunks; another process may be removing them as well."""
    with suppress(FileNotFoundError):
        files.remove()


def refuse_settings(cfg: DictConfig, processes: int) -> None:
    """Raise InputError for settings that can be refused before anything is loaded."""
    from vsehub.data.sources import SPLITS

    one_of("dtype", cfg.dtype, ("float16", "float32"))
    precision_word(cfg.precision)
    whole("batch_size", cfg.batch_size)
    whole("chunk", cfg.chunk)
    positive("patience", cfg.patience)
    for split in cfg.splits:
        one_of("splits", split, SPLITS)
    require(len(set(cfg.splits)) == len(cfg.splits) > 0, f"splits is {list(cfg.splits)}; name each wanted split once")
    require(
        not cfg.overwrite or processes == 1,
        f"overwrite=true does not work with {processes} processes, since one may have started; remove {cfg.out} first",
    )


def built(cfg: DictConfig, splits: "Mapping[str, CaptionedImages]") -> "Backbone":
    """The backbone of the chosen image encoder for the data's pictures, in eval mode."""
    from vsehub.cli.nodes import build, components, plain
    from vsehub.encoders.pretrained.images import ImageBackbone

    for split, loaded in splits.items():
        require(
            loaded.written and loaded.pairs is None,
            f"{split}: the layout can only hold pictures that each have their own captions; this data's texts differ",
        )
    require(
        components(cfg.trust).find("image_encoder", plain(cfg.image_encoder)) is ImageBackbone,
        f"{cfg.image_encoder['_target_'].split('.')[-1]} is not a pretrained network; give image_encoder=resnet152, "
        "vgg19, inception_resnet_v2, torchvision or timm",
    )
    shape = list(splits[cfg.splits[0]].images.shape[1:])
    encoder = build("image_encoder", cfg.image_encoder, cfg.trust, image_shape=shape, dim=1)
    return encoder.eval().backbone


def device_of(name: str, local: int) -> "torch.device":
    """The device of that name; with several GPUs, the one for this process."""
    import torch

    from vsehub.cli.nodes import device_named

    device = device_named(name)
    return torch.device("cuda", local % torch.cuda.device_count()) if str(device) in ("cuda", "cuda:0") else device


def bytes_each(
    compute: "Callable[[Tensor], Tensor]",
    splits: "Mapping[str, CaptionedImages]",
    device: "torch.device",
    dtype: "torch.dtype",
) -> int:
    """The bytes that one picture's features take, measured on the first picture."""
    import torch

    picture = torch.tensor(next(iter(splits.values())).images[:1], device=device)
    with torch.inference_mode():
        return compute(picture).numel() * dtype.itemsize


def work_settings(
    cfg: DictConfig, backbone: "Backbone", splits: "Mapping[str, CaptionedImages]", bf16: bool
) -> dict[str, Any]:
    """Everything that the chunks depend on: a command with equal settings continues them."""
    return {
        "library": backbone.library,
        "model": backbone.model,
        "weights": backbone.weights_hash(),
        "regions": cfg.regions,
        "data": {split: loaded.fingerprint() for split, loaded in splits.items()},
        "dtype": cfg.dtype,
        "precision": "bf16" if bf16 else "32",
        "chunk": cfg.chunk,
    }


def record(
    cfg: DictConfig, backbone: "Backbone", splits: "Mapping[str, CaptionedImages]", settings: Mapping[str, Any]
) -> dict[str, Any]:
    """The manifest: which pictures the features are of, and how they were made."""
    from importlib import metadata

    from vsehub import __version__
    from vsehub.cli.nodes import plain
    from vsehub.data.sources import describe_split
    from vsehub.extraction.folder import PREFIXES
    from vsehub.io.provenance import code_version, hardware, versions
    from vsehub.io.records import EXTRACTION

    mean, std = backbone.mean_std
    return {
        "schema": EXTRACTION.version,
        "settings": settings,
        "splits": {split: describe_split(loaded) | {"prefix": PREFIXES[split]} for split, loaded in splits.items()},
        "normalisation": {"mean": mean, "std": std},
        "image_encoder": plain(cfg.image_encoder),
        "data": plain(cfg.data),
        "vsehub": __version__,
        "command": " ".join(sys.argv),
        "versions": versions() | {backbone.library: metadata.version(backbone.library)},
        "git": code_version(),
        "hardware": hardware(),
    }


def build_source(cfg: DictConfig) -> "Source":
    """The data source of `cfg.data`. Raises InputError if a mandatory setting is missing, or if noise is set."""
    from vsehub.cli.nodes import components, plain
    from vsehub.components import make
    from vsehub.data.noise import Noise

    node = plain(cfg.data)
    noise = make("data.noise", Noise, node.pop("noise", None) or {})
    require(not noise.wanted, "data.noise is for training only; omit data.noise.rate and data.noise.index")
    return components(cfg.get("trust")).build("data", node)

"""`vsehub extract`: features of pictures for data=precomp, or joint vectors of pictures and captions."""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import InputError, one_of, positive, precision_word, require, whole
from vsehub.cli import app
from vsehub.cli.nodes import build, build_source, components, device_named, plain
from vsehub.io.command import typed_command
from vsehub.io.outputs import require_writable

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from vsehub.data.sources import CaptionedImages, Source
    from vsehub.encoders.pretrained.networks import Backbone
    from vsehub.extraction.chunks import Chunk, ChunkFiles

log = logging.getLogger(__name__)
_SHOWN = 12  # files named when all are written


def main() -> None:
    """Run the command."""
    app.run(extract, "extract")


@dataclass(frozen=True)
class Plan:
    """What is computed and written.

    compute: rows on the device -> (b, ...). rows: what is computed, by the names that chunks bear. names: of the files
    that are written. settings: everything that the chunks depend on. also: and what the files depend on beside that.
    row_bytes: gives the bytes of one row. assemble: writes the files from the chunks. facts: for the manifest. hint:
    what to do next. unit: what a row is.
    """

    compute: "Callable[[Tensor], Tensor]"
    rows: "Mapping[str, CaptionedImages]"
    names: list[str]
    settings: dict[str, Any]
    also: dict[str, Any]
    row_bytes: "Callable[[], int]"
    assemble: "Callable[[Sequence[Chunk], ChunkFiles], dict[str, Any]]"
    facts: dict[str, Any]
    hint: str
    unit: str = "images"


def extract(cfg: DictConfig) -> None:
    """Extract the missing rows; with several processes, the first one assembles the files."""
    from vsehub.extraction.chunks import ChunkFiles, Processes, chunks_of

    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    require(not OmegaConf.is_missing(cfg, "out"), "out is not set; give out=FOLDER")
    processes, out = Processes.of(os.environ), Path(cfg.out)
    refuse_settings(cfg, processes.world)
    require_writable(out)
    source = build_source(plain(cfg.data), components(cfg.get("trust")))

    import torch

    from vsehub.extraction import features, folder
    from vsehub.io.files import write_json
    from vsehub.neighbors.rounded import uses_bf16

    splits = {split: source.load(split) for split in cfg.splits}
    device = device_of(cfg.device, processes.local)
    torch.manual_seed(cfg.seed)
    bf16 = uses_bf16(precision_word(cfg.precision), device.type)
    plan = (joint_plan if is_joint(cfg) else features_plan)(cfg, source, splits, device, bf16)
    everything = plan.settings | plan.also
    if folder.finished(out, everything, plan.names, cfg.overwrite, cfg.verify):
        if processes.rank == 0 and (out / folder.PARTS).exists():
            with suppress(InputError):  # chunks of another command
                removed(ChunkFiles(out / folder.PARTS, plan.settings))  # killed before it removed them
        how = "checksums" if cfg.verify else "sizes"
        print(f"{out} already holds this extraction; nothing to do. The files' {how} are unchanged")
        return
    sizes = {name: len(loaded.images) for name, loaded in plan.rows.items()}
    folder.require_room(out, sum(sizes.values()) * plan.row_bytes())
    chunks, files = chunks_of(sizes, cfg.chunk), ChunkFiles(out / folder.PARTS, plan.settings, cfg.overwrite)

    own = processes.own(chunks)
    rows = features.extract(
        plan.compute,
        plan.rows,
        own,
        files,
        batch_size=cfg.batch_size,
        dtype=getattr(torch, cfg.dtype),
        device=device,
        bf16=bf16,
    )
    if processes.rank > 0:
        print(f"process {processes.rank} of {processes.world} has finished its part: {rows} {plan.unit}")
        return
    try:
        if processes.world > 1:  # a single process has extracted all, or another command has removed the chunks
            files.wait(chunks, cfg.patience, log.info)
        written = plan.assemble(chunks, files)
    except InputError:
        if not folder.finished(out, everything, plan.names):
            raise
        removed(files)  # the same command was run twice, and the other one has finished and removed the chunks
        print(f"{out} holds this extraction; another process has finished it")
        return
    timing = {
        "started": started,
        "seconds": time.perf_counter() - began,
        "images": rows,
        "processes": processes.world,
    }
    write_json(out / folder.MANIFEST, record(cfg, splits, everything) | plan.facts | {"files": written, "run": timing})
    removed(files)
    named = [*written, folder.MANIFEST]
    shown = ", ".join(named[:_SHOWN]) + (f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else "")
    print(f"written to {out}: {shown}")
    print(plan.hint)


def features_plan(
    cfg: DictConfig, source: "Source", splits: "Mapping[str, CaptionedImages]", device: "torch.device", bf16: bool
) -> Plan:
    """Features of pictures for data=precomp, by a network that was trained on labels."""
    from importlib import metadata

    import torch

    from vsehub.data.sources import describe_split
    from vsehub.extraction.folder import PREFIXES, assemble, captions_each, file_names
    from vsehub.io.provenance import versions

    splits = {split: loaded.with_own_captions() for split, loaded in splits.items()}
    each, backbone = captions_each(splits, cfg.captions), built(cfg, splits).to(device)
    for split, loaded in splits.items():
        left_out = len(loaded.captions) - each * len(loaded.images)
        log.info("%s: %d images, %d captions of each; %d captions omitted", split, len(loaded.images), each, left_out)
    compute = backbone if cfg.regions is None else partial(backbone.regions, side=cfg.regions)
    mean, std = backbone.mean_std
    model = {"library": backbone.library, "model": backbone.model, "weights": backbone.weights_hash()}
    out, dtype = Path(cfg.out), getattr(torch, cfg.dtype)
    return Plan(
        compute,
        splits,
        file_names(cfg.splits),
        work_settings(cfg, model | {"regions": cfg.regions}, splits, bf16),
        {"captions": each},
        partial(bytes_each, compute, splits, device, dtype),
        lambda chunks, files: assemble(out, splits, chunks, files, each),
        {
            "normalisation": {"mean": mean, "std": std},
            "splits": {split: describe_split(one) | {"prefix": PREFIXES[split]} for split, one in splits.items()},
            "versions": versions() | {backbone.library: metadata.version(backbone.library)},
        },
        f"to train on them: vsehub train data=precomp data.root={out}",
    )


def is_joint(cfg: DictConfig) -> bool:
    """Whether the chosen image encoder is one side of a joint model."""
    from vsehub.encoders import ImageTower

    return components(cfg.trust).find("image_encoder", plain(cfg.image_encoder)) is ImageTower


def joint_plan(
    cfg: DictConfig, source: "Source", splits: "Mapping[str, CaptionedImages]", device: "torch.device", bf16: bool
) -> Plan:
    """Vectors of pictures and captions in the space of a joint model, in clip-retrieval's layout."""
    import torch

    from vsehub.data.photos.prepared import prepared
    from vsehub.evaluation.zero_shot import ZeroShot
    from vsehub.extraction import joint

    node = plain(cfg.image_encoder)
    changed = [name for name, usual in (("tune", "none"), ("linear", None), ("config", None)) if node[name] != usual]
    require(
        not changed and cfg.regions is None,
        f"{', '.join(changed) or 'regions'}: the vectors are those of the model as it was published; leave it out",
    )
    if cfg.captions is not None:
        whole("captions", cfg.captions)
    for split, loaded in splits.items():
        require(
            loaded.written, f"{split}: the data's texts are vectors; choose data of captions, such as data=karpathy"
        )
    settings = {"weights": node["weights"], "pretrained": node["pretrained"], "prompt": cfg.prompt}
    model = ZeroShot(f"{node['library']}:{node['model']}", source, device=str(device), **settings)
    assert model.vocabulary is not None
    how = model.model.image_encoder.preparation
    kept = {split: first_captions(prepared(loaded, how), cfg.captions) for split, loaded in splits.items()}
    for split, loaded in kept.items():
        log.info("%s: %d images, %d captions", split, len(loaded.images), len(loaded.captions))
    towers = model.model.image_encoder, model.model.text_encoder
    rows = joint.sides_of(kept, model.vocabulary, cfg.prompt)
    sizes = {split: {"images": len(one.images), "texts": len(one.captions)} for split, one in kept.items()}
    shards, out, dtype = joint.shards_of(sizes, cfg.chunk), Path(cfg.out), getattr(torch, cfg.dtype)
    return Plan(
        partial(joint.vectors, *towers),
        rows,
        joint.file_names(shards),
        work_settings(cfg, {"model": model.facts}, kept, bf16),
        {"captions": cfg.captions},
        partial(joint.bytes_each, towers[0], next(iter(kept.values())), device, dtype),
        lambda chunks, files: joint.assemble(out, kept, shards, files),
        {"zero_shot": model.facts},
        f"to measure their hubness: vsehub diagnose queries={out}/{cfg.splits[-1]}/texts::text_emb "
        f"items={out}/{cfg.splits[-1]}/images::img_emb truth={out}/{cfg.splits[-1]}.csv",
        "pictures and captions",
    )


def first_captions(loaded: "CaptionedImages", most: int | None) -> "CaptionedImages":
    """The split with at most the first `most` captions of each image; None: all."""
    import numpy as np

    if most is None or loaded.pairs is not None:
        return loaded
    order = np.argsort(loaded.image_index, kind="stable")
    first = np.r_[True, np.diff(loaded.image_index[order]) != 0]
    place = np.arange(len(order)) - np.flatnonzero(first)[first.cumsum() - 1]
    kept = np.sort(order[place < most])
    return replace(loaded, captions=[str(loaded.captions[row]) for row in kept], image_index=loaded.image_index[kept])


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
    require(type(cfg.seed) is int and cfg.seed >= 0, f"seed is {cfg.seed!r}; expected a whole number from 0")
    for split in cfg.splits:
        one_of("splits", split, SPLITS)
    require(len(set(cfg.splits)) == len(cfg.splits) > 0, f"splits is {list(cfg.splits)}; name each wanted split once")
    require(
        not cfg.overwrite or processes == 1,
        f"overwrite=true does not work with {processes} processes, since one may have started; remove {cfg.out} first",
    )


def built(cfg: DictConfig, splits: "Mapping[str, CaptionedImages]") -> "Backbone":
    """The backbone of the chosen image encoder for the data's pictures, in eval mode."""
    from vsehub.encoders.pretrained.images import ImageBackbone

    for split, loaded in splits.items():
        require(
            loaded.written and loaded.pairs is None,
            f"{split}: the layout can only hold pictures that each have their own captions; this data's texts differ",
        )
    require(
        components(cfg.trust).find("image_encoder", plain(cfg.image_encoder)) is ImageBackbone,
        f"{cfg.image_encoder['_target_'].split('.')[-1]} is not a pretrained network; give image_encoder=resnet152, "
        "vgg19, inception_resnet_v2, torchvision, timm, or open_clip or hf for vectors of a joint space",
    )
    shape = list(splits[cfg.splits[0]].images.shape[1:])
    encoder = build("image_encoder", cfg.image_encoder, cfg.trust, image_shape=shape, dim=1)
    return encoder.eval().backbone


def device_of(name: str, local: int) -> "torch.device":
    """The device of that name; with several GPUs, the one for this process."""
    import torch

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
    cfg: DictConfig, model: Mapping[str, Any], splits: "Mapping[str, CaptionedImages]", bf16: bool
) -> dict[str, Any]:
    """Everything that the chunks depend on: a command with equal settings continues them."""
    return {
        **model,
        "data": {split: loaded.fingerprint() for split, loaded in splits.items()},
        "dtype": cfg.dtype,
        "precision": "bf16" if bf16 else "32",
        "chunk": cfg.chunk,
    }


def record(cfg: DictConfig, splits: "Mapping[str, CaptionedImages]", settings: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest: which pictures the rows are of, and how they were made."""
    from vsehub import __version__
    from vsehub.data.sources import describe_split
    from vsehub.io.provenance import code_version, hardware, versions
    from vsehub.io.records import EXTRACTION

    return {
        "schema": EXTRACTION.version,
        "settings": settings,
        "splits": {split: describe_split(loaded) for split, loaded in splits.items()},
        "image_encoder": plain(cfg.image_encoder),
        "data": plain(cfg.data),
        "vsehub": __version__,
        "command": typed_command(),
        "versions": versions(),
        "git": code_version(),
        "hardware": hardware(),
    }

"""`vsehub extract`: features of pictures for data=precomp, or joint vectors of pictures and captions."""

import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig

from vsehub.checks import one_of, require, whole
from vsehub.cli.nodes import build, clean_source, components, device_named, plain
from vsehub.data.sources import SPLITS, CaptionedImages, Source
from vsehub.io.address import masked_settings, typed_command
from vsehub.io.files import Output, write_json

if TYPE_CHECKING:
    from vsehub.extraction.layouts import Work

KIND, MANIFEST, CHUNKS = "an extraction", "manifest.json", ".chunks"


class Plan(NamedTuple):
    """The work of an extraction.

    splits: the loaded splits. work: the rows to compute, by name. model: what the results depend on besides the data.
    write: function (folder, splits, chunks) that writes the files. hint: a sentence on what to do with them.
    """

    splits: Mapping[str, CaptionedImages]
    work: Mapping[str, "Work"]
    model: dict[str, Any]
    write: Callable[..., None]
    hint: str


def extract(cfg: DictConfig) -> None:
    """Compute the chunks that are missing in the folder `out`, and put all of them together."""
    whole("batch_size", cfg.batch_size)
    one_of("dtype", cfg.dtype, ("float16", "float32"))
    require(
        0 < len({*cfg.splits} & {*SPLITS}) == len(cfg.splits),
        f"splits is {list(cfg.splits)}; name one or more of {', '.join(SPLITS)}, each once",
    )
    known, encoder = components(cfg.trust), plain(cfg.image_encoder)
    source = clean_source(plain(cfg.data), known)

    from vsehub.encoders import ImageTower
    from vsehub.extraction.layouts import begin, compute, feature_files, vector_files
    from vsehub.io.provenance import code_version, versions
    from vsehub.machine import hardware

    is_joint = known.find("image_encoder", encoder) is ImageTower
    names = vector_files(cfg.splits) if is_joint else feature_files(cfg.splits)
    output = Output(cfg.out, KIND, [*names, MANIFEST], cfg.overwrite)
    done = output.folder / CHUNKS
    with output.replaced():
        plan = plan_vectors(cfg, source) if is_joint else plan_features(cfg, source)
        settings = {
            "model": plan.model,
            "data": {split: loaded.fingerprint() for split, loaded in plan.splits.items()},
            "dtype": cfg.dtype,
            "batch_size": cfg.batch_size,
        }
        begin(done, settings, cfg.overwrite)
        chunks = {name: compute(done, name, rows, cfg.batch_size, cfg.dtype) for name, rows in plan.work.items()}
        plan.write(output.new, plan.splits, chunks)
        write_json(
            output / MANIFEST,
            {
                "settings": settings,
                "image_encoder": encoder,
                "data": masked_settings(plain(cfg.data)),
                "command": typed_command(),
                "versions": versions(),
                "git": code_version(),
                "hardware": hardware(),
            },
        )
    shutil.rmtree(done)
    counts = ", ".join(f"{len(loaded.images):,} images of {split}" for split, loaded in plan.splits.items())
    print(f"written to {cfg.out}: {counts}\n{plan.hint}")


def plan_features(cfg: DictConfig, source: Source) -> Plan:
    """Features of pictures for data=precomp, by a network that was trained on labels."""
    import torch

    from vsehub.encoders import ImageBackbone
    from vsehub.encoders.pretrained.networks import weights_hash
    from vsehub.extraction.layouts import Work, same_captions, write_features

    splits = same_captions({split: source.load(split) for split in cfg.splits})
    device, shape = device_named(cfg.device), list(splits[cfg.splits[0]].images.shape[1:])
    torch.manual_seed(0)  # of random weights, so that a killed command continues with the same
    encoder = build("image_encoder", cfg.image_encoder, cfg.trust, image_shape=shape, dim=1).eval().to(device)
    require(
        isinstance(encoder, ImageBackbone),
        f"{type(encoder).__name__} is not a pretrained network; give image_encoder=resnet152, vgg19, "
        "inception_resnet_v2, torchvision, timm, or open_clip or hf for vectors of a joint space",
    )
    backbone = encoder.backbone
    model = {"library": backbone.library, "model": backbone.model, "weights": weights_hash(backbone.network)}
    model |= {"regions": encoder.side, "normalisation": backbone.mean_std}
    work = {
        split: Work(part.images, lambda rows: encoder.features(torch.tensor(rows, device=device)), part.name_of)
        for split, part in splits.items()
    }
    hint = f"to train on them: vsehub train data=precomp data.root={cfg.out}"
    return Plan(splits, work, model, write_features, hint)


def plan_vectors(cfg: DictConfig, source: Source) -> Plan:
    """Vectors of pictures and captions in the space of a joint model."""
    from vsehub.extraction.layouts import Work, write_vectors
    from vsehub.models.zero_shot import ZeroShot

    node, settings = cfg.image_encoder, {"batch_size": cfg.batch_size, "device": str(device_named(cfg.device))}
    model = ZeroShot(f"{node.library}:{node.model}", source, node.weights, cfg.prompt, **settings)
    splits, vectors = {split: model.split(split) for split in cfg.splits}, model.similarity.vectors
    work = {}
    for split, loaded in splits.items():
        images, texts = loaded.images, loaded.captions
        work[f"{split}-images"] = Work(images, lambda rows: vectors(model.encode_images(rows)), loaded.name_of)
        work[f"{split}-texts"] = Work(texts, lambda rows: vectors(model.encode_texts(rows)), loaded.text_of)
    folder = f"{cfg.out}/{cfg.splits[-1]}"
    hint = (
        f"to measure their hubness: vsehub diagnose queries={folder}/texts::text_emb items={folder}/images::img_emb "
        f"truth={folder}.csv"
    )
    return Plan(splits, work, model.description["zero_shot"], write_vectors, hint)

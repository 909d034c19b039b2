"""`vsehub extract`: features of pictures for data=precomp, or joint vectors of pictures and captions."""

import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from omegaconf import DictConfig

from vsehub.checks import one_of, require, whole
from vsehub.cli.nodes import build, components, device_named, plain, require_unset
from vsehub.data.sources import SPLITS, Source
from vsehub.io.address import masked_settings
from vsehub.io.files import Output, write_json

if TYPE_CHECKING:
    from vsehub.extraction.layouts import Work

KIND, MANIFEST, CHUNKS = "an extraction", "manifest.json", ".chunks"


class Plan(NamedTuple):
    """The work of an extraction.

    inputs: the loaded splits or, without splits, the `Side`s, by name. work: the rows to compute, by name. model: what
    the results depend on besides the data. write: function (folder, inputs, chunks) that writes the files. hint: a
    sentence on what to do with them.
    """

    inputs: Mapping[str, Any]
    work: Mapping[str, "Work"]
    model: dict[str, Any]
    write: Callable[..., None]
    hint: str


def extract(cfg: DictConfig) -> None:
    """Compute the chunks that are missing in the folder `out`, and put all of them together."""
    sides = {side: str(cfg[side]) for side in ("images", "texts") if cfg[side] is not None}
    require_settings(cfg, sides)
    source: Any = None if sides else components(cfg.trust).build("data", plain(cfg.data))
    names, make_plan = choose_plan(cfg, sides)

    from vsehub.extraction.layouts import compute, keep_or_discard_chunks
    from vsehub.io.provenance import origin
    from vsehub.machine import hardware

    output = Output(cfg.out, KIND, [*names, MANIFEST], cfg.overwrite)
    chunk_folder = output.folder / CHUNKS
    with output.transaction():
        plan = make_plan(cfg, source)
        settings = {
            "model": plan.model,
            "data": {split: loaded.fingerprint() for split, loaded in plan.inputs.items()},
            "dtype": cfg.dtype,
            "batch_size": cfg.batch_size,
        }
        keep_or_discard_chunks(chunk_folder, settings, cfg.overwrite)
        chunks = {
            name: compute(chunk_folder, name, rows, cfg.batch_size, cfg.dtype) for name, rows in plan.work.items()
        }
        plan.write(output.new, plan.inputs, chunks)
        write_json(
            output / MANIFEST,
            {
                "settings": settings,
                "image_encoder": plain(cfg.image_encoder),
                "data": masked_settings(sides or plain(cfg.data)),
                **origin(),
                "hardware": hardware(),
            },
        )
    shutil.rmtree(chunk_folder)
    counts = ", ".join(f"{name} {len(part.rows):,}" for name, part in plan.work.items())
    print(f"written to {cfg.out}: {counts}\n{plan.hint}")


def require_settings(cfg: DictConfig, sides: Mapping[str, str]) -> None:
    """Raise InputError for settings that do not fit each other; nothing has been imported for the work yet.

    sides: the settings "images" and "texts", as far as they are set; without them, splits are extracted.
    """
    whole("batch_size", cfg.batch_size)
    one_of("dtype", cfg.dtype, ("float16", "float32"))
    named = [split for split in SPLITS if split in cfg.splits]
    require(
        named != [] and sorted(named) == sorted(cfg.splits),
        f"splits is {list(cfg.splits)}; name one or more of {', '.join(SPLITS)}, each once",
    )
    require_unset(cfg, ("text_model",), "images, or without texts", unless=list(sides) == ["texts"])


def choose_plan(cfg: DictConfig, sides: Mapping[str, str]) -> tuple[list[str], Callable[..., Plan]]:
    """The names of the files that an extraction writes, and the function that plans it.

    sides: as in `require_settings`. Raises InputError for pictures without a joint model.
    """
    from vsehub.encoders import ImageTower
    from vsehub.extraction.layouts import feature_files, vector_files

    is_joint = components(cfg.trust).find("image_encoder", plain(cfg.image_encoder)) is ImageTower
    if sides:
        require(is_joint or "images" not in sides, "images: give a joint model, image_encoder=open_clip or hf")
        return [f"{side}.parquet" for side in sides], plan_sides
    if is_joint:
        return vector_files(cfg.splits), plan_vectors
    return feature_files(cfg.splits), plan_features


def plan_features(cfg: DictConfig, source: Source) -> Plan:
    """Features of pictures for data=precomp, by a network that was trained on labels."""
    import torch

    from vsehub.encoders import ImageBackbone
    from vsehub.encoders.pretrained.networks import weights_hash
    from vsehub.extraction.layouts import Work, equal_caption_counts, write_features

    splits = equal_caption_counts({split: source.load(split) for split in cfg.splits})
    device, shape = device_named(cfg.device), list(splits[cfg.splits[0]].images.shape[1:])
    torch.manual_seed(0)  # a killed command that starts again draws the same random weights
    encoder = build("image_encoder", cfg.image_encoder, cfg.trust, image_shape=shape, dim=1).eval().to(device)
    require(
        isinstance(encoder, ImageBackbone),
        f"{type(encoder).__name__} is not a pretrained network; give image_encoder=resnet152, vgg19, "
        "inception_resnet_v2, torchvision, timm, or open_clip or hf for vectors of a joint space",
    )
    backbone = encoder.backbone
    model = {
        "library": backbone.library,
        "model": backbone.model,
        "weights": weights_hash(backbone.network),
        "regions": encoder.grid,
        "normalisation": backbone.mean_std,
    }
    work = {
        split: Work(part.images, lambda rows: encoder.features(torch.tensor(rows, device=device)), part.name_of)
        for split, part in splits.items()
    }
    hint = f"to train on them: vsehub train data=precomp data.root={cfg.out}"
    return Plan(splits, work, model, write_features, hint)


def plan_vectors(cfg: DictConfig, source: Source) -> Plan:
    """Vectors of pictures and captions in the space of a joint model."""
    from vsehub.extraction.layouts import Work, write_vectors

    model = joint_model(cfg, source)
    splits, vectors = {split: model.split(split) for split in cfg.splits}, model.similarity.vectors
    work = {}
    for split, loaded in splits.items():
        images, texts = loaded.images, loaded.captions
        work[f"{split}-images"] = Work(images, lambda rows: vectors(model.encode_images(rows)), loaded.name_of)
        work[f"{split}-texts"] = Work(texts, lambda rows: vectors(model.encode_texts(rows)), loaded.text_of)
    folder = f"{cfg.out}/{cfg.splits[-1]}"
    hint = (
        f"to measure their hubness: vsehub diagnose queries={folder}/texts::text_emb items={folder}/images::img_emb "
        f"truth={folder}.csv{list_length(len(splits[cfg.splits[-1]].images))}"
    )
    return Plan(splits, work, model.description["zero_shot"], write_vectors, hint)


def plan_sides(cfg: DictConfig, source: Any) -> Plan:
    """Vectors of the pictures of a folder, of texts, or of both in one space, instead of splits."""
    from vsehub.encoders.pretrained.networks import weights_hash
    from vsehub.extraction.layouts import Side, Work, read_texts, sentence_encoder, sentence_model, write_tables

    sides, work = {}, {}
    if cfg.text_model is not None:
        sentences = sentence_model(cfg.text_model, str(device_named(cfg.device)))
        encode_texts = sentence_encoder(sentences, cfg.prompt, cfg.batch_size)
        description = {"text_model": cfg.text_model, "weights": weights_hash(sentences), "prompt": cfg.prompt}
    else:
        model = joint_model(cfg, source)
        description = model.description["zero_shot"]

        def encode_texts(rows: Any) -> Any:
            return model.similarity.vectors(model.encode_texts(rows))

        def encode_images(rows: Any) -> Any:
            return model.similarity.vectors(model.encode_images(rows))

        if cfg.images is not None:
            pictures = model.use_folder(cfg.images)
            sides["images"] = Side(pictures.images, pictures.names)
            work["images"] = Work(pictures.images, encode_images, pictures.name_of)
    if cfg.texts is not None:
        sides["texts"] = read_texts(cfg.texts)
        work["texts"] = Work(sides["texts"].rows, encode_texts, sides["texts"].ids.__getitem__)
    if len(sides) == 2:
        files, neighbours = f"items={cfg.out}/images.parquet queries={cfg.out}/texts.parquet", len(pictures.images)
    else:  # the only side is both: each item searches among the others
        (side,) = sides
        files, neighbours = f"items={cfg.out}/{side}.parquet", len(work[side].rows) - 1
    hint = f"to measure their hubness: vsehub diagnose {files}{list_length(neighbours)}"
    return Plan(sides, work, description, write_tables, hint)


def joint_model(cfg: DictConfig, source: Source | None) -> Any:
    """The published joint model of `cfg.image_encoder`, with a source of data or none."""
    from vsehub.models.zero_shot import ZeroShot

    node = cfg.image_encoder
    settings = {"batch_size": cfg.batch_size, "device": str(device_named(cfg.device))}
    return ZeroShot(f"{node.library}:{node.model}", source, node.weights, cfg.prompt, **settings)


def list_length(items: int) -> str:
    """The setting " k=..." for fewer items than the 10 that a list has by default, else ""."""
    return f" k={items}" if items < 10 else ""

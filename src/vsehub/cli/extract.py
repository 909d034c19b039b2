"""`vsehub extract`: features of pictures for data=precomp, or joint vectors of pictures and captions."""

import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import one_of, require, whole
from vsehub.cli.nodes import build, components, device_named, plain
from vsehub.io.address import typed_command
from vsehub.io.files import Output

if TYPE_CHECKING:
    import torch

    from vsehub.data.sources import CaptionedImages, Source
    from vsehub.extraction.layouts import Work

    # The rows to compute, by name, what they depend on, the function that writes the files of their chunks, and a hint.
    Plan = tuple[Mapping[str, CaptionedImages], Mapping[str, Work], dict[str, Any], Callable[..., None], str]

KIND, MANIFEST, CHUNKS = "an extraction", "manifest.json", ".chunks"


def extract(cfg: DictConfig) -> None:
    """Compute the chunks that are missing in the folder `out`, and put all of them together."""
    from vsehub.data.sources import SPLITS

    one_of("dtype", cfg.dtype, ("float16", "float32"))
    whole("batch_size", cfg.batch_size)
    require(
        0 < len(set(cfg.splits) & set(SPLITS)) == len(cfg.splits),
        f"splits is {list(cfg.splits)}; name one or more of {', '.join(SPLITS)}, each once",
    )
    known = components(cfg.trust)
    from vsehub.data.noise import clean_source

    source = clean_source(plain(cfg.data), known)

    import torch

    from vsehub.encoders import ImageTower
    from vsehub.extraction.layouts import begin, compute, feature_files, vector_files
    from vsehub.io.files import write_json
    from vsehub.io.provenance import code_version, hardware, versions

    is_joint = known.find("image_encoder", plain(cfg.image_encoder)) is ImageTower
    names = [*(vector_files if is_joint else feature_files)(cfg.splits), MANIFEST]
    output, device = Output(cfg.out, KIND, names, cfg.overwrite), device_named(cfg.device)
    dtype = getattr(torch, cfg.dtype)
    torch.manual_seed(0)  # of random weights, so that a killed command continues with the same
    with output.held():
        splits, work, model, write, hint = (plan_vectors if is_joint else plan_features)(cfg, source, device)
        data = {split: loaded.fingerprint() for split, loaded in splits.items()}
        settings = {"model": model, "data": data, "dtype": cfg.dtype, "batch_size": cfg.batch_size}
        begin(output / CHUNKS, settings, cfg.overwrite)
        chunks = {name: compute(output / CHUNKS, name, rows, cfg.batch_size, dtype) for name, rows in work.items()}
        output.begin(names)
        write(output.folder, splits, chunks)
        record = {"settings": settings, "image_encoder": plain(cfg.image_encoder), "data": plain(cfg.data)}
        origin = {"command": typed_command(), "versions": versions(), "git": code_version(), "hardware": hardware()}
        write_json(output / MANIFEST, record | origin)
        output.finish()
        shutil.rmtree(output / CHUNKS)
    counts = ", ".join(f"{len(loaded.images):,} images of {split}" for split, loaded in splits.items())
    print(f"written to {cfg.out}: {counts}\n{hint}")


def plan_features(cfg: DictConfig, source: "Source", device: "torch.device") -> "Plan":
    """Features of pictures for data=precomp, by a network that was trained on labels."""
    import torch

    from vsehub.encoders import ImageBackbone
    from vsehub.encoders.pretrained.networks import weights_hash
    from vsehub.extraction.layouts import Work, same_captions, write_features

    shape: tuple[int, ...] = ()
    loaded = {split: source.load(split) for split in cfg.splits}
    for split, part in loaded.items():
        require(part.written, f"{split}: the data's texts are vectors; choose data of captions, such as data=karpathy")
        shape = part.images.shape[1:]
    encoder = build("image_encoder", cfg.image_encoder, cfg.trust, image_shape=list(shape), dim=1).eval().to(device)
    require(
        isinstance(encoder, ImageBackbone),
        f"{type(encoder).__name__} is not a pretrained network; give image_encoder=resnet152, vgg19, "
        "inception_resnet_v2, torchvision, timm, or open_clip or hf for vectors of a joint space",
    )
    splits = same_captions({split: part.with_own_captions() for split, part in loaded.items()})
    backbone = encoder.backbone
    model = {"library": backbone.library, "model": backbone.model, "weights": weights_hash(backbone.network)}
    return (
        splits,
        {
            split: Work(part.images, lambda rows: encoder.features(torch.tensor(rows, device=device)), part.name_of)
            for split, part in splits.items()
        },
        model | {"regions": encoder.side, "normalisation": backbone.mean_std},
        write_features,
        f"to train on them: vsehub train data=precomp data.root={cfg.out}",
    )


def plan_vectors(cfg: DictConfig, source: "Source", device: "torch.device") -> "Plan":
    """Vectors of pictures and captions in the space of a joint model, in clip-retrieval's layout."""
    from vsehub.evaluation.zero_shot import ZeroShot
    from vsehub.extraction.layouts import Work, write_vectors

    node = plain(cfg.image_encoder)
    require(node["tune"] == "none", "tune: the vectors are those of the model as it was published; leave it out")
    settings = {"weights": node["weights"], "pretrained": node["pretrained"], "prompt": cfg.prompt}
    settings |= {"batch_size": cfg.batch_size, "device": str(device)}
    model = ZeroShot(f"{node['library']}:{node['model']}", source, **settings)
    splits, work = {split: model.split(split) for split in cfg.splits}, {}
    for split, loaded in splits.items():
        work[f"{split}-images"] = Work(
            loaded.images, lambda rows: model.similarity.vectors(model.encode_images(rows)), loaded.name_of
        )
        work[f"{split}-texts"] = Work(
            loaded.captions, lambda rows: model.similarity.vectors(model.encode_texts(rows)), loaded.text_of
        )
    return (
        splits,
        work,
        model.description["zero_shot"],
        write_vectors,
        f"to measure their hubness: vsehub diagnose queries={cfg.out}/{cfg.splits[-1]}/texts::text_emb "
        f"items={cfg.out}/{cfg.splits[-1]}/images::img_emb truth={cfg.out}/{cfg.splits[-1]}.csv",
    )

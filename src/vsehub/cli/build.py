"""From the configuration to data, modules and trained models."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vsehub.checks import nearest, require
from vsehub.cli.nodes import components, plain
from vsehub.components import MISSING, Components, declared, make
from vsehub.data.noise import INDEX_FILE, Noise, NoisySource
from vsehub.data.sources import CaptionedImages, Source
from vsehub.data.text.vocabulary import Words, stored
from vsehub.evaluation.checkpoint import Model, read_checkpoint, restore, text_sizes
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

DESCRIBED = ("image_encoder", "text_encoder", "similarity", "data", "loader", "seed", "embedding_dim", "positives")


def build_source(cfg: DictConfig) -> Source:
    """The data source of `cfg.data`; InputError where a mandatory setting is missing, or noise is asked for."""
    require(not _noise(cfg.data).wanted, "data.noise is for training only; leave data.noise.rate and .index out")
    return _without_noise(plain(cfg.data), components(cfg.get("trust")))


def build_data(cfg: DictConfig, resumed: Path | None = None) -> RetrievalDataModule:
    """The data module of `cfg.data`, with its noise, and `cfg.loader`. resumed: the folder of a run that goes on."""
    source = _without_noise(plain(cfg.data), components(cfg.get("trust")), restored=resumed is not None)
    noise = _noise(cfg.data)
    if noise.wanted:
        source = NoisySource(source, noise, None if resumed is None else resumed / INDEX_FILE)
    return make("loader", RetrievalDataModule, plain(cfg.loader), source=source, seed=cfg.seed)


def keep_noise(data: RetrievalDataModule, folder: Path) -> dict:
    """Write the index of the training captions' noise into a run's folder: {"noise": facts}, {} where there is none."""
    if not isinstance(data.source, NoisySource):
        return {}
    data.source.index.write(folder / INDEX_FILE)
    return {"noise": data.source.facts}


def _noise(node: DictConfig) -> Noise:
    return make("data.noise", Noise, plain(node.get("noise") or {}))


def _without_noise(node: dict[str, Any], known: Components, restored: bool = False) -> Source:
    return known.build("data", {key: value for key, value in node.items() if key != "noise"}, restored)


def build_module(
    cfg: DictConfig,
    image_shape: tuple[int, ...],
    vocabulary: Words | None,
    text_shape: tuple[int, ...] | None = None,
    resumed: bool = False,
) -> RetrievalModule:
    """The module, its encoders sized by the data; its checkpoints carry the configuration and the words.

    text_shape: of texts that are vectors, for which there is no vocabulary. resumed: weights follow from a checkpoint,
    so that no pretrained ones are loaded. Raises InputError where the parts do not fit the data or each other.
    """
    known = components(cfg.get("trust"))
    nodes = {key: plain(cfg[key]) for key in (*DESCRIBED, "loss", "optimizer", "scheduler")}
    sizes = {"image_encoder": {"image_shape": list(image_shape)}}
    sizes["text_encoder"] = text_sizes(nodes["text_encoder"], vocabulary, text_shape)
    for side, given in sizes.items():
        for key, value in given.items():
            require(
                nodes[side].get(key, MISSING) in (MISSING, value), f"{side}.{key} comes from the data; leave it out"
            )
    encoders = {side: known.build(side, nodes[side], resumed, **given) for side, given in sizes.items()}
    described = {key: nodes[key] for key in DESCRIBED}
    for side, encoder in encoders.items():
        # What a checkpoint must not need again: weights files, folders of other models.
        described[side] |= declared(encoder).rebuilt
    shapes = {"image_shape": list(image_shape), "text_shape": None if text_shape is None else list(text_shape)}
    parts = {part: known.build(part, nodes[part]) for part in ("similarity", "loss", "optimizer", "scheduler")}
    description = {"config": described, "vocabulary": stored(vocabulary)} | shapes
    return RetrievalModule(**encoders, **parts, positives=cfg.positives, description=description)


def restore_model(path: str | Path, trust: Any = None) -> tuple[Model, dict[str, Any], Words | None]:
    """A trained model from a checkpoint alone, in eval mode, with its configuration and vocabulary.

    trust: further classes that it may name. Raises InputError for others, and where the checkpoint cannot be used.
    """
    checkpoint = read_checkpoint(path)
    return restore(checkpoint, components(trust)), checkpoint.config, checkpoint.vocabulary


def trained_source(trained: dict[str, Any], changes: Any, trust: Any = None) -> Source:
    """The data that a checkpoint was trained on, without noise, with what has changed since, e.g. its folder.

    Raises InputError where a change is no setting of that data.
    """
    node, changes, known = trained["data"], plain(changes), components(trust)
    settings = [str(key) for key in node if key not in ("noise", "_target_")]
    for key in changes:
        require(
            key in settings,
            f"data.{key} is no setting of the checkpoint's data{nearest(str(key), settings)}; choose among "
            f"{', '.join(settings)}",
        )
    # What a checkpoint does not decide: where caches are written, say.
    rebuilt = declared(known.find("data", node)).rebuilt
    return _without_noise({**node, **rebuilt, **changes}, known)


def fitting(model: Model, split: CaptionedImages) -> CaptionedImages:
    """The split; InputError where its vectors are of other dimensions than those that the model was trained on."""
    sides = [("images", model.image_shape, split.images)]
    sides += [] if split.written else [("texts", model.text_shape, split.captions)]
    for side, shape, rows in sides:
        trained, given = list(shape or ()), list(rows.shape[1:])
        pictures = len(trained) > 2 and len(given) > 2
        require(
            pictures or (len(trained) == len(given) and trained[-1] == given[-1]),
            f"the {side} have {given[0] if len(given) == 1 else given} features but the model was made for "
            f"{trained[0] if len(trained) == 1 else trained}; give features of the same extraction",
        )
    return split

"""From configuration to objects."""

from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from vsehub.checks import InputError, fail, require
from vsehub.data.captioned import CaptionedImages, Source
from vsehub.data.noise import Noise, NoisySource
from vsehub.data.noise_file import INDEX_FILE
from vsehub.data.words import Words, restored, stored
from vsehub.training.checkpoint import load_checkpoint
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

MODEL_KEYS = ("image_encoder", "text_encoder", "similarity", "loss", "optimizer", "scheduler", "positives")
OWN_TARGETS = ("vsehub.", "torch.optim.")


def build_source(cfg: DictConfig) -> Source:
    """The data source of `cfg.data`; InputError where a mandatory setting is missing, or noise is asked for."""
    require(not _noise(cfg.data).wanted, "data.noise is of training alone; leave data.noise.rate and .index away here")
    return _without_noise(cfg.data)


def build_data(cfg: DictConfig, resumed: Path | None = None) -> RetrievalDataModule:
    """The data module of `cfg.data`, with its noise, and `cfg.loader`. resumed: the folder of a run that goes on."""
    source, noise = _without_noise(cfg.data), _noise(cfg.data)
    if noise.wanted:
        source = NoisySource(source, noise, None if resumed is None else resumed / INDEX_FILE)
    return RetrievalDataModule(source, **cfg.loader, seed=cfg.seed)


def keep_noise(data: RetrievalDataModule, folder: Path) -> dict:
    """Write the index of the training captions' noise into a run's folder: {"noise": facts}, {} where there is none."""
    if not isinstance(data.source, NoisySource):
        return {}
    data.source.index.write(folder / INDEX_FILE)
    return {"noise": data.source.facts}


def _noise(node: DictConfig) -> Noise:
    return Noise(**plain(node.get("noise") or {}))


def _without_noise(node: DictConfig) -> Source:
    try:
        copy = OmegaConf.masked_copy(node, [key for key in node if key != "noise"])
        for key in copy:  # a copy no longer knows that it is `data`
            if OmegaConf.is_missing(copy, key):
                fail(f"data.{key} is not set; give data.{key}=VALUE")
        return instantiate(copy)
    except Exception as error:  # Hydra wraps what a constructor raises
        raise unwrapped(error) from error


def build_module(
    cfg: DictConfig,
    image_shape: tuple[int, ...],
    vocabulary: Words | None,
    text_shape: tuple[int, ...] | None = None,
) -> RetrievalModule:
    """The module, its encoders sized by the data; its checkpoints carry the configuration and the words.

    text_shape: of texts that are vectors, for which there is no vocabulary. Raises InputError where the parts do not
    fit the data or each other.
    """
    try:
        image_encoder = instantiate(cfg.image_encoder, image_shape=list(image_shape))
        text_encoder = instantiate(cfg.text_encoder, **text_sizes(cfg.text_encoder, vocabulary, text_shape))
        similarity, loss = instantiate(cfg.similarity), instantiate(cfg.loss)
    except Exception as error:
        raise unwrapped(error) from error
    kept = {key: plain(cfg[key]) for key in (*MODEL_KEYS, "data", "loader", "seed", "embedding_dim")}
    for side, encoder in (("image_encoder", image_encoder), ("text_encoder", text_encoder)):
        # What a checkpoint must not need again: weights files, folders of other models.
        kept[side] |= getattr(encoder, "rebuilt", {})
    shapes = {"image_shape": list(image_shape), "text_shape": None if text_shape is None else list(text_shape)}
    return RetrievalModule(
        image_encoder,
        text_encoder,
        similarity,
        loss,
        optimizer=instantiate(cfg.optimizer),
        scheduler=instantiate(cfg.scheduler),
        positives=cfg.positives,
        description={"config": kept, "vocabulary": stored(vocabulary)} | shapes,
    )


def build_logger(cfg: DictConfig) -> Any:
    """The logger of `cfg.logger`; InputError where it says so, as wandb's does of an account that is refused."""
    try:
        return instantiate(cfg.logger)
    except Exception as error:
        raise unwrapped(error) from error


def text_sizes(node: DictConfig, vocabulary: Words | None, text_shape: tuple[int, ...] | None) -> dict:
    """What a text encoder learns of the data; InputError where one is of captions and the other of vectors."""
    encoder, wants = node["_target_"].split(".")[-1], set(node.keys())  # `in node` misses what is not set
    if vocabulary is None:
        require(
            "text_shape" in wants,
            f"the data's texts are vectors {text_shape}, but {encoder} takes captions; give text_encoder=text_features",
        )
        return {"text_shape": list(text_shape)}
    require(
        "text_shape" not in wants,
        f"{encoder} takes texts that are vectors, but the data's are captions; give text_encoder=text_gru, for example",
    )
    return {"vocabulary_size": len(vocabulary)} if "vocabulary_size" in wants else {}


def restore_module(path: str, trusted: bool = False) -> tuple[RetrievalModule, DictConfig, Words | None]:
    """A trained module from a checkpoint alone, in eval mode, with its configuration and vocabulary.

    trusted: the checkpoint was written by this process, so that it may name code from outside this package. Raises
    InputError where it may not and does, or where the checkpoint cannot be used.
    """
    checkpoint = load_checkpoint(path)
    description = checkpoint["vsehub"]
    cfg = OmegaConf.create(description["config"])
    for target in _targets(description["config"]):
        require(
            trusted or target.startswith(OWN_TARGETS),
            f"checkpoint: {path} asks for {target}, which is not part of vsehub; refused, since it would run that code",
        )
    words, text_shape = restored(description["vocabulary"]), description.get("text_shape")
    module = build_module(
        cfg, tuple(description["image_shape"]), words, None if text_shape is None else tuple(text_shape)
    )
    module.load_state_dict(checkpoint["state_dict"])
    return module.eval(), cfg, words


def trained_source(trained: DictConfig, changes: DictConfig) -> Source:
    """The data that a checkpoint was trained on, without noise, with what has changed since, e.g. its folder.

    Raises InputError where a change is no setting of that data.
    """
    settings = [key for key in trained.data if key != "noise"]
    for key in changes:
        require(
            key in settings,
            f"data.{key} is no setting of the checkpoint's data; choose among {', '.join(map(str, settings))}",
        )
    return _without_noise(OmegaConf.merge(trained.data, changes))


def fitting(module: RetrievalModule, split: CaptionedImages) -> CaptionedImages:
    """The split; InputError where its vectors are of other dimensions than those that the module was trained on."""
    sides = [("images", "image_shape", split.images)]
    sides += [] if split.written else [("texts", "text_shape", split.captions)]
    for side, name, rows in sides:
        trained, given = list(module.description[name]), list(rows.shape[1:])
        pictures = len(trained) > 2 and len(given) > 2
        require(
            pictures or (len(trained) == len(given) and trained[-1] == given[-1]),
            f"the {side} have {given[0] if len(given) == 1 else given} features but the model was made for "
            f"{trained[0] if len(trained) == 1 else trained}; give features of the same extraction",
        )
    return split


def plain(node: Any) -> Any:
    """Resolved plain values of a configuration node."""
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def _targets(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["_target_"]] if "_target_" in value else []
        return own + [target for item in value.values() for target in _targets(item)]
    return [target for item in value for target in _targets(item)] if isinstance(value, list) else []


def unwrapped(error: Exception) -> Exception:
    """The InputError that a constructor raised inside Hydra, or a missing setting said plainly, or the error itself."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, InputError):
            return seen
        if isinstance(seen, MissingMandatoryValue):
            return InputError(f"{seen.full_key} is not set; give {seen.full_key}=VALUE")
        seen = seen.__cause__ or seen.__context__
    return error

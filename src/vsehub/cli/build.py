"""From configuration to objects."""

from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from vsehub.checks import InputError, require
from vsehub.data.captioned import Source
from vsehub.data.vocabulary import Vocabulary
from vsehub.training.checkpoint import load_checkpoint
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule

MODEL_KEYS = ("image_encoder", "text_encoder", "similarity", "loss", "optimizer", "scheduler", "positives")
OWN_TARGETS = ("vsehub.", "torch.optim.")


def build_source(cfg: DictConfig) -> Source:
    """The data source of `cfg.data`; InputError where a mandatory setting is missing."""
    try:
        return instantiate(cfg.data)
    except Exception as error:  # Hydra wraps what a constructor raises
        raise unwrapped(error) from error


def build_data(cfg: DictConfig) -> RetrievalDataModule:
    """The data module of `cfg.data` and `cfg.loader`."""
    return RetrievalDataModule(build_source(cfg), **cfg.loader, seed=cfg.seed)


def build_module(cfg: DictConfig, image_shape: tuple[int, ...], words: list[str]) -> RetrievalModule:
    """The module, its encoders sized by the data; its checkpoints carry the configuration and the words."""
    try:
        image_encoder = instantiate(cfg.image_encoder, image_shape=list(image_shape))
        text_encoder = instantiate(cfg.text_encoder, vocabulary_size=len(words))
        similarity, loss = instantiate(cfg.similarity), instantiate(cfg.loss)
    except Exception as error:
        raise unwrapped(error) from error
    kept = {key: plain(cfg[key]) for key in (*MODEL_KEYS, "data", "loader", "seed", "embedding_dim")}
    return RetrievalModule(
        image_encoder,
        text_encoder,
        similarity,
        loss,
        optimizer=instantiate(cfg.optimizer),
        scheduler=instantiate(cfg.scheduler),
        positives=cfg.positives,
        description={"config": kept, "vocabulary": list(words), "image_shape": list(image_shape)},
    )


def restore_module(path: str, trusted: bool = False) -> tuple[RetrievalModule, DictConfig, Vocabulary]:
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
    module = build_module(cfg, tuple(description["image_shape"]), description["vocabulary"])
    module.load_state_dict(checkpoint["state_dict"])
    return module.eval(), cfg, Vocabulary(description["vocabulary"])


def trained_source(trained: DictConfig, changes: DictConfig) -> Source:
    """The data that a checkpoint was trained on, with what has changed since, e.g. its folder.

    Raises InputError where a change is no setting of that data.
    """
    for key in changes:
        require(
            key in trained.data,
            f"data.{key} is no setting of the checkpoint's data; choose among {', '.join(map(str, trained.data))}",
        )
    return build_source(OmegaConf.create({"data": OmegaConf.merge(trained.data, changes)}))


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

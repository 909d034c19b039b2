"""Data module and module from plain settings, each a group's choice, as the configuration has them."""

import json
import logging
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pytorch_lightning.utilities import rank_zero_only

from vsehub.checks import require
from vsehub.components import MISSING, TARGET, Components, component_nodes, make
from vsehub.data.contents import warn_of_shared
from vsehub.data.noise import Noise, NoisySource
from vsehub.data.sources import describe_split
from vsehub.data.text.vocabulary import restored, stored
from vsehub.evaluation.checkpoint import fitting, image_sizes, text_sizes
from vsehub.io.address import masked
from vsehub.training.augmentation import Augmentation
from vsehub.training.checkpoint import load_state, parameter_names, require_fitting
from vsehub.training.chunks import require_rows_apart
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule
from vsehub.training.processes import started_place
from vsehub.training.settings import check_place, check_trainer, resolve_precision, try_schedule
from vsehub.training.train import Lightning, silence_lightning
from vsehub.types import Encoder

log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
# What a checkpoint says of its model.
DESCRIBED = ("image_encoder", "text_encoder", "similarity", "data", "loader", "seed", "embedding_dim", "positives")


def build_data(
    data: Settings,
    loader: Settings,
    seed: int,
    components: Components,
    resumed: Path | None = None,
    encoders: Settings | None = None,
    augmentation: Settings | None = None,
) -> RetrievalDataModule:
    """The data module of a source, with its noise, whose pictures and tokens are those that the encoders ask for.

    data: the source's settings, those of its noise under "noise". loader: the data module's. resumed: the folder of the
    run that continues. encoders: the settings of "image_encoder" and "text_encoder", where they
    may bring their own preprocessing and tokens; the loader's `tokenizer` is then not used. Of the loader's settings
    `chunk` is the module's. augmentation: the settings of `Augmentation`; None: batches are as the data are.
    """
    own = {key: value for key, value in data.items() if key != "noise"}
    source = components.build("data", own, restored=resumed is not None)
    noise = make("data.noise", Noise, data.get("noise") or {})
    if noise.wanted:
        source = NoisySource(source, noise)
    served = {key: value for key, value in loader.items() if key != "chunk"}
    encoders = encoders or {}
    asked = {
        what: asked_for(components, side, encoders[side], what) if side in encoders else None
        for side, what in (("image_encoder", "preparation"), ("text_encoder", "subwords"))
    }
    if asked["preparation"] is not None:
        log.info("pictures come as the image encoder wants them: %s", asked["preparation"])
    if asked["subwords"] is not None:
        served["tokenizer"] = None
    given = {"words": restored(asked["subwords"]), "preparation": asked["preparation"]}
    given["augmentation"] = make("augmentation", Augmentation, augmentation or {})
    return make("loader", RetrievalDataModule, served, source=source, seed=seed, **given)


def asked_for(components: Components, side: str, node: Settings, what: str) -> Any:
    """An encoder's requirement on the data, its "preparation" or "subwords"; None if it has none."""
    made = components.find(side, node)
    if not (isinstance(made, type) and issubclass(made, Encoder)):
        return None
    asks = getattr(made, f"{what}_of")
    return make(side, lambda **own: asks(own), {key: value for key, value in node.items() if key != TARGET})


def build_module(
    settings: Settings, data: RetrievalDataModule, components: Components, resumed: bool = False
) -> RetrievalModule:
    """The module, its encoders sized by the data; its checkpoints carry the settings and the words.

    settings: those of `DESCRIBED`, of loss, optimizer and scheduler, and embedding_dropout. data: with its training
    split loaded. resumed: weights follow from a checkpoint, so that no pretrained ones are loaded. Raises InputError
    where the parts do not fit the data or each other.
    """
    image_shape, text_shape = data.splits["train"].images.shape[1:], data.text_shape
    sizes = {
        "image_encoder": image_sizes(settings["image_encoder"], image_shape),
        "text_encoder": text_sizes(settings["text_encoder"], data.vocabulary, text_shape),
    }
    for side, given in sizes.items():
        for key, value in given.items():
            require(
                settings[side].get(key, MISSING) in (MISSING, value), f"{side}.{key} comes from the data; leave it out"
            )
    encoders = {side: components.build(side, settings[side], resumed, **given) for side, given in sizes.items()}
    require(
        any(one.requires_grad for encoder in encoders.values() for one in encoder.parameters()),
        "both encoders are frozen, so that there is nothing to train; give image_encoder.linear=512 "
        "text_encoder.linear=512, tune=lora or tune=all, or measure the model as it is: vsehub evaluate "
        "model=LIBRARY:NAME",
    )
    config = {key: settings[key] for key in DESCRIBED}
    for side, encoder in encoders.items():
        # What a checkpoint must not need again: weights files, folders of other models.
        config[side] = config[side] | dict(getattr(encoder, "rebuilt", {}))
    parts = {part: components.build(part, settings[part]) for part in ("similarity", "loss", "optimizer", "scheduler")}
    description = {
        "config": json.loads(masked(json.dumps(config))),
        "vocabulary": stored(data.vocabulary),
        "image_shape": list(image_shape),
        "text_shape": None if text_shape is None else list(text_shape),
    }
    own = {key: settings[key] for key in ("positives", "embedding_dropout")}
    chunk = settings["loader"].get("chunk")
    return RetrievalModule(**encoders, **parts, **own, chunk=chunk, description=description)


def load_splits(data: RetrievalDataModule, final_split: str) -> dict[str, dict[str, Any]]:
    """Load all splits that a run needs; returns the facts of each for its record."""
    data.setup()
    data.load(final_split)
    for name, split in data.splits.items():
        log.info("%s: %d images, %d captions", name, len(split.images), len(split.captions))
    warn_of_shared(data.splits)
    return {name: describe_split(split) for name, split in data.splits.items()}


def prepare_module(module: RetrievalModule, data: RetrievalDataModule, checkpoint: Path | None, shared: bool) -> None:
    """Set the text encoder's initial word vectors. Raises InputError if module, data and checkpoint do not fit.

    shared: several processes share a batch, and not the statistics of batch normalisation; an encoder that has any is
    refused, since it would compute something else on a share than on the whole.
    """
    for side, encoder in (("image", module.image_encoder), ("text", module.text_encoder)):
        if shared:
            require_rows_apart(side, encoder, "several processes share a batch")
    for name, split in data.splits.items():
        fitting(name, split, module.image_shape, module.text_shape)
    if checkpoint is None:
        data.start_words(module.text_encoder)
    else:
        trained = list(parameter_names(module.configure_optimizers()["optimizer"], module).values())
        require_fitting(load_state(checkpoint), module.description, module.state_dict(), trained, checkpoint)


def build_lightning(settings: Settings, components: Components) -> Lightning:
    """Lightning's Trainer, the callbacks and the logger of a run.

    settings: those of trainer, optimizer, scheduler, callbacks, bank and logger, as the configuration has them. Raises
    InputError for bad settings before any data are read.
    """
    trainer = settings["trainer"]
    check_trainer(trainer)
    precision = resolve_precision(trainer.get("precision", "auto"), trainer.get("accelerator", "auto"))
    bar = trainer.get("enable_progress_bar", True) and sys.stderr.isatty()  # a log file has one line per epoch instead
    place = started_place()
    own: dict[str, Any] = {"precision": precision, "enable_progress_bar": bar, **place}
    if trainer.get("overfit_batches"):  # the first batches of the first epoch, again and again; see EpochSampler
        own["limit_train_batches"] = trainer["overfit_batches"]
    chosen = {key: value for key, value in trainer.items() if key != "overfit_batches"}
    make_trainer = partial(components.build, "trainer", chosen, **own)
    silence_lightning()
    wanted = make_trainer(logger=False, enable_checkpointing=False)
    if not place:
        check_place(wanted.num_devices, wanted.num_nodes, wanted.accelerator)
    optimizer, scheduler = (components.build(group, settings[group]) for group in ("optimizer", "scheduler"))
    try_schedule(optimizer, scheduler, trainer["max_epochs"])
    callbacks = [components.build("callbacks", one) for one in component_nodes(settings["callbacks"])]
    if settings["bank"]:
        callbacks.append(components.build("bank", settings["bank"]))
    first = not rank_zero_only.rank  # type: ignore[attr-defined]
    loggers = component_nodes(settings["logger"]) if first else []
    made = [components.build("logger", one) for one in loggers]
    return Lightning(make_trainer, precision, callbacks, made, wanted.world_size)

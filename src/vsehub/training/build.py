"""Builds the data module and the module of a training from the plain settings of its configuration."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vsehub.checks import require
from vsehub.components import TARGET, Components, component_class, make
from vsehub.data.contents import warn_of_shared
from vsehub.data.noise import Noise, NoisySource
from vsehub.data.sources import Source
from vsehub.data.text.vocabulary import dump_words, load_words
from vsehub.io.address import masked_settings
from vsehub.models.checkpoint import encoder_sizes, require_sizes
from vsehub.training.checkpoint import load_state, require_same_folder
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule, require_no_batch_norm
from vsehub.types import Encoder

log = logging.getLogger(__name__)

Settings = Mapping[str, Any]
# Settings that a checkpoint stores, since they describe its model.
DESCRIPTION_KEYS = (
    "image_encoder",
    "text_encoder",
    "similarity",
    "data",
    "loader",
    "seed",
    "embedding_dim",
    "positives",
)


def build_data(settings: Settings, components: Components, source: Source) -> RetrievalDataModule:
    """The data module of a source, with noise, and with the preprocessing and tokens that the encoders require.

    settings: those of the data's noise, loader, augmentation, seed, trainer and both encoders. The loader's `tokenizer`
    is not used if the text encoder brings its own.
    """
    noise = make("data.noise", Noise, {"seed": settings["seed"]} | (settings["data"].get("noise") or {}))
    if noise.moves_captions:
        source = NoisySource(source, noise)
    loader = {key: value for key, value in settings["loader"].items() if key != "chunk"}  # an argument of the module
    preparation = ask_encoder_class(components, "image_encoder", settings, "preparation_of")
    subwords = ask_encoder_class(components, "text_encoder", settings, "subwords_of")
    if preparation is not None:
        log.info("pictures are prepared as the image encoder requires: %s", preparation)
    if subwords is not None:
        loader["tokenizer"] = None
    return make(
        "loader",
        RetrievalDataModule,
        loader,
        source=source,
        seed=settings["seed"],
        words=load_words(subwords),
        preparation=preparation,
        drop_words=settings["augmentation"]["drop_words"],
        same_batches=bool(settings["trainer"].get("overfit_batches")),
    )


def ask_encoder_class(components: Components, side: str, settings: Settings, method: str) -> Any:
    """The result of a class method of `Encoder`, "preparation_of" or "subwords_of", for the settings of an encoder."""
    encoder_class = components.find(side, settings[side])
    if not (isinstance(encoder_class, type) and issubclass(encoder_class, Encoder)):
        return None
    arguments = {key: value for key, value in settings[side].items() if key != TARGET}
    # Called by `make`, whose errors name the setting.
    return make(side, lambda **values: getattr(encoder_class, method)(values), arguments)


def build_module(
    settings: Settings,
    data: RetrievalDataModule,
    components: Components,
    checkpoint: Path | None = None,
    processes: int = 1,
) -> RetrievalModule:
    """The module, its encoders sized by the data; its checkpoints carry the settings and the words.

    settings: those of `DESCRIPTION_KEYS`, of trainer, loss, optimizer and scheduler, and embedding_dropout. data: data
    module with its splits loaded. checkpoint: the state from which a run continues, so that no pretrained weights are
    loaded. processes: number of processes that share a batch. Raises InputError where the parts do not fit the data,
    the checkpoint or each other.
    """
    image_shape, text_shape = data.splits["train"].images.shape[1:], data.text_shape
    sizes = encoder_sizes(settings, components, data.vocabulary, image_shape, text_shape)
    encoders = build_encoders(settings, sizes, components, checkpoint is not None, processes)
    parts = {part: components.build(part, settings[part]) for part in ("similarity", "loss", "optimizer", "scheduler")}
    module = RetrievalModule(
        encoders["image_encoder"],
        encoders["text_encoder"],
        **parts,
        positives=settings["positives"],
        embedding_dropout=settings["embedding_dropout"],
        chunk=settings["loader"].get("chunk"),
        compile_mode=settings.get("compile"),
    )
    # Without files of weights and folders of other models.
    encoder_settings = {side: {**settings[side], **encoder.rebuilt} for side, encoder in encoders.items()}
    module.description = {
        "config": masked_settings({key: settings[key] for key in DESCRIPTION_KEYS} | encoder_settings),
        "vocabulary": dump_words(data.vocabulary),
        "image_shape": list(image_shape),
        "text_shape": None if text_shape is None else list(text_shape),
    }
    for name, split in data.splits.items():
        require_sizes(name, split, image_shape, text_shape)
    if checkpoint is not None:
        state = load_state(checkpoint)
        require_same_folder(state, checkpoint)
        done, epochs = state["epoch"] + 1, settings["trainer"]["max_epochs"]
        require(done <= epochs, f"trainer.max_epochs is {epochs}, but {done} epochs are done; give at least {done}")
    return module


def build_encoders(
    settings: Settings, sizes: Mapping[str, Mapping[str, Any]], components: Components, resumed: bool, processes: int
) -> dict[str, Encoder]:
    """The image and the text encoder by the name of their setting.

    sizes: `encoder_sizes` of each. resumed: whether a checkpoint brings their weights, so that no pretrained ones are
    loaded. processes: number of processes that share a batch. Raises InputError if neither can be trained.
    """
    encoders = {}
    for side, arguments in sizes.items():
        changes = component_class(components.find(side, settings[side])).rebuilt if resumed else {}
        encoders[side] = components.build(side, settings[side] | changes, **arguments)
        if processes > 1 and not settings["trainer"].get("sync_batchnorm", False):
            require_no_batch_norm(side.removesuffix("_encoder"), encoders[side], "several processes share a batch")
    require(
        any(parameter.requires_grad for encoder in encoders.values() for parameter in encoder.parameters()),
        "both encoders are frozen, so that there is nothing to train; give tune=lora or tune=all, or measure the model "
        "with vsehub evaluate model=LIBRARY:NAME",
    )
    return encoders


def load_splits(
    data: RetrievalDataModule, final_split: str, earlier_record: Mapping[str, Any] | None
) -> dict[str, dict[str, Any]]:
    """Load all splits that a run needs; returns the metadata of each for its record.

    earlier_record: the record of the run that continues. Raises InputError if it used other data.
    """
    data.setup()
    data.load(final_split)
    data.train_dataloader()  # raises InputError if the batches cannot be made
    for name, split in data.splits.items():
        log.info("%s: %d images, %d captions", name, len(split.images), len(split.captions))
    warn_of_shared(data.splits)
    split_metadata = {
        name: {"images": len(split.images), "captions": len(split.captions), "fingerprint": split.fingerprint()}
        for name, split in data.splits.items()
    }
    recorded = earlier_record["data"] if earlier_record is not None else {}
    for name in sorted(split_metadata.keys() & recorded.keys()):
        current, expected = split_metadata[name]["fingerprint"], recorded[name]["fingerprint"]
        require(
            current == expected,
            f"resume: the {name} data differ from those with which the run was started ({current}, not {expected}); "
            "give the same data (data.KEY=PATH if they were moved), or start a new run",
        )
    return split_metadata

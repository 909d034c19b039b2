"""`vsehub evaluate`: measure a checkpoint, or a published model as it is, on a split."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, ListConfig

from vsehub.checks import InputError, existing, precision_word, require, whole
from vsehub.cli import app
from vsehub.cli.published import MODEL_SETTINGS, require_checkpoint_alone
from vsehub.cli.run_folder import require_measuring
from vsehub.io.files import within
from vsehub.io.outputs import require_writable
from vsehub.io.records import EVALUATION, RUN, read_record

if TYPE_CHECKING:
    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.trained import DataModel, TrainedModel
    from vsehub.evaluation.zero_shot import ZeroShot

# The settings of a published model, and their defaults.


def main() -> None:
    """Run the command; with a checkpoint data.KEY=VALUE changes a setting of its data, which no yaml can list."""
    require_measuring(sys.argv[1:])
    if not any(argument.startswith("data=") for argument in sys.argv):
        sys.argv = [f"+{argument}" if argument.startswith("data.") else argument for argument in sys.argv]
    app.run(evaluate, "evaluate")


def evaluate(cfg: DictConfig) -> float | None:
    """Measure `cfg.checkpoint`, the ensemble of several, or `cfg.model` as it is, and write the evaluation.

    With `cfg.foil`, measure how often a true caption scores above a false one instead.
    """
    given = [name for name in ("checkpoint", "model") if cfg[name] is not None]
    require(
        len(given) == 1,
        f"checkpoint is {'given with model' if given else 'not set'}; give checkpoint=RUN_FOLDER/checkpoints/"
        "best.safetensors, or model=LIBRARY:NAME for a published model as it is",
    )
    wanted = precision_word(cfg.precision)
    whole("eval_batch_size", cfg.eval_batch_size)
    checkpoints, out = checkpoints_and_folder(cfg) if cfg.model is None else ([], Path())

    from vsehub.cli.foils import measure_foils
    from vsehub.cli.nodes import build
    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.evaluate import float32_only
    from vsehub.evaluation.measurement import Measurement, measure
    from vsehub.io.files import write_json
    from vsehub.neighbors.rounded import uses_bf16

    if cfg.model is None and cfg.foil is not None:
        require(len(checkpoints) == 1, "foil takes one checkpoint; give checkpoint=FILE")
        measure_foils(cfg, checkpoints[0], out)
        return None
    require(cfg.model is None or cfg.foil is None, "foil takes a checkpoint; leave foil or model out")
    criterion, protocol = build("criterion", cfg.criterion, cfg.trust), build("protocol", cfg.protocol, cfg.trust)
    asked = Measurement(cfg.split, criterion, cfg.criterion_name, protocol, cfg.reference, cfg.tune)
    members = None
    model: DataModel | Ensemble
    if cfg.model is not None:
        model, out = published(cfg)
    else:
        members = described(checkpoints) if len(checkpoints) > 1 else None
        require(
            cfg.member_weights is None or members is not None,
            "member_weights is for an ensemble; give checkpoint=[FILE,FILE], or leave it out",
        )
        require(
            cfg.member_weights != "val" or cfg.split != "val",
            "split=val is what member_weights=val chooses on; measure split=test",
        )
        # Encodings that several measurements of criteria read again are kept.
        model = trained(cfg, checkpoints, keep=asked.inductive or asked.chooses)
        if isinstance(model, Ensemble) and cfg.member_weights == "val":
            model = model.weighted(protocol)
    obstacle = float32_only(model.similarity, criterion)
    asked = replace(asked, bf16=uses_bf16(wanted, model.device.type, obstacle))
    path = asked.file(model, out)
    if path.exists() and not cfg.overwrite:
        record = read_record(path, EVALUATION, "Give overwrite=true to measure again")
        print(f"{said(record)}\nmeasured before: {path}; overwrite=true measures again")
    else:
        record = measure(model, asked) | ({"ensemble": members} if members else {})
        write_json(path, record)
        print(f"{said(record)}\nwritten to {path}")
    return record["metrics"]["rsum"] if cfg.split == "val" else None  # a sweep may only choose on validation


def checkpoints_and_folder(cfg: DictConfig) -> tuple[list[str], Path]:
    """The checkpoints, each an existing file, and the folder for the evaluation."""
    from vsehub.evaluation.checkpoint_file import checkpoint_file

    found = paths(cfg.checkpoint)
    for checkpoint in found:
        checkpoint_file(checkpoint)
    require_checkpoint_alone(cfg)
    return found, out_folder(cfg.out, Path(found[0]))


def trained(cfg: DictConfig, checkpoints: list[str], keep: bool) -> "TrainedModel | Ensemble":
    """The model of a checkpoint, or the ensemble of several."""
    from vsehub.cli.nodes import components, plain
    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.trained import TrainedModel

    models = [
        TrainedModel(one, components(cfg.trust), plain(cfg.data), cfg.eval_batch_size, keep=keep) for one in checkpoints
    ]
    if len(models) == 1:
        return models[0]
    given = plain(cfg.member_weights)
    require(
        given in (None, "val") or (isinstance(given, list) and all(isinstance(one, int | float) for one in given)),
        f"member_weights is {given!r}; expected a number for each checkpoint, as in '[2,1,1]', or val",
    )
    return Ensemble(models, given if isinstance(given, list) else None)


def published(cfg: DictConfig) -> "tuple[ZeroShot, Path]":
    """A published model with `cfg.data`, and the folder for its evaluations."""
    from vsehub.cli.extract import build_source
    from vsehub.evaluation.zero_shot import ZeroShot, file_name, library_and_name, slug

    library_and_name(cfg.model)
    require(
        "_target_" in cfg.data,
        "data is not set; model= is measured on the data that you name, as in data=karpathy data.json=FILE "
        "data.images=FOLDER",
    )
    source = build_source(cfg)
    out = Path(cfg.out or f"runs/zero_shot/{slug(cfg.model)}-{file_name(source.name)}")
    require_writable(out)
    own = {name: cfg[name] for name in MODEL_SETTINGS}
    return ZeroShot(cfg.model, source, batch_size=cfg.eval_batch_size, keep=out, **own), out


def said(record: dict[str, Any]) -> str:
    """The metrics as a table, and what rounded scores change."""
    from vsehub.evaluation.measurement import table
    from vsehub.report.health import rounding_text

    rounding = record.get("rounding") or {}
    return "\n".join([table(record), *(f"precision: {rounding_text(*one)}" for one in rounding.items())])


def paths(value: str | ListConfig) -> list[str]:
    """One or several checkpoints. Raises InputError if the list is empty or names a file twice."""
    found = [value] if isinstance(value, str) else [str(one) for one in value]
    require(len(found) > 0, "checkpoint is an empty list; give checkpoint=FILE, or checkpoint=[FILE,FILE]")
    places = [Path(one).resolve() for one in found]
    twice = next((one for one, place in zip(found, places, strict=True) if places.count(place) > 1), None)
    require(twice is None, f"checkpoint: {twice} is given twice; the models of an ensemble must differ")
    return found


def described(checkpoints: list[str]) -> list[dict]:
    """{"checkpoint", "label", "seed"} of each member, from its run.json.

    Raises InputError if a member is in no run folder, or if the members were trained on different data.
    """
    members, first = [], None
    for checkpoint in checkpoints:
        path = existing("checkpoint", checkpoint, "Give checkpoints, e.g. [RUN/checkpoints/best.safetensors,...]")
        record = path.parent.parent / "run.json"
        require(
            record.is_file(),
            f"checkpoint: {path} is not in a run folder, so the data it was trained on are unknown; "
            "give the file where `vsehub train` wrote it",
        )
        run = read_record(record, RUN, "Give the checkpoint of another run")
        data = {split: facts["fingerprint"] for split, facts in run["data"].items()}
        if "noise" in run:  # members may have been trained with different noise on the same data
            data["train"] = run["noise"]["clean_fingerprint"]
        first = data if first is None else first
        shared = data.keys() & first.keys()
        require(
            all(data[split] == first[split] for split in shared),
            f"checkpoint: {path} was trained on other data ({run['dataset']}) than {checkpoints[0]}; the models of an "
            "ensemble must rank the same images and texts",
        )
        members.append({"checkpoint": str(path.resolve()), "label": run["label"], "seed": run["seed"]})
    return members


def out_folder(out: str | None, checkpoint: Path) -> Path:
    """The folder for the evaluation. Raises InputError if none is given and the checkpoint is not in a run folder."""
    if out is not None:
        require_writable(out)
        return Path(out)
    run = checkpoint.parent.parent
    if not (run / "run.json").is_file():
        raise InputError(
            f"checkpoint: {checkpoint} is not in a run folder; give a folder for the evaluation: out=FOLDER, or give "
            "RUN_FOLDER/checkpoints/best.safetensors"
        )
    return within(run, "evaluations")

"""`vsehub evaluate`: measure a checkpoint, or a published model as it is, on a split."""

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import existing, require, whole
from vsehub.cli.app import require_multirun
from vsehub.cli.nodes import as_list, choice_in, components, model_settings, plain
from vsehub.io.files import path_inside, require_writable
from vsehub.io.records import EVALUATION, RUN, read_record
from vsehub.models.hub import checkpoint_file

if TYPE_CHECKING:
    from vsehub.models.trained import DataModel

_RUNS = "Give the checkpoints of runs that vsehub trained"


def evaluate(cfg: DictConfig) -> float | None:
    """Measure `cfg.checkpoint`, the ensemble of several, or `cfg.model` as it is, and write the evaluation."""
    require_multirun(cfg)
    settings = model_settings(cfg)
    batch_size = whole("eval_batch_size", cfg.eval_batch_size)
    checkpoints = list(map(str, as_list(cfg.checkpoint)))
    require(cfg.member_weights is None or len(checkpoints) > 1, "member_weights is for an ensemble; omit it")
    if cfg.model is None:
        out = evaluations_folder(cfg, checkpoints)

    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.measurement import Measurement, measure, table
    from vsehub.io.files import write_json
    from vsehub.models.trained import TrainedModel
    from vsehub.models.zero_shot import ZeroShot, safe_name, slug

    parts = components(cfg.trust)
    criterion, protocol = (parts.build(group, plain(cfg[group])) for group in ("criterion", "protocol"))
    measurement = Measurement(cfg.split, criterion, choice_in("criterion"), protocol, cfg.reference, cfg.tune)
    members = member_records(checkpoints) if len(checkpoints) > 1 else []
    data = plain(cfg.data)
    model: DataModel | Ensemble
    if cfg.model is not None:
        name = slug(cfg.model)
        source = parts.build("data", data)
        out = Path(cfg.out or f"runs/zero_shot/{name}-{safe_name(source.name)}")
        model = ZeroShot(cfg.model, source, batch_size=batch_size, store=out, **settings)
    else:
        models = [TrainedModel(path, parts, data, batch_size=batch_size, keep=True) for path in checkpoints]
        model = models[0] if len(models) == 1 else Ensemble(models, plain(cfg.member_weights))
    require_writable(out)
    path = measurement.record_path(model, out)
    if path.exists() and not cfg.overwrite:
        record = read_record(path, EVALUATION, "Give overwrite=true to measure again")
        print(f"{table(record)}\nmeasured before: {path}; overwrite=true measures again")
    else:
        record = measure(model, measurement) | ({"ensemble": members} if members else {})
        write_json(path, record)
        print(f"{table(record)}\nwritten to {path}")
    return record["metrics"]["rsum"] if cfg.split == "val" else None  # a sweep may only choose on validation


def evaluations_folder(cfg: DictConfig, checkpoints: list[str]) -> Path:
    """The folder for the evaluation of checkpoints: `cfg.out`, or that of the first one's run.

    Raises InputError if a checkpoint is missing or given twice, or if there is no such folder.
    """
    files = {checkpoint_file(path).resolve() for path in checkpoints}
    require(
        len(files) > 0 and len(files) == len(checkpoints),
        "checkpoint is an empty list, or a file is given twice; the models of an ensemble must differ",
    )
    if cfg.out is not None:
        return Path(cfg.out)
    run = Path(checkpoints[0]).parent.parent
    require(
        (run / "run.json").is_file(),
        f"checkpoint: {checkpoints[0]} is not in a run folder; give a folder for the evaluation: out=FOLDER, or "
        "give RUN_FOLDER/checkpoints/best.safetensors",
    )
    return path_inside(run, "evaluations")


def member_records(checkpoints: list[str]) -> list[dict]:
    """{"checkpoint", "label", "seed"} of each member, from its run.json.

    Raises InputError if a member is in no run folder, or if the members were trained on different data.
    """
    files = [existing(f"checkpoint: {path}: run", Path(path).parent.parent / "run.json", _RUNS) for path in checkpoints]
    runs = [read_record(file, RUN, _RUNS) for file in files]
    require(
        # The training data may differ by noise.
        len({run["data"]["val"]["fingerprint"] for run in runs}) == 1,
        "checkpoint: these were trained on different data; the models of an ensemble must rank the same items",
    )
    return [
        {"checkpoint": str(Path(path).resolve()), "label": run["label"], "seed": run["seed"]}
        for path, run in zip(checkpoints, runs, strict=True)
    ]

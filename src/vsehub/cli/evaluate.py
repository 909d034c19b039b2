"""`vsehub evaluate`: measure a checkpoint, or a published model as it is, on a split."""

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import existing, require, whole
from vsehub.cli.nodes import as_list, chosen, components, model_settings, plain
from vsehub.io.files import require_writable, within
from vsehub.io.records import EVALUATION, RUN, read_record
from vsehub.models.hub import checkpoint_file

if TYPE_CHECKING:
    from vsehub.models.trained import DataModel

_RUNS = "Give the checkpoints of runs that vsehub trained"


def evaluate(cfg: DictConfig) -> float | None:
    """Measure `cfg.checkpoint`, the ensemble of several, or `cfg.model` as it is, and write the evaluation."""
    published = model_settings(cfg)
    batch_size = whole("eval_batch_size", cfg.eval_batch_size)
    checkpoints = list(map(str, as_list(cfg.checkpoint)))
    require(cfg.member_weights is None or len(checkpoints) > 1, "member_weights is for an ensemble; omit it")
    if cfg.model is None:
        files = {checkpoint_file(path).resolve() for path in checkpoints}
        require(
            len(files) > 0 and len(files) == len(checkpoints),
            "checkpoint is an empty list, or a file is given twice; the models of an ensemble must differ",
        )
        run = Path(checkpoints[0]).parent.parent
        require(
            cfg.out is not None or (run / "run.json").is_file(),
            f"checkpoint: {checkpoints[0]} is not in a run folder; give a folder for the evaluation: out=FOLDER, or "
            "give RUN_FOLDER/checkpoints/best.safetensors",
        )
        out = within(run, "evaluations") if cfg.out is None else Path(cfg.out)

    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.measurement import Measurement, measure, table
    from vsehub.io.files import write_json
    from vsehub.models.trained import TrainedModel
    from vsehub.models.zero_shot import ZeroShot, file_name, library_and_name, slug

    known = components(cfg.trust)
    data = plain(cfg.data)
    criterion, protocol = (known.build(group, plain(cfg[group])) for group in ("criterion", "protocol"))
    measurement = Measurement(cfg.split, criterion, chosen("criterion"), protocol, cfg.reference, cfg.tune)
    members = described(checkpoints) if len(checkpoints) > 1 else []
    model: DataModel | Ensemble
    if cfg.model is not None:
        library_and_name(cfg.model)
        source = known.build("data", data)
        out = Path(cfg.out or f"runs/zero_shot/{slug(cfg.model)}-{file_name(source.name)}")
        model = ZeroShot(cfg.model, source, batch_size=batch_size, keep=out, **published)
    else:
        models = [TrainedModel(path, known, data, batch_size=batch_size, keep=True) for path in checkpoints]
        model = models[0] if len(models) == 1 else Ensemble(models, plain(cfg.member_weights))
    require_writable(out)
    path = measurement.file(model, out)
    if path.exists() and not cfg.overwrite:
        record = read_record(path, EVALUATION, "Give overwrite=true to measure again")
        print(f"{table(record)}\nmeasured before: {path}; overwrite=true measures again")
    else:
        record = measure(model, measurement) | ({"ensemble": members} if members else {})
        write_json(path, record)
        print(f"{table(record)}\nwritten to {path}")
    return record["metrics"]["rsum"] if cfg.split == "val" else None  # a sweep may only choose on validation


def described(checkpoints: list[str]) -> list[dict]:
    """{"checkpoint", "label", "seed"} of each member, from its run.json.

    Raises InputError if a member is in no run folder, or if the members were trained on different data.
    """
    files = [existing(f"checkpoint: {path}: run", Path(path).parent.parent / "run.json", _RUNS) for path in checkpoints]
    runs = [read_record(file, RUN, _RUNS) for file in files]
    require(
        len({run["data"]["val"]["fingerprint"] for run in runs}) == 1,  # noise changes that of the training split
        "checkpoint: these were trained on different data; the models of an ensemble must rank the same items",
    )
    return [
        {"checkpoint": str(Path(path).resolve()), "label": run["label"], "seed": run["seed"]}
        for path, run in zip(checkpoints, runs, strict=True)
    ]

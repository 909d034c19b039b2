"""`vsehub evaluate`: measure a checkpoint, or a published model as it is, on a split."""

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import existing, require, whole
from vsehub.cli.nodes import chosen, components, plain
from vsehub.cli.published import model_settings, require_checkpoint_alone, require_one_model
from vsehub.io.files import require_writable, within
from vsehub.io.records import EVALUATION, RUN, read_record

if TYPE_CHECKING:
    from vsehub.evaluation.trained import DataModel

_TWICE = "checkpoint is an empty list, or a file is given twice; the models of an ensemble must differ"


def evaluate(cfg: DictConfig) -> float | None:
    """Measure `cfg.checkpoint`, the ensemble of several, or `cfg.model` as it is, and write the evaluation."""
    require_one_model(cfg.checkpoint, cfg.model)
    batch_size = whole("eval_batch_size", cfg.eval_batch_size)
    published, given = model_settings(cfg), plain(cfg.checkpoint)
    checkpoints = [str(path) for path in (given if isinstance(given, list) else [given])]
    if cfg.model is None:
        from vsehub.evaluation.hub import checkpoint_file

        require(len({checkpoint_file(path).resolve() for path in checkpoints}) == len(checkpoints) > 0, _TWICE)
        require_checkpoint_alone(published)
        out = out_folder(cfg.out, Path(checkpoints[0]))

    from vsehub.evaluation.ensemble import Ensemble
    from vsehub.evaluation.measurement import Measurement, measure, table
    from vsehub.evaluation.trained import TrainedModel
    from vsehub.evaluation.zero_shot import ZeroShot, file_name, library_and_name, slug
    from vsehub.io.files import write_json

    known, data, weights = components(cfg.trust), plain(cfg.data), plain(cfg.member_weights)
    criterion, protocol = (known.build(group, plain(cfg[group])) for group in ("criterion", "protocol"))
    asked = Measurement(cfg.split, criterion, chosen("criterion"), protocol, cfg.reference, cfg.tune)
    members = described(checkpoints) if len(checkpoints) > 1 else []
    model: DataModel | Ensemble
    if cfg.model is not None:
        library_and_name(cfg.model)
        from vsehub.data.noise import clean_source

        source = clean_source(data, known)
        out = Path(cfg.out or f"runs/zero_shot/{slug(cfg.model)}-{file_name(source.name)}")
        require_writable(out)
        model = ZeroShot(cfg.model, source, batch_size=batch_size, keep=out, **published)
    else:
        models = [TrainedModel(path, known, data, batch_size=batch_size, keep=True) for path in checkpoints]
        model = models[0] if len(models) == 1 else Ensemble(models, None if weights == "val" else weights)
        require(weights is None or isinstance(model, Ensemble), "member_weights is for an ensemble; omit it")
        if isinstance(model, Ensemble) and weights == "val":
            require(cfg.split != "val", "split=val is what member_weights=val chooses on; measure split=test")
            model = model.weighted(protocol)
    path = asked.file(model, out)
    if path.exists() and not cfg.overwrite:
        record = read_record(path, EVALUATION, "Give overwrite=true to measure again")
        print(f"{table(record)}\nmeasured before: {path}; overwrite=true measures again")
    else:
        record = measure(model, asked) | ({"ensemble": members} if members else {})
        write_json(path, record)
        print(f"{table(record)}\nwritten to {path}")
    return record["metrics"]["rsum"] if cfg.split == "val" else None  # a sweep may only choose on validation


def described(checkpoints: list[str]) -> list[dict]:
    """{"checkpoint", "label", "seed"} of each member, from its run.json.

    Raises InputError if a member is in no run folder, or if the members were trained on different data.
    """
    members, first = [], None
    for path in map(Path, checkpoints):
        record = existing(f"checkpoint: {path}: run", path.parent.parent / "run.json", "Give runs that vsehub trained")
        run = read_record(record, RUN, "Give the checkpoint of another run")
        data = {split: facts["fingerprint"] for split, facts in run["data"].items()}
        if "noise" in run:  # members may have been trained with different noise on the same data
            data["train"] = run["noise"]["clean_fingerprint"]
        first = data if first is None else first
        require(
            all(first[split] == data[split] for split in data.keys() & first.keys()),
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
    require(
        (run / "run.json").is_file(),
        f"checkpoint: {checkpoint} is not in a run folder; give a folder for the evaluation: out=FOLDER, or give "
        "RUN_FOLDER/checkpoints/best.safetensors",
    )
    return within(run, "evaluations")

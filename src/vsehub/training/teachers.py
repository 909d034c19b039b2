"""The teachers of a training: checkpoints whose similarities another model learns."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsehub.checks import InputError, require
from vsehub.components import Components
from vsehub.evaluation.ensemble import Ensemble
from vsehub.evaluation.trained import TrainedModel
from vsehub.io.records import RUN, read_record
from vsehub.training.datamodule import RetrievalDataModule

log = logging.getLogger(__name__)


def open_teachers(
    paths: Sequence[str],
    components: Components,
    data: RetrievalDataModule,
    described: Mapping[str, Mapping[str, Any]],
) -> Ensemble:
    """The models of the checkpoints `paths`, with a training's data.

    described: the facts of the training's splits. Raises InputError for a teacher that cannot encode the data, and for
    one whose run trained or chose its epoch on what is measured here.
    """
    require(len(paths) > 0, "teacher is an empty list; give teacher=FILE or teacher=[FILE,FILE], or leave it out")
    members = []
    for path in paths:
        try:
            member = TrainedModel(path, components, batch_size=data.eval_batch_size, keep=True)
            member.use_data(data.source, {"train": data.splits["train"]})
            member.split("train")
        except InputError as error:
            raise InputError(f"teacher: {error}") from error
        _require_unseen(member.path, described)
        members.append(member)
    return Ensemble(members)


def teacher_facts(teachers: Ensemble | None) -> list[dict[str, str]] | None:
    """{"checkpoint", "sha256"} of each teacher, for the run's record."""
    if teachers is None:
        return None
    return [{"checkpoint": str(one.path.resolve()), "sha256": one.sha256} for one in teachers.members]


def require_same_teachers(record: Mapping[str, Any], teachers: Ensemble | None) -> None:
    """Raise InputError if a run that continues had other teachers when it began."""
    before = [one["sha256"] for one in record.get("teacher") or ()]
    now = [one["sha256"] for one in teacher_facts(teachers) or ()]
    require(
        before == now,
        f"resume: the run began with {len(before)} teachers, and the {len(now)} files of teacher are others now; put "
        "the same checkpoints back, or start a new run",
    )


def _require_unseen(checkpoint: Path, described: Mapping[str, Mapping[str, Any]]) -> None:
    record = checkpoint.parent.parent / "run.json"
    if not record.is_file():
        log.warning("teacher: %s is in no run folder, so that the data that it has seen are not known", checkpoint)
        return
    run = read_record(record, RUN, "Give the checkpoint of another run")
    seen = {split: facts["fingerprint"] for split, facts in run["data"].items()}
    here = {split: facts["fingerprint"] for split, facts in described.items()}
    for used, measured, what in (
        ("train", "test", "was trained on the test split"),
        ("train", "val", "was trained on the validation split"),
        ("val", "test", "chose its epoch on the test split"),
    ):
        require(
            used not in seen or seen[used] != here.get(measured),
            f"teacher: {checkpoint} {what} of this training, whose results would be too good; give another",
        )

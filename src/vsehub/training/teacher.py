"""Distillation: a model also learns the similarities that trained models, its teachers, compute for the same pairs.

Only scores are compared, so that teachers may have other encoders, dimensions, vocabularies and similarities.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import positive, require
from vsehub.components import Components
from vsehub.evaluation.ensemble import Ensemble
from vsehub.io.records import RUN, read_record
from vsehub.models.encode import EncodedSplit
from vsehub.models.trained import TrainedModel
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.types import Batch, Similarity

log = logging.getLogger(__name__)


class Teacher:
    """The teachers' similarities within a training split, and the term of the loss that they add.

    split: the training split as the teachers encode it, on the CPU. similarity: similarity of these encodings, for
    several teachers the mean. temperature: τ. weight: weight of the term.

    The term is, over the rows and the columns of the batch's scores S, the mean of τ · KL(softmax(T/τ) ‖ softmax(S/τ))
    for the teachers' scores T (Hinton et al. 2015); both directions count half. With the factor τ the size of the
    gradient does not depend on τ. Raises InputError for a τ or a weight that is not positive.
    """

    def __init__(self, split: EncodedSplit, similarity: Similarity, temperature: float = 0.05, weight: float = 1.0):
        positive("distillation.temperature", temperature)
        positive("distillation.weight", weight)
        self._split, self._similarity = split, similarity
        self.temperature, self.weight = temperature, weight

    @torch.no_grad()
    def _scores(self, batch: Batch, like: Tensor) -> Tensor:
        """The teachers' scores (N, N) of the batch's pairs, in the type and on the device of `like`."""
        images, texts = self._split.images[batch.image_ids.cpu()], self._split.texts[batch.caption_ids.cpu()]
        return self._similarity(images.to(like.device), texts.to(like.device)).to(like.dtype)

    def term(self, scores: Tensor, batch: Batch) -> Tensor:
        """The term, unweighted, a scalar. scores: (N, N) of the model."""
        theirs = self._scores(batch, scores)
        return (self._divergence(scores, theirs) + self._divergence(scores.T, theirs.T)) / 2

    def _divergence(self, scores: Tensor, theirs: Tensor) -> Tensor:
        """The mean over the rows of τ · KL(softmax(theirs / τ) ‖ softmax(scores / τ))."""
        predicted = torch.log_softmax(scores / self.temperature, dim=1)
        target = torch.log_softmax(theirs / self.temperature, dim=1)
        return self.temperature * (target.exp() * (target - predicted)).sum(dim=1).mean()


def open_teacher(
    paths: Sequence[str],
    components: Components,
    data: RetrievalDataModule,
    split_metadata: Mapping[str, Mapping[str, Any]],
    earlier_record: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
) -> tuple[Teacher | None, list[dict[str, str]] | None]:
    """The teacher made of the checkpoints `paths`, and {"checkpoint", "sha256"} of each; None, None without paths.

    split_metadata: the metadata of the training's splits. earlier_record: the record of the run that continues.
    settings: arguments of `Teacher`. Raises InputError if a checkpoint cannot encode the data, if its run used data
    that this training is measured on, or if the run that continues had other teachers.
    """
    members = []
    for path in paths:
        member = TrainedModel(path, components, batch_size=data.eval_batch_size, keep=True)
        member.source, member.splits = data.source, {"train": data.splits["train"]}
        member.split("train")  # raises if the model cannot encode it
        _require_no_leak(member.path, split_metadata)
        members.append(member)
    files = [{"checkpoint": str(member.path.resolve()), "sha256": member.sha256} for member in members]
    if earlier_record is not None:
        recorded = [file["sha256"] for file in earlier_record.get("teacher") or []]
        require(
            recorded == [member.sha256 for member in members],
            "resume: the files of teacher differ from those that the run began with; put the same checkpoints back",
        )
    if not members:
        return None, None
    teachers = Ensemble(members)
    split = teachers.encode("train")
    split = EncodedSplit(split.images.to("cpu"), split.texts.to("cpu"), split.pairs.cpu())
    return Teacher(split, teachers.similarity, **settings), files


def _require_no_leak(checkpoint: Path, split_metadata: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise InputError if the run of a checkpoint used the validation or test data of this training."""
    record = checkpoint.parent.parent / "run.json"
    if not record.is_file():
        log.warning("teacher: %s is in no run folder, so it is unknown on which data it was trained", checkpoint)
        return
    run = read_record(record, RUN, "Give the checkpoint of another run")
    uses = {
        ("train", "test"): "was trained on the test split",
        ("train", "val"): "was trained on the validation split",
        ("val", "test"): "chose its epoch on the test split",
    }
    for (theirs, ours), use in uses.items():
        if theirs in run["data"] and ours in split_metadata:
            require(
                run["data"][theirs]["fingerprint"] != split_metadata[ours]["fingerprint"],
                f"teacher: {checkpoint} {use} of this training, whose results would be too good; give another",
            )

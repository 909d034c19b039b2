"""The LightningModule: two encoders, a similarity, a loss and, where one is used, a memory bank."""

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vsehub.checks import fail, one_of, probability, require, whole
from vsehub.neighbors.bank import MemoryBank, bank_input
from vsehub.sets import Encoding, Sets, concatenated
from vsehub.training.checkpoint import VERSION
from vsehub.training.gather import gather, process_number, processes, share_of, shares
from vsehub.training.teacher import Teacher
from vsehub.types import Batch, Encoder, Loss, NeighborStats, Similarity, require_part

POSITIVES = ("image", "pair")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class LastStep(NamedTuple):
    """The results of a training step, without gradient, for the callbacks.

    images, texts: N encodings each. scores, positives: (N, N). neighbors: as the loss got them. loss: scalar. terms:
    the loss and its other terms by name.
    """

    images: Encoding
    texts: Encoding
    scores: Tensor
    positives: Tensor
    neighbors: NeighborStats | None
    loss: Tensor
    terms: Mapping[str, Tensor | float]


class RetrievalModule(pl.LightningModule):
    """Trains encoders so that an image and its texts are each other's nearest neighbours.

    optimizer: parameters -> optimizer. scheduler: optimizer -> scheduler, stepped once an epoch. positives: "image"
    takes the other pairs of the same image out of the negatives, "pair" keeps them there (the papers).
    embedding_dropout: probability of dropping a number of an encoding in a training step. chunk: pairs encoded at a
    time in a training step; None: the whole batch. compile_mode: mode of torch.compile for the training step; None: it
    is not compiled. Raises InputError where encoders, similarity and loss cannot go together, or an encoder cannot go
    through a batch in parts.

    description: plain values that a checkpoint carries, so that the model can be rebuilt from the file alone.
    """

    def __init__(
        self,
        image_encoder: Encoder,
        text_encoder: Encoder,
        similarity: Similarity,
        loss: Loss,
        optimizer: Callable,
        scheduler: Callable,
        positives: str = "image",
        embedding_dropout: float = 0.0,
        chunk: int | None = None,
        compile_mode: str | None = None,
    ):
        super().__init__()
        one_of("positives", positives, POSITIVES)
        probability("embedding_dropout", embedding_dropout)
        check_together(image_encoder, text_encoder, similarity, loss)
        if chunk is not None:
            whole("loader.chunk", chunk)
            for side, encoder in (("image", image_encoder), ("text", text_encoder)):
                require_no_batch_norm(side, encoder, "loader.chunk encodes a batch in parts")
        self.image_encoder, self.text_encoder = image_encoder, text_encoder
        self.similarity, self.loss = similarity, loss
        self.positives, self.embedding_dropout, self.chunk = positives, embedding_dropout, chunk
        self.description: dict[str, Any] = {}
        self.bank: MemoryBank | None = None
        self.teacher: Teacher | None = None
        self.last_step: LastStep | None = None
        self.nan_loss: Tensor | bool = False  # whether the loss of finite scores was ever NaN or infinite
        self._make_optimizer, self._make_scheduler = optimizer, scheduler
        # torch.compile gets these functions, not the encoders, whose batches in evaluation have many other shapes.
        self.encode: Callable = encode_in_chunks
        self.score: Callable = score_batch
        if compile_mode is not None:
            one_of("compile", compile_mode, COMPILE_MODES)
            # Else an encoder is compiled in pieces around its GRU; on a CPU each word of a GRU would be compiled alone.
            torch._dynamo.config.allow_rnn = torch.cuda.is_available()
            torch.compiler.reset()  # the number of compiled forms of a function is limited, over all runs of a process
            self.encode = torch.compile(encode_in_chunks, mode=compile_mode)
            self.score = torch.compile(score_batch, mode=compile_mode)

    def training_step(self, batch: Batch, batch_index: int) -> Tensor:
        """The loss of one batch; `TermMeans` logs its terms."""
        images = self.encode(self.image_encoder, (batch.images,), self.chunk)
        texts = self.encode(self.text_encoder, (batch.texts, batch.lengths), self.chunk)
        if batch_index == 0 and self.global_step == 0:  # only once: the checks make a GPU wait
            check_encoding("image", self.image_encoder, batch.images, images)
            check_encoding("text", self.text_encoder, batch.texts, texts)
        with torch.autocast(images.device.type, enabled=False):
            images, texts = self.apply_dropout(images.float()), self.apply_dropout(texts.float())
            neighbors = self.neighbors(images, texts, batch)
            counts = shares(len(batch.image_ids), processes())
            images, texts = gather(images, counts), gather(texts, counts)
            positives = self.positive_mask(batch)
            scores, terms = self.score(self.similarity, self.loss, images, texts, positives, neighbors)
            # Collected on the device and read when the epoch ends, so that no step waits for a GPU.
            self.nan_loss |= scores.detach().isfinite().all() & ~terms["loss"].detach().isfinite()
            if self.teacher is not None:
                distillation = self.teacher.term(scores, batch)
                total = terms["loss"] + self.teacher.weight * distillation
                terms = {**terms, "loss": total, "distillation": distillation}
        values = {name: term.detach() if isinstance(term, Tensor) else term for name, term in terms.items()}
        self.last_step = LastStep(
            images.detach(), texts.detach(), scores.detach(), positives, neighbors, values["loss"], values
        )
        return terms["loss"]

    def apply_dropout(self, encoding: Encoding) -> Encoding:
        """An encoding of a training step after `embedding_dropout`."""
        if isinstance(encoding, Sets):
            return Sets(F.dropout(encoding.vectors, self.embedding_dropout), encoding.lengths)
        return F.dropout(encoding, self.embedding_dropout)

    def on_train_batch_end(self, outputs, batch: Batch, batch_index: int) -> None:
        """Free the step's tensors, which the callbacks have read by now."""
        self.last_step = None

    def on_train_epoch_start(self) -> None:
        """Tell the epoch to a loss that changes with it."""
        self.loss.set_epoch(self.current_epoch)

    def positive_mask(self, batch: Batch) -> Tensor:
        """(N, N) boolean: which image and text of the batch belong together."""
        ids = batch.image_ids
        if self.positives == "pair":
            return torch.eye(len(ids), dtype=torch.bool, device=ids.device)
        return ids[:, None] == ids[None, :] if batch.positives is None else batch.positives

    def neighbors(self, images: Encoding, texts: Encoding, batch: Batch) -> NeighborStats | None:
        """The batch's nearest entries in the bank; None if no bank is filled, or if the loss does not use them.

        images, texts: the encodings of this process's share of the batch.
        """
        if self.bank is None or len(self.bank) == 0 or not self.loss.takes_neighbors:
            return None
        with torch.no_grad():
            sides = bank_input(self.similarity, images), bank_input(self.similarity, texts)
        rows = len(batch.image_ids)
        counts, part = shares(rows, processes()), share_of(process_number(), rows, processes())
        stats = self.bank.query(
            *sides, batch.image_ids[part], batch.caption_ids[part], self.loss.takes_centrality, batch.caption_ids
        )
        return NeighborStats._make(None if value is None else gather(value, counts) for value in stats)

    def configure_optimizers(self):
        """The optimizer and its schedule by epochs."""
        optimizer = self._make_optimizer(parameter_groups(self))
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": self._make_scheduler(optimizer), "interval": "epoch"},
        }

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None) -> None:
        """Clip gradients by their norm.

        Lightning refuses this for fused optimizers, which may unscale gradients themselves; bf16 has no scaling.
        """
        if gradient_clip_algorithm == "value" or self.trainer.precision == "16-mixed":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
        elif gradient_clip_val:
            nn.utils.clip_grad_norm_(
                [p for group in optimizer.param_groups for p in group["params"]], gradient_clip_val
            )

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        """Add what rebuilds the model: the configuration and the vocabulary."""
        checkpoint["vsehub"] = {"version": VERSION, "description": self.description}


def encode_in_chunks(encoder: Encoder, inputs: tuple[Tensor, ...], chunk: int | None) -> Encoding:
    """The encoder's (N, D) or N `Sets` of inputs (N, ...), with the gradient of encoding all at once.

    chunk: rows encoded at a time, whose intermediate values are not kept but computed again in the backward pass; None,
    and without gradient: all at once. Dropout draws chunk by chunk, the same again in the backward pass.
    """
    rows = len(inputs[0])
    if chunk is None or chunk >= rows or not torch.is_grad_enabled():
        return encoder(*inputs)
    return concatenated(
        [
            checkpoint(encoder, *(tensor[first : first + chunk] for tensor in inputs), use_reentrant=False)
            for first in range(0, rows, chunk)
        ]
    )


def require_no_batch_norm(side: str, encoder: Encoder, why: str) -> None:
    """Raise InputError if the encoder normalises over the batch in training mode.

    why: the reason why the encoder sees only a part of the batch, such as "loader.chunk encodes a batch in parts".
    """
    training = encoder.training
    encoder.train()  # a frozen network stays in eval mode, where it does not compute statistics of the batch
    layers = [
        name or type(part).__name__
        for name, part in encoder.named_modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training
    ]
    encoder.train(training)
    require(
        not layers,
        f"{why}, but the {side} encoder {type(encoder).__name__} normalises over the batch "
        f"({', '.join(layers[:3])}{', ...' if len(layers) > 3 else ''}), so its statistics would be a part's; choose a "
        "network without batch normalisation (image_encoder.norm=group for image_cnn, image_encoder.model=vit_b_16 for "
        "torchvision), or freeze a pretrained one (image_encoder.tune=false)",
    )


def check_encoding(side: str, encoder: Encoder, inputs: Tensor, encoding: Encoding) -> None:
    """Raise InputError for an encoding that no training can improve.

    It needs a row or a set for each of the inputs (N, ...), a gradient if the encoder has parameters to train, and
    different rows for different inputs.
    """
    name = f"the {side} encoder {type(encoder).__name__} returned"
    rows = encoding.vectors if isinstance(encoding, Sets) else encoding
    shape = tuple(rows.shape)
    require(
        len(shape) == 2 and len(encoding) == len(inputs),
        f"{name} {shape} for {len(inputs)} inputs; expected ({len(inputs)}, D), or as many Sets",
    )
    trainable = torch.is_grad_enabled() and any(weight.requires_grad for weight in encoder.parameters())
    require(rows.requires_grad or not trainable, f"{name} a tensor without gradient; leave out detach() and no_grad()")
    same = bool((rows == rows[:1]).all()) and not bool((inputs == inputs[:1]).all())
    require(not same, f"{name} the same vector for all inputs of a batch, although these differ")


def score_batch(
    similarity: Similarity,
    loss: Loss,
    images: Encoding,
    texts: Encoding,
    positives: Tensor,
    neighbors: NeighborStats | None,
) -> tuple[Tensor, dict[str, Any]]:
    """The scores (N, N) of N images and N texts, and the terms of the loss by name."""
    scores = similarity(images, texts)
    return scores, loss_terms(loss, scores, positives, neighbors)


def loss_terms(loss: Loss, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None) -> dict[str, Any]:
    """The terms of a loss by name; one that returns a tensor has the term "loss".

    Raises InputError unless all terms are scalars, and "loss" is a tensor through which the scores get a gradient.
    """
    name = type(loss).__name__
    returned = loss(scores, positives, neighbors)
    terms: Any = {"loss": returned} if isinstance(returned, Tensor) else returned
    if not (
        isinstance(terms, dict)
        and isinstance(terms.get("loss"), Tensor)
        and all(term.numel() == 1 if isinstance(term, Tensor) else isinstance(term, Real) for term in terms.values())
    ):
        # Only now are the values put into words: a GPU would have to finish them first.
        fail(f'the loss {name} returned {returned!s:.200}; expected {{"loss": scalar}} or a scalar tensor')
    require(
        terms["loss"].requires_grad or not scores.requires_grad,
        f"the loss {name} returned a tensor without gradient; compute it from scores, without detach() or item()",
    )
    return terms


def check_together(image_encoder: Encoder, text_encoder: Encoder, similarity: Similarity, loss: Loss) -> None:
    """Raise InputError, with the reason, where these parts cannot be trained together."""
    require_part("similarity", similarity, Similarity)
    require_part("loss", loss, Loss)
    name, takes = type(similarity).__name__, similarity.takes
    for side, encoder in (("image", image_encoder), ("text", text_encoder)):
        require_part(f"{side} encoder", encoder, Encoder)
        advice = {
            "sets": "choose encoders of regions and words, e.g. image_encoder=image_regions text_encoder=text_scan",
            "vectors": "pool them (pooling=mean or gpo), or choose similarity=scan_t2i",
        }
        require(
            encoder.gives == takes,
            f"the similarity {name} compares {takes} but the {side} encoder {type(encoder).__name__} gives "
            f"{encoder.gives}; {advice[takes]}",
        )
    spaces = image_encoder.space, text_encoder.space
    require(
        None in spaces or spaces[0] == spaces[1],
        f"the image encoder's vectors are of {spaces[0]} and the text encoder's of {spaces[1]}, whose spaces have "
        "nothing to do with each other; give both the same model and weights",
    )
    dims = image_encoder.dim, text_encoder.dim
    require(
        None in dims or dims[0] == dims[1],
        f"the image encoder {type(image_encoder).__name__} gives vectors of {dims[0]} numbers and the text encoder "
        f"{type(text_encoder).__name__} of {dims[1]}; adapters and joint models keep the size of their vectors; the "
        f"other encoders map to embedding_dim={dims[0]}",
    )
    largest, needed = similarity.largest, loss.needs_above
    require(
        largest is None or needed is None or largest > needed,
        f"the scores of the similarity {name} are never above {largest}, but {type(loss).__name__} rewards a pair only "
        f"where its score is above {needed}; set similarity.shift=1, which adds 1 to all scores and changes no ranking",
    )


def parameter_groups(module: nn.Module) -> list[dict[str, Any]]:
    """The trainable parameters for an optimizer; an encoder's `learning_rates` are groups of their own.

    Biases, gains and other parameters of fewer than two dimensions are in groups without weight decay.
    """
    with_own_rate = [
        (parameters, {"lr": rate})
        for part in module.modules()
        if isinstance(part, Encoder)
        for parameters, rate in part.learning_rates()
    ]
    own_ids = {id(parameter) for parameters, _ in with_own_rate for parameter in parameters}
    rest = [parameter for parameter in module.parameters() if parameter.requires_grad and id(parameter) not in own_ids]
    groups = []
    for parameters, settings in [(rest, {}), *with_own_rate]:
        groups.append({"params": [parameter for parameter in parameters if parameter.ndim > 1], **settings})
        groups.append(
            {"params": [parameter for parameter in parameters if parameter.ndim < 2], "weight_decay": 0.0, **settings}
        )
    return [group for group in groups if group["params"]]

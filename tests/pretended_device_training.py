"""Training on a pretended device: the CPU's weights, all that a step or a refill waits for, and checkpoints."""

from collections import Counter
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import numpy as np
import pretended_faiss
import pytest
import torch
from pretended_device import Pretended, back, moved, pretended, traffic
from pretended_device_search import D, M, N, unit
from test_contract import chosen
from torch.utils._pytree import tree_flatten

from vsehub.cli.nodes import build
from vsehub.data import CaptionedImages
from vsehub.data.text.tokens import TokenTable
from vsehub.encoders import ImageFeatures, ImageRegions, TextGRU
from vsehub.evaluation.checkpoint_file import SUFFIX
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.ensemble import MeanSimilarity, Several
from vsehub.losses import HAL
from vsehub.neighbors import MemoryBank
from vsehub.similarities import Cosine, CrossAttention
from vsehub.training.callbacks import BankCallback, CollapseDetector, WeightAverage
from vsehub.training.checkpoint import VERSION, CheckpointFiles, load_state, name_parameters
from vsehub.training.module import RetrievalModule
from vsehub.training.teacher import Teacher
from vsehub.types import Batch

WORDS = 30
PIXELS = (3, 64, 64)
# All that a training step waits for with the default encoders, by kind and file; no matrix moves to the CPU.
STEP = Counter(
    {
        "to_cpu encoders/texts.py": 1,  # packed sequences want the captions' lengths on the CPU
        "size encoders/texts.py": 1,  # word dropout: the distinct words of the batch
        "to_cpu encoders/pooling.py": 1,  # the captions' lengths, of which the distinct ones are weighted once
        "from_cpu encoders/pooling.py": 4,  # these, whose they are, and the order of two packed sequences
    }
)
OF_BATCH_CAPTIONS = Counter({"size neighbors/bank.py": 1, "scalar neighbors/bank.py": 1})  # how many it may lose
# The batch's rows, and both sides' encodings by two teachers.
OF_TEACHERS = Counter({"to_cpu training/teacher.py": 2, "from_cpu evaluation/ensemble.py": 4})
REFILL = Counter(
    {
        # Once: ids, the teachers' encodings, and how the distinct rows become pairs.
        "from_cpu neighbors/bank.py": 2,
        "from_cpu evaluation/ensemble.py": 4,
        "from_cpu training/callbacks/bank.py": 2,
        # A batch of images, of captions with their lengths, and the captions' order after all batches.
        "from_cpu evaluation/encode.py": 4,
        "to_cpu encoders/texts.py": 1,
        "to_cpu encoders/pooling.py": 1,
        "from_cpu encoders/pooling.py": 4,
        # The skewness of both directions, of 5,000 pairs at most.
        "scalar metrics/topk.py": 2,
        "size metrics/topk.py": 2,
        "scalar metrics/positives.py": 4,
        "scalar metrics/occurrences.py": 12,
        "size metrics/occurrences.py": 2,
    }
)
# A look every 25 steps: variances of both sides, whether the pairs stand out among the negatives, and by how much.
LOOK = Counter({"scalar training/callbacks/collapse.py": 6, "size training/callbacks/collapse.py": 1})


@pytest.fixture(autouse=True)
def on_it():
    with pretended():
        yield


class Step(RetrievalModule):
    """A module without a trainer, which logs nothing."""

    def log_dict(self, *_, **__):
        """Nothing."""

    def log(self, *_, **__):
        """Nothing."""


def module_of(images, texts, similarity=None, loss=None, chunk=None):
    parts = images, texts, similarity or Cosine(), loss or HAL()
    return Step(*parts, partial(torch.optim.Adam, lr=0.01), lambda optimizer: None, chunk=chunk)


def optimizer_of(module):
    return torch.optim.Adam(module.parameters(), lr=0.01, foreach=False)


def a_batch(*image_shape, seed=0):
    """N pairs, two of an image."""
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, 8, (N,), generator=random)
    texts = torch.randint(4, WORDS, (N, 8), generator=random).masked_fill(torch.arange(8) >= lengths[:, None], 0)
    images = torch.rand(N, *image_shape, generator=random)
    return Batch(images, texts, lengths, torch.arange(N) // 2, torch.arange(N))[:5]


def stepped(module, optimizer, given):
    """The loss of one step of the optimizer."""
    optimizer.zero_grad()
    loss = module.training_step(Batch(*given), 0)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 2.0, foreach=False)
    optimizer.step()
    return loss.detach()


def teachers():
    """Two models on the CPU that have encoded a split of M pairs; their mean teaches."""
    random = torch.Generator().manual_seed(1)
    sides = [Several(tuple(torch.randn(M, dim, generator=random) for dim in (5, 7))) for _ in range(2)]
    return Teacher(EncodedSplit(*sides, torch.arange(M)), MeanSimilarity([Cosine(), Cosine()]))


def small(sets=False, chunk=None):
    """Encoders without dropout, of vectors or of sets."""
    torch.manual_seed(0)
    if sets:
        return module_of(ImageRegions((4, 12), D), TextGRU(WORDS, D, 6, bidirectional=True, pooling="none"), SCAN)
    return module_of(ImageFeatures((12,), D), TextGRU(WORDS, D, 6, bidirectional=True, pooling="gpo"), chunk=chunk)


SCAN = CrossAttention()
CASES = {
    "plain": {},
    "chunk": {"chunk": 5},
    "bank": {"backend": "exact"},
    "faiss and chunk": {"backend": "faiss", "chunk": 5},
    "teachers and bank": {"backend": "exact", "teacher": True},
    "sets and faiss": {"sets": True, "backend": "faiss"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_training_step(case):
    """The same losses, weights and state of the optimizer after two steps."""
    asked = CASES[case]
    sets, backend = asked.get("sets", False), asked.get("backend")
    given = a_batch(*(4, 12) if sets else (12,))

    def trained(put):
        module = put(small(sets, asked.get("chunk")))
        if backend:
            *sides, image_ids, caption_ids = unit(M, 0)
            if sets:
                entries = a_batch(4, 12, seed=1)
                with torch.no_grad():
                    sides = module.image_encoder(put(entries[0])), module.text_encoder(*map(put, entries[1:3]))
                image_ids, caption_ids = entries[3:] if sets else (image_ids, caption_ids)
            else:
                sides = map(put, sides)
            module.bank = MemoryBank(k=5, backend=backend if put is moved else "exact")
            module.bank.fill(*sides, put(image_ids), put(caption_ids), SCAN if sets else None)
        if "teacher" in asked:
            module.teacher = teachers()
            module.teacher.hold(*map(put, unit(M, 0)))
        optimizer = optimizer_of(module)
        losses = [stepped(module, optimizer, map(put, given)) for _ in range(2)]
        return losses, [one.detach() for one in module.parameters()], optimizer.state_dict()["state"]

    expected = trained(lambda one: one)
    with pretended_faiss.installed() if backend == "faiss" else nullcontext():
        found = trained(moved)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(back(one), other, rtol=1e-3, atol=1e-4)


WAITS_OF_STEPS = {
    "hal": STEP,
    "knn_margin": STEP,
    "bank": STEP,
    "faiss": STEP,
    "batch_captions": STEP + OF_BATCH_CAPTIONS,
    "teachers": STEP + OF_TEACHERS,
    # Three parts of the batch, forward and once more in the backward pass.
    "chunk": Counter({place: 6 * times for place, times in STEP.items()}),
}


@pytest.mark.parametrize("case", WAITS_OF_STEPS)
def test_what_a_step_waits_for(case):
    """The step of the default settings, with the average of the weights; every second one is looked at for collapse."""
    cfg = chosen("train", loss="knn_margin" if case == "knn_margin" else "hal")
    norm = {"norm": "group"} if case == "chunk" else {}
    module = module_of(
        build("image_encoder", cfg.image_encoder, image_shape=list(PIXELS), dim=D, width=4, **norm),
        build("text_encoder", cfg.text_encoder, vocabulary_size=WORDS, dim=D, word_dim=6),
        build("similarity", cfg.similarity),
        build("loss", cfg.loss),
        chunk=5 if case == "chunk" else None,
    )
    moved(module)
    trainer = SimpleNamespace(global_step=0, is_last_batch=False, callbacks=[], current_epoch=0)
    average, detector = WeightAverage(), CollapseDetector(every=2, after=0)
    with pretended_faiss.installed() if case == "faiss" else nullcontext():
        if case in ("bank", "faiss", "batch_captions", "teachers"):
            exclude = "batch_captions" if case == "batch_captions" else "image"
            module.bank = MemoryBank(k=5, backend="faiss" if case == "faiss" else "exact", exclude=exclude)
            filled = list(map(moved, unit(M, 0)))
            module.bank.fill(*filled)
            if case == "teachers":
                module.teacher = teachers()
                module.teacher.hold(*filled)
        optimizer, given = optimizer_of(module), list(map(moved, a_batch(*PIXELS)))
        average.on_train_start(trainer, module)
        for looks in (Counter(), LOOK):
            with traffic() as counted:
                stepped(module, optimizer, given)
                trainer.global_step += 1
                average.on_train_batch_end(trainer, module)
                detector.on_train_batch_end(trainer, module, None, None, 0)
            assert counted.places == WAITS_OF_STEPS[case] + looks


@pytest.mark.parametrize("backend", ["exact", "faiss"])
def test_what_a_refill_waits_for(backend):
    """The rows of the bank and what encodes them, and the bank's own hubness; neither depends on the bank's size."""
    random = np.random.default_rng(0)
    module = moved(small())
    tokens = random.integers(4, WORDS, 8 * M).astype(np.int32)
    split = CaptionedImages(random.random((M, 12), np.float32), [""] * M, np.arange(M) // 2)
    table = TokenTable(tokens, np.arange(0, 8 * M + 1, 8))
    data = SimpleNamespace(load=lambda name: (split, table), eval_batch_size=M)
    trainer = SimpleNamespace(datamodule=data, current_epoch=1)
    callback = BankCallback(fraction=0.5, k=3, backend=backend)
    module.teacher = teachers()
    with pretended_faiss.installed():
        callback.setup(trainer, module, "fit")
        with traffic() as counted:
            callback.refill(trainer, module)
    assert counted.places == REFILL
    assert callback.bank.running_backend == ("faiss on the GPU" if backend == "faiss" else "exact")


def tensors_of(state):
    return [one for one in tree_flatten(state)[0] if isinstance(one, torch.Tensor)]


@pytest.mark.parametrize("puts", [(moved, back), (back, moved)], ids=["to the CPU", "from the CPU"])
def test_a_run_goes_on_on_the_other_device(puts, tmp_path):
    """Two steps on one device and two on the other give the weights, average and optimizer's state of four."""
    batches = [a_batch(12, seed=seed) for seed in range(4)]

    def begun(put, state=None):
        module = put(small()) if put is moved else small()
        optimizer, average = optimizer_of(module), WeightAverage(0.5)
        if state is not None:
            module.load_state_dict(state["state_dict"])
            optimizer.load_state_dict(state["optimizer_states"][0])
            average.load_state_dict(state["callbacks"]["WeightAverage"])
        trainer = SimpleNamespace(global_step=average.steps)
        average.on_train_start(trainer, module)
        average.on_train_epoch_start(trainer, module)
        return module, optimizer, average, trainer

    def trained(run, put, batches):
        module, optimizer, average, trainer = run
        for batch in batches:
            stepped(module, optimizer, map(put, batch))
            trainer.global_step += 1
            average.on_train_batch_end(trainer, module)
        average.on_train_epoch_end(trainer, module)

    def state_of(run):
        module, optimizer, average, trainer = run
        state = {
            "state_dict": module.state_dict(),
            "optimizer_states": [optimizer.state_dict()],
            "callbacks": {"WeightAverage": average.state_dict(), "RunRecorder": {"rows": [{"val/rsum": 1.0}]}},
            "vsehub": {"version": VERSION, "description": {}},
            "global_step": trainer.global_step,
        }
        name_parameters(state["optimizer_states"][0], optimizer, module)
        return state

    first, second = puts
    run = begun(first)
    trained(run, first, batches[:2])
    files, written = CheckpointFiles(tmp_path), state_of(run)
    for name, state in (("last.ckpt", written), (f"there{SUFFIX}", written), (f"here{SUFFIX}", back(written))):
        files.save_checkpoint(state, tmp_path / name)
    assert (tmp_path / f"there{SUFFIX}").read_bytes() == (tmp_path / f"here{SUFFIX}").read_bytes()
    loaded = load_state(tmp_path / "last.ckpt")
    for one, other in zip(tensors_of(loaded), tensors_of(written), strict=True):
        assert not isinstance(one, Pretended)
        assert torch.equal(one, back(other))
    run = begun(second, loaded)
    trained(run, second, batches[2:])
    unbroken = begun(back)
    trained(unbroken, back, batches)
    # The average at the epoch's end in the middle is put back before the run goes on.
    for one, other in zip(tensors_of(state_of(run)), tensors_of(state_of(unbroken)), strict=True):
        torch.testing.assert_close(back(one), other, rtol=1e-3, atol=1e-4)

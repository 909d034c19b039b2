from types import SimpleNamespace

import pytest
import torch
from torch import nn

from vsehub.checks import InputError
from vsehub.losses import HAL, MaxMargin, NeighborRetr
from vsehub.neighbors import MemoryBank
from vsehub.sets import Sets
from vsehub.similarities import Cosine
from vsehub.training.module import RetrievalModule, check_encoding, check_together, loss_terms, parameter_groups
from vsehub.training.train import TermMeans
from vsehub.types import Batch, Encoder, Loss, Similarity


class Part(Encoder):
    def __init__(self, gives="vectors", rate=None):
        super().__init__()
        self.gives = gives
        self.slow, self.head, self.frozen = nn.Linear(2, 2), nn.Linear(2, 1), nn.Linear(1, 1).requires_grad_(False)
        self.rate = rate

    def learning_rates(self):
        return [] if self.rate is None else [(list(self.slow.parameters()), self.rate)]


class Scores(Similarity):
    largest = None

    def __init__(self, takes="vectors", largest=1.0):
        super().__init__()
        self.takes, self.largest = takes, largest


class Mine(Loss):
    """A loss of the user's own, which returns what its function makes of the scores."""

    def __init__(self, function=None):
        super().__init__()
        self.function = function

    def forward(self, scores, positives, neighbors=None):
        return self.function(scores)


@pytest.mark.parametrize(
    ("images", "texts", "similarity", "loss", "message"),
    [
        (Part("sets"), Part(), Scores(), HAL(), "vectors but the image encoder Part gives sets"),
        (Part("sets"), Part(), Scores("sets"), HAL(), "sets but the text encoder Part gives vectors"),
        (nn.Linear(1, 1), Part(), Scores(), HAL(), "image encoder is a Linear"),
        (Part(), nn.Linear(1, 1), Scores(), HAL(), "text encoder is a Linear"),
        (Part(), Part(), nn.Bilinear(1, 1, 1), HAL(), "similarity is a Bilinear"),
        (Part(), Part(), Scores(), nn.L1Loss(), "loss is a L1Loss"),
        (Part(), Part(), Scores(largest=0.0), HAL(), "never above 0.0, but HAL"),
    ],
)
def test_what_cannot_go_together_is_refused_with_the_reason(images, texts, similarity, loss, message):
    with pytest.raises(InputError, match=message):
        check_together(images, texts, similarity, loss)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda scores: scores.diagonal(), r"Mine returned tensor\("),
        (lambda scores: {"loss": scores.mean(), "rows": scores[0]}, "'rows': tensor"),
        (lambda scores: {"total": scores.mean()}, "'total': tensor"),
        (lambda scores: {"loss": scores.mean().item()}, "'loss': 0.33"),
        (lambda scores: "0.1", "0.1"),
        (lambda scores: None, "returned None"),
        (lambda scores: scores.detach().mean(), "without gradient"),
    ],
)
def test_what_a_loss_must_not_return_is_named_with_its_class(function, message):
    with pytest.raises(InputError, match=message):
        loss_terms(Mine(function), torch.eye(3, requires_grad=True), torch.eye(3) > 0, None)


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda part, inputs: part.slow(inputs)[:2], r"Part returned \(2, 2\) for 3 inputs"),
        (lambda part, inputs: part.slow(inputs)[:, None], r"\(3, 1, 2\)"),
        (lambda part, inputs: part.slow(inputs).detach(), "without gradient"),
        (lambda part, inputs: part.slow(torch.ones(3, 2)), "same vector"),
        (lambda part, inputs: Sets(part.slow(torch.ones(4, 2)), torch.tensor([2, 1, 1])), "same vector"),
    ],
)
def test_what_an_encoder_must_not_return_is_named_with_its_class(encode, message):
    part, inputs = Part(), torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 3.0]])
    with pytest.raises(InputError, match=message):
        check_encoding("image", part, inputs, encode(part, inputs))
    check_encoding("image", part, inputs, part.slow(inputs))
    check_encoding("image", part, inputs[:2], part.slow(inputs[:2]))  # a batch of equal inputs
    check_encoding("image", part.requires_grad_(False), inputs, part.slow(inputs))


def test_a_loss_may_return_a_scalar_or_terms_that_are_numbers():
    scores = torch.eye(3, requires_grad=True)
    for function in (torch.mean, lambda scores: {"loss": scores.mean(), "share": 0.5}):
        assert loss_terms(Mine(function), scores, scores > 0, None)["loss"] == scores.mean()


def test_own_rates_make_own_groups_and_only_trained_matrices_decay():
    module = nn.ModuleDict({"a": Part(rate=1e-5), "b": Part()})
    optimizer = torch.optim.AdamW(parameter_groups(module), lr=1e-3, weight_decay=0.1)
    groups = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in module.named_parameters():
        expected = (1e-5 if name.startswith("a.slow") else 1e-3, 0.1 if name.endswith("weight") else 0.0)
        assert groups.get(id(parameter)) == (None if "frozen" in name else expected), name


def test_encodings_are_dropped_in_a_training_step_alone():
    sets = Sets(torch.ones(500, 4), torch.full((50,), 10))
    plain, dropping = (
        RetrievalModule(Part(), Part(), Scores(), MaxMargin(), None, None, embedding_dropout=share)
        for share in (0, 0.2)
    )
    assert torch.equal(plain.apply_dropout(sets).vectors, sets.vectors)
    for encoding in (torch.ones(500, 4), sets):
        values = dropping.apply_dropout(encoding)
        values = values.vectors if isinstance(values, Sets) else values
        assert set(values.unique().tolist()) == {0.0, 1.25}
        assert 0.75 < (values != 0).float().mean() < 0.85


def test_the_bank_is_asked_for_what_the_loss_declares():
    vectors, ids = torch.eye(12), torch.arange(12)
    bank = MemoryBank(3, "exact")
    bank.fill(vectors, vectors, ids, ids)
    batch = Batch(vectors, vectors, ids, ids, ids)
    stats = {}
    for loss in (HAL(), NeighborRetr(), HAL(statistics="batch"), MaxMargin()):
        module = RetrievalModule(Part(), Part(), Cosine(), loss, torch.optim.Adam, None)
        module.bank = bank
        stats[loss] = module.neighbors(vectors, vectors, batch)
    plain, central, *others = stats.values()
    assert plain.image_centrality is None
    torch.testing.assert_close(central.image_centrality, torch.full((12,), 1 / 12))
    torch.testing.assert_close(central.text_centrality, torch.full((12,), 1 / 12))
    assert others == [None, None]


def test_means_of_terms_are_over_pairs_and_as_exact_as_float32():
    """300 steps of four pairs in bfloat16, whose own sum would stay at 1024, then one of two."""
    means, logged = TermMeans(), {}
    means.on_train_epoch_start()
    for pairs, value in [(4, 1.0)] * 300 + [(2, 4.0)]:
        step = SimpleNamespace(terms={"loss": torch.tensor(value, dtype=torch.bfloat16), "weight": value})
        module = SimpleNamespace(last_step=step, log_dict=logged.update)
        trainer, batch = SimpleNamespace(log_every_n_steps=0), SimpleNamespace(image_ids=torch.arange(pairs))
        means.on_train_batch_end(trainer, module, None, batch, 0)
    means.on_train_epoch_end(trainer, module)
    wanted = (300 * 4 + 8) / (300 * 4 + 2)
    assert {name: float(value) for name, value in logged.items()} == pytest.approx(
        {"train/loss": wanted, "train/weight": wanted}, rel=1e-6
    )

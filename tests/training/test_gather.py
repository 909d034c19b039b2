"""Two processes that share a batch must have the loss and the gradients of one process with the whole of it."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
from test_chunks import CASES, batch, module
from torch.nn.functional import normalize

from vsehub.checks import InputError
from vsehub.neighbors import MemoryBank
from vsehub.sets import Sets
from vsehub.similarities import CrossAttention
from vsehub.training.bank_shares import ProcessShares
from vsehub.training.gather import encoded_together, gathered, gathered_numbers, share_of, shares
from vsehub.training.processes import from_first, of_all, processes, require_alike

PROCESSES = 2


def part(whole, process):
    """A process's images and texts, with all ids."""
    counts = shares(len(whole.image_ids), PROCESSES)
    own = slice(sum(counts[:process]), sum(counts[: process + 1]))
    return whole._replace(images=whole.images[own], texts=whole.texts[own], lengths=whole.lengths[own])


def step(case, positives, chunk, process=None):
    """Loss and gradients of a step; with a process those of its share, averaged as distributed training does."""
    encoders, similarity, loss, bank = CASES[case]
    given = batch(4 if "sets" in case else None)
    one = module(encoders, similarity, loss, chunk, bank, positives)
    found = one.training_step(given if process is None else part(given, process), 0)
    found.backward()
    gradients = {name: parameter.grad for name, parameter in one.named_parameters()}
    if process is not None:
        for gradient in gradients.values():
            dist.all_reduce(gradient)
            gradient /= PROCESSES
    return found.item(), gradients


def multiplied(encoder, factor, rows, batch_size):
    """An encoding that is told from others."""
    return factor * torch.from_numpy(rows)[:, None].double()


def nearest(parts=1, number=0):
    """What a bank says of the queries of a process, all of its entries held here or a share of them."""
    random = torch.Generator().manual_seed(2)
    draw = lambda count: normalize(torch.randn(count, 4, generator=random).double(), dim=1)  # noqa: E731
    images, texts, queries = draw(41), draw(41), draw(9)
    images[3:7] = images[20:24]  # equal similarities on both processes
    ids, few = torch.arange(41) // 2, torch.arange(9)
    sets = lambda rows: Sets(rows.repeat_interleave(2, dim=0), torch.full((len(rows),), 2))  # noqa: E731
    found = []
    for similarity, made in ((None, lambda rows: rows), (CrossAttention(), sets)):
        for k in (3, 30):  # 30: more than a process holds
            bank = MemoryBank(k, "exact", "batch_captions" if k == 3 else "image")
            divided = ProcessShares(41) if parts > 1 else None
            held = divided.own if divided else slice(None)
            own = few[share_of(number, 9, parts)]
            bank.fill(made(images[held]), made(texts[held]), ids, torch.arange(41), similarity, shares=divided)
            assert len(bank) == 41
            asked = made(queries)[own], made(queries.roll(1, 1))[own], own, own
            found.append(bank.query(*asked, centrality=True, batch_captions=few))
    return found


def work(process, folder):
    """What a process does: all cases, and rows of unequal counts there and back."""
    torch.set_num_threads(1)
    torch.Tensor.float = torch.Tensor.double
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=process, world_size=PROCESSES)
    found = {(case, kind): step(case, kind, 5, process) for case in CASES for kind in ("image", "pair")}
    rows = torch.arange(6.0).view(3, 2)[: 2 + process].clone().requires_grad_()
    whole = gathered(rows, [2, 3])
    (whole * torch.arange(1.0, 6)[:, None]).sum().backward()
    sets = gathered(Sets(rows.detach()[:2], torch.tensor([2])))
    numbers = gathered_numbers(torch.tensor([process, 7]))
    refused = None
    try:
        gathered(rows, [3, 3 + process])
    except ValueError as error:
        refused = str(error)
    encoder = torch.nn.Linear(1, 1)
    together = [encoded_together(multiplied, encoder, 3.0, np.arange(count), 2) for count in (5, 1)]
    found |= {"nearest": nearest(PROCESSES, process)}
    found |= {"first": from_first({"a": [process + 5, None]}), "all": of_all("é" * process), "together": together}
    found |= {"rows": (whole.detach(), rows.grad), "sets": (sets.vectors, sets.lengths), "numbers": numbers}
    alike = None
    try:
        require_alike({"settings": "a", "data": process})
    except (InputError, SystemExit) as error:
        alike = str(error)
    torch.save(found | {"refused": refused, "alike": alike}, f"{folder}/{process}.pt")
    if process == 0:
        dist.destroy_process_group()  # as at its end, for which the other waits


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What both processes found."""
    folder = tmp_path_factory.mktemp("gather")
    torch.multiprocessing.spawn(work, (str(folder),), PROCESSES)
    return [torch.load(folder / f"{process}.pt", weights_only=False) for process in range(PROCESSES)]


@pytest.mark.long
def test_gradients_are_those_of_one_process(results, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for case in CASES:
        for kind in ("image", "pair"):
            loss, gradients = step(case, kind, None)
            for found in results:
                assert found[case, kind][0] == pytest.approx(loss, rel=1e-12), case
                for name, gradient in gradients.items():
                    torch.testing.assert_close(
                        found[case, kind][1][name], gradient, rtol=1e-9, atol=1e-12, msg=f"{case}: {name}"
                    )


def test_rows_go_there_and_their_gradients_back(results):
    whole = torch.tensor([[0.0, 1], [2, 3], [0, 1], [2, 3], [4, 5]])
    for process, found in enumerate(results):
        torch.testing.assert_close(found["rows"][0], whole)
        weights = torch.arange(1.0, 6).split([2, 3])[process]
        torch.testing.assert_close(found["rows"][1], PROCESSES * weights[:, None].expand(-1, 2))
        torch.testing.assert_close(found["sets"][0], whole[[0, 1, 0, 1]])
        assert found["sets"][1].tolist() == [2, 2]
        assert found["numbers"].tolist() == [0, 7, 1, 7]
        assert "has 2 rows" in found["refused"] if process == 0 else "has 3 rows" in found["refused"]


def test_a_divided_bank_finds_what_a_whole_one_finds(results, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    whole = nearest()
    for case, expected in enumerate(whole):
        for side, values in enumerate(expected):
            together = torch.cat([found["nearest"][case][side] for found in results])
            torch.testing.assert_close(together, values, rtol=1e-9, atol=1e-12)


def test_alone_nothing_happens():
    rows = torch.ones(3, 2)
    assert processes() == 1
    assert gathered(rows) is rows
    assert gathered_numbers(rows) is rows
    assert "RANK" not in os.environ
    assert [shares(rows, 3) for rows in (0, 1, 5, 6)] == [[0, 0, 0], [1, 0, 0], [2, 2, 1], [2, 2, 2]]


def test_what_the_first_decides_and_what_all_agree_on(results):
    assert [found["first"] for found in results] == [{"a": [5, None]}] * 2
    assert [found["all"] for found in results] == [["", "é"]] * 2
    assert results[0]["alike"] == "process 1 of 2 has other data than process 0: 1, not 0; start all of them alike"
    assert results[1]["alike"] == "4"
    for found in results:
        assert [one[:, 0].tolist() for one in found["together"]] == [[0, 3, 6, 9, 12], [0]]

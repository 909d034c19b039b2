"""Two processes that share a batch must have the loss and the gradients of one process with the whole of it."""

from multiprocessing import get_context

import pytest
import torch
from gathering import PROCESSES, step, work
from test_chunks import CASES

from vsehub.training.gather import gather, processes, shares

LIMIT = 240  # seconds


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What both processes found."""
    folder = tmp_path_factory.mktemp("gather")
    # Forks have imported all; where there is a GPU, autograd allows none.
    context = get_context("spawn" if torch.cuda.is_available() else "fork")
    started = [context.Process(target=work, args=(number, folder)) for number in range(PROCESSES)]
    for worker in started:
        worker.start()
    for worker in started:
        worker.join(LIMIT)
        assert worker.exitcode == 0
    return [torch.load(folder / f"{process}.pt", weights_only=False) for process in range(PROCESSES)]


def test_gradients_are_those_of_one_process(results, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    for case in CASES:
        for kind in ("image", "pair"):
            wanted = step(case, kind, None)
            for result in results:
                torch.testing.assert_close(result[case, kind], wanted, rtol=1e-9, atol=1e-12)


def test_rows_go_there_and_their_gradients_back(results):
    whole = torch.tensor([[0.0, 1], [2, 3], [0, 1], [2, 3], [4, 5]])
    for process, result in enumerate(results):
        torch.testing.assert_close(result["rows"][0], whole)
        weights = torch.arange(1.0, 6).split([2, 3])[process]
        torch.testing.assert_close(result["rows"][1], PROCESSES * weights[:, None].expand(-1, 2))
        torch.testing.assert_close(result["sets"][0], whole[[0, 1, 0, 1]])
        assert result["sets"][1].tolist() == [2, 2]
        assert result["numbers"].tolist() == [0, 7, 1, 7]


def test_alone_nothing_happens():
    rows = torch.ones(3, 2)
    assert processes() == 1
    assert gather(rows) is rows
    assert [shares(rows, 3) for rows in (0, 1, 5, 6)] == [[0, 0, 0], [1, 0, 0], [2, 2, 1], [2, 2, 2]]


def test_rows_are_encoded_together(results):
    for result in results:
        assert [rows[:, 0].tolist() for rows in result["together"]] == [[0, 3, 6, 9, 12], [0]]

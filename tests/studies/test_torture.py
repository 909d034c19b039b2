"""A sample of tools/torture is as it should be, and each harness sees what is not."""

import forked  # in tools/torture
import inputs
import model
import numeric
import pytest
import world

from vsehub.criteria import CSLS
from vsehub.metrics import ranks


def test_random_criteria_and_metrics_are_as_their_oracles_say():
    assert numeric.run(None, 20, cases=1000) == {"cases": 1000, "wrong": []}
    assert numeric.without_formula() == ["auto"]  # which is CSLS where nothing is chosen


def off_by_a_thousandth(monkeypatch):
    bias = CSLS.bias
    monkeypatch.setattr(CSLS, "bias", lambda self, scores: 1.001 * bias(self, scores))


def ties_that_help(monkeypatch):
    whole = ranks.at_least
    monkeypatch.setattr(ranks, "at_least", lambda scores, least: whole(scores, least * (1 + 1e-6)))


def another_error(monkeypatch):
    monkeypatch.delattr(CSLS, "bias")


@pytest.mark.parametrize(
    ("fault", "said"), [(off_by_a_thousandth, "csls"), (ties_that_help, "rank_blocks"), (another_error, "Error: ")]
)
def test_wrong_numbers_and_other_errors_are_noticed(monkeypatch, fault, said):
    fault(monkeypatch)
    found = numeric.run(None, 0, cases=600)["wrong"]
    assert any(said in text for text in found), found


REFUSAL = "vsehub rerank: k is 0; expected a number\n"


@pytest.mark.parametrize(
    ("status", "err", "left", "wrong"),
    [
        (2, "[2026-01-01 00:00:00,000] a line of a log\n" + REFUSAL, [], None),
        (2, "Traceback (most recent call last)\n" + REFUSAL, [], "Traceback"),
        (0, "", [], "status 2"),
        (2, "vsehub rerank: k is 7", [], "a message like"),
        (2, "k is 0", [], "one line that begins"),
        (2, REFUSAL + "and more", [], "and more"),
        (2, REFUSAL, ["half.npy"], "half.npy"),
        (None, "", [], "still at work"),
    ],
)
def test_a_refusal_that_is_none_is_noticed(status, err, left, wrong):
    case = inputs.Case("a case", ("rerank", "k=0"), says="k is 0")
    found = inputs.judged(case, forked.Ended(status, "", err, 0.1), left)
    assert (found == []) if wrong is None else any(wrong in one for one in found), found


def test_files_that_differ_after_a_kill_are_noticed(tmp_path):
    ours, theirs = tmp_path / "ours" / "out", tmp_path / "theirs" / "out"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(f'{{"seconds": {len(folder.parts)}, "place": "{folder}/x", "k": [1, 2]}}')
        (folder / "metrics.csv").write_text("epoch,seconds\n0,1\n")
    assert world.differences(ours, theirs) == []
    (ours / "metrics.csv").write_text("epoch,seconds\n1,3\n")
    (ours / "run.json").write_text(f'{{"place": "{ours}/x", "k": [1, 3]}}')
    (ours / ".run.json.0.part").touch()
    (theirs / "index.faiss").touch()
    found = world.differences(ours, theirs)
    assert [one.split()[0] for one in found] == [".run.json.0.part", "index.faiss", "metrics.csv", "run.json"]
    assert world.temporary(ours) == [".run.json.0.part"]
    (ours / "run.json").write_text("{")
    assert len(world.damaged(ours)) == 1


def test_a_collection_that_forgets_nothing_is_noticed(monkeypatch):
    pytest.importorskip("lancedb")
    assert model.run(None, 0, ("lancedb",), operations=8) == {"cases": 1, "wrong": []}
    change = model.Collection.change
    monkeypatch.setattr(model.Collection, "change", lambda self, gone=(), *new: change(self, (), *new))
    assert "items, not" in model.run(None, 0, ("lancedb",), operations=8)["wrong"][0]

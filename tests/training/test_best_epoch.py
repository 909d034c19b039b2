"""The epoch whose model is kept, recorded and measured, and when early stopping ends a training."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

import vsehub
from vsehub.criteria import NearestNeighbor
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.training.callbacks import retrieval

# The fifth epoch is the best of those up to the eighth, and equals the sixth; none before it waits for three epochs.
CURVE = (10.0, 30.0, 29.0, 28.0, 31.0, 31.0, 30.0, 29.0, 40.0)
BEST = 4


@pytest.fixture
def trained_on(monkeypatch, run_here, features, undrawn, tmp_path):
    """A function that trains on features with the validation rsums of a curve; the run, and each epoch's weights.

    broken: the epoch in which the training is interrupted, to be resumed.
    """

    def train(curve, *settings, broken=None):
        original = retrieval.RetrievalCallback.on_train_epoch_end
        epochs, interrupts = [], [broken]

        def measured(split, *rest):
            metrics = {"rsum": curve[len(epochs)], "hubness/hs_sum": 0.0}  # Lightning takes long to log all of them
            return replace(evaluate(split, *rest), metrics=metrics)

        def end_of_epoch(callback, trainer, module):
            if len(epochs) in interrupts:
                interrupts.remove(len(epochs))
                raise KeyboardInterrupt
            original(callback, trainer, module)
            epochs.append({name: weight.clone() for name, weight in module.state_dict().items()})

        monkeypatch.setattr(retrieval, "evaluate", measured)
        monkeypatch.setattr(retrieval.RetrievalCallback, "on_train_epoch_end", end_of_epoch)
        command = ("train", *features, f"trainer.max_epochs={len(curve)}", *settings, "hydra.run.dir=run")
        if broken is not None:
            run_here(*command, status=130)
            command = ("train", "resume=run")
        rising = "still rising" in run_here(*command)
        assert rising == (max(curve[: len(epochs)]) > max(curve[: len(epochs) - 1]))
        return tmp_path / "run", epochs

    return train


def require_kept(run, epochs, best):
    """Assert that the model, the record and the final evaluation are those of epoch `best`."""
    path = run / "checkpoints" / "best.safetensors"
    stored = load_file(path)
    alike = [all(torch.equal(stored[name], weight) for name, weight in weights.items()) for weights in epochs]
    assert alike == [epoch == best for epoch in range(len(epochs))]
    record = json.loads((run / "run.json").read_text())
    assert (record["best"]["epoch"], record["best"]["val/rsum"]) == (best, CURVE[best])
    model = vsehub.load(path)
    (evaluation,) = (json.loads(path.read_text()) for path in (run / "evaluations").iterdir())
    assert evaluation["checkpoints"] == model.digests
    assert model.sha256 == record["best"]["sha256"]
    again = evaluate(model.encode("test"), model.similarity, NearestNeighbor(), Protocol("single")).metrics
    assert record["metrics"] == {f"test/{name}": value for name, value in again.items()}


@pytest.mark.parametrize("broken", [3, 6])
def test_the_first_epoch_with_the_largest_rsum_is_kept_recorded_and_measured(trained_on, broken):
    run, epochs = trained_on(CURVE[:8], broken=broken)
    assert len(epochs) == 8
    require_kept(run, epochs, BEST)


def test_early_stopping_waits_for_a_larger_rsum(trained_on):
    run, epochs = trained_on(CURVE, "callbacks=early_stopping")
    assert len(epochs) == 8, "three epochs after the fifth, none of them larger"
    require_kept(run, epochs, BEST)


def test_a_training_whose_last_epoch_is_the_best_says_so(trained_on):
    trained_on(CURVE[:2])

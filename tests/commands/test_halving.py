"""Random search with successive halving: the draws, the rounds, and the command that goes on where it was."""

import csv
import math
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from hydra_plugins.vsehub_halving import Halving
from vsehub.checks import InputError

SPACE = {"lr": "tag(log,interval(0.001,0.1))", "drop": "0.0,0.1,0.2", "k": "range(1,4)", "share": "interval(-1,1)"}


class Launcher:
    """Answers with what `value` says of a job; None for a job that failed."""

    def __init__(self, value):
        self.value, self.batches, self.firsts = value, [], []

    def launch(self, jobs, initial_job_idx):
        self.batches.append([tuple(job) for job in jobs])
        self.firsts.append(initial_job_idx)
        return [SimpleNamespace(return_value=self.value(dict(one.split("=", 1) for one in job))) for job in jobs]


def search(folder, value=lambda job: 1.0, epochs=(1, 2), trials=(4, 2), **settings):
    found = Halving(epochs, trials, **settings)
    found.config = OmegaConf.create({"hydra": {"sweep": {"dir": str(folder)}}} | dict.fromkeys((*SPACE, "seed")))
    loader = SimpleNamespace(load_sweep_config=lambda config, words: found.of_group(config, words))
    found.hydra_context, found.of_group = SimpleNamespace(config_loader=loader), lambda config, words: config
    found.launcher = Launcher(value)
    found.validate_batch_is_legal = lambda batch: None
    return found


def test_draws_lie_in_their_spaces_and_depend_on_seed_trial_and_name_alone(tmp_path):
    found = search(tmp_path, trials=(200, 1), space=SPACE)
    drawn = found.drawn(())
    assert drawn[0] == ()  # all settings as they are
    values = [dict(one.split("=") for one in trial) for trial in drawn[1:]]
    rates = [math.log10(float(one["lr"])) for one in values]
    assert -3 <= min(rates) < -2.9
    assert -1.1 < max(rates) <= -1
    assert abs(sum(rates) / len(rates) + 2) < 0.1  # even in the logarithm
    assert {one["drop"] for one in values} == {"0.0", "0.1", "0.2"}
    assert {one["k"] for one in values} == {"1", "2", "3"}
    assert -1 <= min(float(one["share"]) for one in values) < -0.9
    assert search(tmp_path, trials=(50, 1), space=SPACE).drawn(()) == drawn[:50]
    fewer = search(tmp_path, trials=(200, 1), space={"lr": SPACE["lr"]}).drawn(())
    assert fewer[1:] == [trial[:1] for trial in drawn[1:]]
    assert search(tmp_path, trials=(200, 1), space=SPACE, seed=1).drawn(()) != drawn


def test_settings_that_the_configuration_lacks_are_not_drawn(tmp_path):
    found = search(tmp_path, space={"lr": SPACE["lr"], "text_encoder.word_dropout": "0.1,0.2"})
    found.of_group = lambda config, words: OmegaConf.merge(
        config, {"text_encoder": {"word_dropout": 0.0} if "text_encoder=gru" in words else {}}
    )
    assert all(len(trial) == 1 for trial in found.drawn(("text_encoder=other",))[1:])
    assert all(len(trial) == 2 for trial in found.drawn(("text_encoder=gru",))[1:])


def test_each_group_has_its_own_search_with_the_same_budget_and_common_draws(tmp_path):
    found = search(
        tmp_path,
        lambda job: float(job["lr"]) if "lr" in job else 0.0,
        space={"lr": SPACE["lr"], "seed": "1,2"},
        spaces={"loss=hal": {"loss.gamma": "interval(10,20)"}},
    )
    found.sweep(["loss=sum,hal", "seed=0"])
    first, second = found.launcher.batches
    assert found.launcher.firsts == [0, 8]
    for loss in ("sum", "hal"):
        tried = [job for job in first if job[0] == f"loss={loss}"]
        assert len(tried) == 4
        assert tried[0] == (f"loss={loss}", "seed=0", "trainer.max_epochs=1")
        assert all(any("gamma" in one for one in job) == (loss == "hal") for job in tried[1:])
        assert all(
            job[1] == "seed=0" and not any("seed" in one for one in job[2:]) for job in tried
        )  # given, not drawn
        rates = sorted((float(one[3:]) for job in tried for one in job if one.startswith("lr=")), reverse=True)
        kept = [job for job in second if job[0] == f"loss={loss}"]
        assert [float(one[3:]) for job in kept for one in job if one.startswith("lr=")] == rates[:2]
        assert all(job[-1] == "trainer.max_epochs=2" for job in kept)
    common = [{one for one in job if one.startswith("lr=")} for job in first]
    assert common[:4] == common[4:]


def test_the_table_has_every_round_and_failed_trials_go_no_further(tmp_path, capsys):
    found = search(tmp_path, lambda job: None if "lr" in job else 7.0, space={"lr": SPACE["lr"]})
    rows = found.sweep(["loss=sum"])
    assert [row["val_rsum"] for row in rows] == [7.0, "failed", "failed", "failed", 7.0]
    with (tmp_path / "halving.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [row["epochs"] for row in written] == ["1"] * 4 + ["2"]
    assert written[0]["settings"] == "as they are"
    assert "chosen: vsehub train loss=sum trainer.max_epochs=2 final_split=test" in capsys.readouterr().out
    search(tmp_path, lambda job: None).sweep(["loss=sum"])
    assert "all trials of loss=sum failed" in capsys.readouterr().out


def test_rounds_that_do_not_fit_are_refused(tmp_path):
    for epochs, trials in (((1, 2), (4,)), ((2, 1), (4, 2)), ((1, 2), (2, 4)), ((), ())):
        with pytest.raises(InputError, match="expected as many epochs as trials, the epochs rising and the trials"):
            Halving(epochs, trials)
    with pytest.raises(InputError, match=r"hydra.sweeper.epochs and trials is 0; expected a whole number above 0"):
        Halving((0,), (1,))
    with pytest.raises(InputError, match=r"give hydra.sweeper.epochs, e.g. \[4,8,15\], instead of trainer.max_epochs"):
        search(tmp_path).sweep(["trainer.max_epochs=3"])


@pytest.mark.long
def test_the_command_goes_on_where_it_was(tmp_path, vsehub):
    command = (
        "train",
        "-m",
        "sweep=tune_loss",
        "loss=sum",
        "hydra.sweeper.epochs=[1,2]",
        "hydra.sweeper.trials=[2,1]",
    )
    done = vsehub(*command, cwd=tmp_path, small=True)
    assert "3 runs finished, 0 skipped" in done.out
    assert "chosen: vsehub train scheduler=cosine loss=sum" in done.out
    folder = tmp_path / "runs" / "sweeps" / "tune_loss-halving"
    before = (folder / "halving.csv").read_text()
    again = vsehub(*command, cwd=tmp_path, small=True)
    assert "0 runs finished, 3 skipped" in again.out
    assert (folder / "halving.csv").read_text() == before

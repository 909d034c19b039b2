"""Sweeps: runs are recognised by their settings, killed and continued, also under launchers and Optuna."""

import importlib.util
import re
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from looped import looped
from omegaconf import OmegaConf
from run_files import record, rows

from vsehub.cli.nodes import plain
from vsehub.cli.sweep import digest, sweep_name
from vsehub.recipes import affects_results

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
SWEEPS = sorted(path.stem for path in (CONF / "sweep").glob("*.yaml"))
LAUNCHERS = {
    "basic": "hydra",
    "joblib": "hydra_plugins.hydra_joblib_launcher",
    "submitit_local": "hydra_plugins.hydra_submitit_launcher",
    "submitit_slurm": "hydra_plugins.hydra_submitit_launcher",
    "ray": "hydra_plugins.hydra_ray_launcher",
}
SHORT = ("trainer.max_epochs=1", "+trainer.limit_train_batches=2")


def installed(module):
    return importlib.util.find_spec(module.partition(".")[0]) and importlib.util.find_spec(module)


def needs(name):
    return pytest.mark.skipif(not installed(LAUNCHERS[name]), reason=f"{LAUNCHERS[name]} is not installed")


NEEDS_OPTUNA = pytest.mark.skipif(
    not installed("hydra_plugins.hydra_optuna_sweeper"), reason="Optuna is not installed: vsehub[sweep]"
)


def config(*overrides, command="train"):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose(command, list(overrides), return_hydra_config=True)
    choices = dict(cfg.hydra.runtime.choices)
    cfg.hydra.runtime.output_dir = "somewhere"
    OmegaConf.update(cfg, "hydra.runtime.choices", choices, force_add=True)
    return cfg


def settings(*overrides):
    return digest(plain(config(*overrides), resolve=False))


@pytest.mark.long
def test_the_digest_sees_what_decides_a_run_and_no_place():
    plain = settings()
    places = ("run_name=other", "logger=tensorboard", "study=name", "loader.workers=2")
    machine = ("trainer.accelerator=cpu", "+trainer.enable_progress_bar=false")
    assert settings(*places, *machine, "run_folder=elsewhere", "hydra.sweep.dir=elsewhere") == plain
    assert settings("loss.gamma=60.0") == plain
    decided = ["seed=1", "loss.gamma=31", "bank=memory", "final_split=val", "protocol=c1", "criterion=csls"]
    decided += ["+data.noise.seed=3", "data.size=tiny", "trainer.max_epochs=3", "positives=pair"]
    assert len({settings(override) for override in decided} | {plain}) == len(decided) + 1
    table = ("data=table", "data.table=a.csv")
    others = ("data.table=b.csv", "data.pictures.size=32", "data.draw.seed=1", "data.columns.split=null")
    assert len({settings(*table, override) for override in others} | {settings(*table)}) == len(others) + 1


def test_classes_and_addresses_of_different_content_share_no_folder():
    first, *others = (
        {"loss": {"_target_": "a.Mine"}, "data": {"images": "http://host/x.npy?edition=1"}},
        {"loss": {"_target_": "b.Mine"}, "data": {"images": "http://host/x.npy?edition=1"}},
        {"loss": {"_target_": "a.Mine"}, "data": {"images": "http://host/x.npy?edition=2"}},
    )
    assert len({digest(other) for other in others} | {digest(first)}) == 3


def test_an_edited_class_is_not_pooled_with_the_old(run_here, features, tmp_path, monkeypatch):
    """The run is refused, or trained again with retrain=true; a file that the loss does not use changes nothing."""
    (tmp_path / "edited_helper.py").write_text("def half(x):\n    return x / 2\n")
    (tmp_path / "edited_loss.py").write_text(
        "from edited_helper import half\nfrom vsehub.losses import SumMargin\n"
        "class Mine(SumMargin):\n    def __init__(self, margin=0.2):\n"
        "        super().__init__(half(margin))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    data = [setting for setting in features if not setting.startswith("bank")]
    command = ("train", "-m", "loss=sum", "loss._target_=edited_loss.Mine", *SHORT, *data, "hydra.sweep.dir=sweep")
    run_here(*command)
    run = by_seed(tmp_path / "sweep")[0]
    first = record(run)
    assert {"edited_loss", "edited_helper", "vsehub.losses.hinge"} <= first["code"]["loss"].keys()
    with (tmp_path / "edited_helper.py").open("a") as file:
        file.write("# edited\n")
    assert "the code of edited_helper has changed" in run_here(*command, status=2)
    assert record(run) == first
    run_here(*command, "retrain=true")
    again = record(run)
    assert (again["status"], again["code"]["loss"]["edited_helper"] == first["code"]["loss"]["edited_helper"]) == (
        "finished",
        False,
    )
    del sys.modules["edited_loss"], sys.modules["edited_helper"]


def test_what_counts():
    for key in ("seed", "bank.seed", "criterion", "criterion.k", "data.noise.rate", "loss.gamma", "data.pictures.size"):
        assert affects_results(key)
    for key in ("logger", "hydra.sweep.dir", "run_folder", "study", "label", "resume"):
        assert not affects_results(key)
    assert {sweep_name(None, None, ["loss=sum,max", f"seed={seeds}"]) for seeds in ("0,1", "0,1,2")} == {"loss_sum_max"}


@looped("name", SWEEPS)
@pytest.mark.long
def test_every_swept_setting_is_there(name):
    """Each setting composes with its command; each value parses as a sweep."""
    command = "evaluate" if name == "lambda" else "train"
    cfg = config(f"sweep={name}", command=command)
    for override in OverridesParser.create().parse_overrides([f"{k}={v}" for k, v in cfg.hydra.sweeper.params.items()]):
        key = override.key_or_group
        assert override.is_sweep_override(), override.input_line
        if override.is_discrete_sweep():
            features = ["image_encoder=image_features"] if key == "image_encoder.dropout" else []
            *_, last = override.sweep_string_iterator()
            config(f"sweep={name}", *features, f"{key}={last}", command=command)
        else:
            assert OmegaConf.select(cfg, key) is not None


@pytest.mark.parametrize("launcher", [pytest.param(name, marks=needs(name)) for name in LAUNCHERS])
def test_launchers_compose(launcher):
    assert launcher.split("_")[0] in config("sweep=k", f"hydra/launcher={launcher}").hydra.launcher._target_.lower()


def by_seed(sweep):
    return {record(path.parent)["seed"]: path.parent for path in sweep.glob("*/run.json")}


def state(run):
    """What a run's files hold and when they were written; Hydra's own and the lock aside."""
    files = [path for path in run.rglob("*") if path.is_file() and ".hydra" not in path.parts and path.name != ".lock"]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_sweep_trains_each_of_its_runs_once(run_here, features, tmp_path):
    """Only the digest tells the folders of the two apart."""
    command = ("train", "-m", *features, "trainer.max_epochs=1", "loss.gamma=20,30", "hydra.sweep.dir=sweep")
    run_here(*command)
    runs = [path.parent for path in (tmp_path / "sweep").glob("*/run.json")]
    assert sorted(record(run)["config"]["loss"]["gamma"] for run in runs) == [20, 30]
    assert [record(run)["status"] for run in runs] == ["finished"] * 2
    before = [state(run) for run in runs]
    assert run_here(*command).count("is finished after 1 epochs") == 2
    taken = ("loss.gamma=40", "hydra.sweep.dir=sweep", f"hydra.sweep.subdir={runs[0].name}")
    assert "other settings" in run_here(*command[:-2], *taken, status=2)
    assert [state(run) for run in runs] == before


@pytest.mark.long
def test_a_killed_sweep_goes_on_where_it_stopped(vsehub, tmp_path):
    """Killed in its second run: the first stays as it is, the second goes on in place, all ends as an unbroken one."""
    command = ("train", "-m", "loss=sum", "trainer.max_epochs=2", "seed=0,1")
    (tmp_path / "broken").mkdir()
    (tmp_path / "whole").mkdir()
    process = vsehub(*command, cwd=tmp_path / "broken", small=True, start=True)
    sweep = tmp_path / "broken" / "runs" / "sweeps"
    while not list(sweep.glob("*/*-1-*/checkpoints/last.ckpt")):
        assert process.poll() is None, (tmp_path / "broken" / "output.txt").read_text()
        time.sleep(0.005)
    process.kill()
    process.wait()
    (sweep,) = sweep.iterdir()
    runs = by_seed(sweep)
    before, started = state(runs[0]), record(runs[1])["started"]
    done = vsehub(*command, cwd=tmp_path / "broken", small=True)
    assert f"{runs[0]} is finished after 2 epochs" in done.out
    assert state(runs[0]) == before
    assert (by_seed(sweep), record(runs[1])["started"]) == (runs, started)
    vsehub(*command, cwd=tmp_path / "whole", small=True)
    unbroken = by_seed(tmp_path / "whole" / sweep.relative_to(tmp_path / "broken"))
    for seed in (0, 1):
        assert rows(runs[seed]) == rows(unbroken[seed])
        for key in ("best", "metrics", "status", "epochs"):
            assert record(runs[seed])[key] == record(unbroken[seed])[key]


@pytest.mark.long
def test_a_failed_run_ends_nothing_and_a_folder_of_another_run_is_left_alone(run_here, small, tmp_path):
    """γ = -1 is refused as the loss is built; the run beside it is trained, once."""
    place = ("hydra.sweep.dir=sweep", "hydra.sweep.subdir=${hydra:job.num}")
    command = ("train", "-m", "loss=hal", *SHORT, *small, *place)
    assert "loss.gamma is -1" in run_here(*command, "loss.gamma=-1,30", status=2)
    finished = tmp_path / "sweep" / "1"
    assert record(finished)["status"] == "finished"
    words = record(finished)["command"].split()
    assert "loss.gamma=30" in words
    assert "-m" not in words
    before = state(finished)
    run_here(*command, "loss.gamma=-1,30", status=2)
    assert "other settings" in run_here(*command, "loss.gamma=30,31", status=2)
    assert state(finished) == before


@pytest.mark.parametrize(
    ("overrides", "setting", "values"),
    [
        (("bank=memory,none", "bank.fraction=0.3"), "bank.fraction", [0.3, None]),
        (("text_encoder=text_gru,mine", "text_encoder.sharpness=2"), "text_encoder.sharpness", [None, 2]),
        pytest.param(
            ("sweep=tune_loss", "text_encoder=mine", "hydra.sweeper.n_trials=1"),
            "text_encoder.word_dropout",
            [None],
            marks=NEEDS_OPTUNA,
        ),
    ],
)
def test_settings_that_a_jobs_component_lacks_are_left_out(run_here, tmp_path, monkeypatch, overrides, setting, values):
    """Also where the component, or the one that has them, is one's own."""
    (tmp_path / "own" / "text_encoder").mkdir(parents=True)
    (tmp_path / "own" / "text_encoder" / "mine.yaml").write_text("_target_: mine.Mine\nsharpness: 1\n")
    jobs = []
    monkeypatch.setattr("vsehub.cli.train.train", lambda cfg: jobs.append(cfg) or 1.0)
    said = run_here("train", "-m", *overrides, "--config-dir=own", "hydra.sweep.dir=sweep")
    assert [OmegaConf.select(cfg, setting) for cfg in jobs] == values
    assert {*re.findall(r"(\S+)=\S+ left out", said)} == {setting}


def test_a_prepared_sweep_needs_m(run_here, features, tmp_path):
    """The recorded command of its job names the sweep, and needs no -m."""
    command = ("train", "sweep=gamma_epsilon", *features, *SHORT)
    assert re.search("needs -m.* loss.epsilon ", run_here(*command, "loss.gamma=30", status=2))
    assert not list(tmp_path.glob("runs/*"))
    assert "needs -m" in run_here("evaluate", "sweep=lambda", status=2)
    run_here(*command, "loss.gamma=30", "loss.epsilon=0.3")


def test_each_failed_job_is_named(run_here, small):
    said = run_here("train", "-m", "loss=hal", "loss.gamma=-1,-2", *small, "hydra.sweep.dir=sweep", status=2)
    for number, gamma in enumerate((-1, -2)):
        assert re.search(rf"job {number} failed .*: loss.gamma is {gamma};", said)


@pytest.mark.parametrize("step", ["training.callbacks.retrieval.evaluate", "evaluation.measurement.measure"])
def test_a_run_that_failed_says_why_and_goes_on(run_here, features, tmp_path, monkeypatch, step):
    """In training, and in the measurement after it, which alone is repeated."""
    run = tmp_path / "run"
    with monkeypatch.context() as broken:
        broken.setattr(f"vsehub.{step}", mock.Mock(side_effect=OSError("no more rows")))
        run_here("train", *features, "trainer.max_epochs=1", "hydra.run.dir=run", status=1)
    failed = record(run)
    assert (failed["status"], failed["error"]) == ("failed", "OSError: no more rows")
    assert "Traceback" in (run / "train.log").read_text()
    run_here("train", "resume=run")
    goes_on = record(run)
    only_measured = goes_on["wall_seconds"] == failed["wall_seconds"]
    assert (goes_on["status"], "error" in goes_on, only_measured) == ("finished", False, "measure" in step)


@needs("joblib")
@pytest.mark.long
def test_two_sweeps_at_once_share_their_runs(vsehub, tmp_path):
    """Joblib with a run named twice, and a second command beside it: every run is trained once, by one of them."""
    command = ("train", "-m", "loss=sum", *SHORT, "seed=0,0,1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    other = ("train", "-m", "loss=sum", *SHORT, "seed=1,0", "hydra.sweep.dir=sweep")
    beside = vsehub(*other, cwd=tmp_path, small=True, start=True)
    vsehub(*command, "hydra.sweep.dir=sweep", cwd=tmp_path, small=True)
    assert beside.wait(200) == 0, (tmp_path / "output.txt").read_text()
    runs = by_seed(tmp_path / "sweep")
    assert sorted(runs) == [0, 1]
    for run in runs.values():
        assert (run / "train.log").read_text().count("epoch 1 of ") == len(rows(run)) == 1


@NEEDS_OPTUNA
@pytest.mark.long
def test_optuna_goes_on_with_the_losss_own_settings_on_validation(run_here, small, tmp_path):
    """Two trials; again with a third: the two are found. A search for the smallest is refused."""
    search = ("loss=sum", "loss.margin=interval(0.05,0.3)")
    command = ("train", "-m", "sweep=tune_loss", *search, *SHORT, *small)
    run_here(*command, "hydra.sweeper.n_trials=2")
    sweep = tmp_path / "runs" / "sweeps" / "tune_loss"
    best = OmegaConf.load(sweep / "optimization_results.yaml")
    runs = [record(path.parent) for path in sweep.glob("*/run.json")]
    assert best.best_value == max(run["best"]["val/rsum"] for run in runs)
    assert 0.05 <= best.best_params["loss.margin"] <= 0.3
    assert {run["config"]["final_split"] for run in runs} == {"val"}
    assert run_here(*command, "hydra.sweeper.n_trials=3").count("is finished after") == 2
    assert "maximize" in run_here("train", "-m", "hydra/sweeper=optuna", "seed=0,1", *SHORT, *small, status=2)

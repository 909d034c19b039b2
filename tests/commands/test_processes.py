"""Several processes train what one does, started by Lightning or by srun, and they end together."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from false_packages import write_false_packages
from hydra.core.override_parser.overrides_parser import OverridesParser
from input_setups import SMALL
from omegaconf import OmegaConf
from run_files import record, rows

from vsehub.checks import InputError
from vsehub.cli.overrides import override
from vsehub.data import Scenes
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.gather import launcher_options

SETTINGS = [
    *("bank=memory", "image_encoder.norm=group", "text_encoder.word_dropout=0", "embedding_dropout=0"),
    *("trainer.precision=32-true", "trainer.accelerator=cpu", "trainer.max_epochs=3", "+trainer.log_every_n_steps=1"),
    *("loader.batch_size=26", "seed=3"),  # a last batch that two processes share unequally
]


def command(*arguments):
    return [sys.executable, "-m", "vsehub", "train", *SMALL, *SETTINGS, *map(str, arguments)]


def losses(run):
    """The loss of each step; of one that a resumed run repeats, the later."""
    files = sorted((run / "csv").glob("*/metrics.csv"))
    steps = [row for file in files for row in csv.DictReader(file.open()) if row["step/loss"]]
    return {int(row["step"]): float(row["step/loss"]) for row in steps}


def alike(first, second):
    """Two runs of the same training, but for the order of sums. A kill may lose rows of Lightning's csv."""
    ours, theirs = losses(first), losses(second)
    assert max(ours) == max(theirs)
    assert ours == pytest.approx({step: theirs[step] for step in ours}, rel=2e-5)
    for ours, theirs in zip(rows(first), rows(second), strict=True):
        assert float(ours["val/rsum"]) == pytest.approx(float(theirs["val/rsum"]), abs=2)
    (ours, theirs) = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (first, second))
    for name, weight in theirs["state_dict"].items():
        torch.testing.assert_close(ours["state_dict"][name], weight, rtol=1e-2, atol=2e-4, msg=name)
    assert ours["global_step"] == theirs["global_step"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The working folder. Its Python files are named as packages are, and no process may import them."""
    folder = tmp_path_factory.mktemp("processes")
    write_false_packages(folder)
    yield folder
    assert not (folder / "imported").exists(), (folder / "imported").read_text()


@pytest.fixture(scope="module")
def alone(place, environment):
    """The run of one process."""
    run = place / "alone"
    subprocess.run(command(f"hydra.run.dir={run}"), check=True, cwd=place, env=environment, capture_output=True)
    return run


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in Linux's /proc")
def test_one_that_is_killed_ends_all_and_another_goes_on(alone, place, environment):
    run = place / "killed"
    process = subprocess.Popen(command(f"hydra.run.dir={run}", "trainer.devices=2"), cwd=place, env=environment)
    last = run / "checkpoints" / "last.ckpt"
    wait_for(lambda: last.is_file() or process.poll() is not None)
    os.kill(children(process.pid)[0], signal.SIGKILL)  # the second of the two
    assert process.wait(timeout=60) in (-signal.SIGKILL, 1)
    resumed = [sys.executable, "-m", "vsehub", "train", f"resume={run}", "trainer.devices=1"]
    subprocess.run(resumed, check=True, cwd=place, env=environment, capture_output=True)
    alike(run, alone)


def as_nohup():
    """The signals of a process that nohup has started; what the tests were started with may ignore SIGINT."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the processes in Linux's /proc")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_resumes_with_as_many(alone, place, environment, stop):
    """Workers end with the command that started them, even where that one is killed; ignored signals end nothing."""
    run = place / f"stopped by {stop.name}"
    process = subprocess.Popen(
        command(f"hydra.run.dir={run.name}", "trainer.devices=2"),
        cwd=place,
        env=environment,
        stderr=subprocess.PIPE,
        preexec_fn=as_nohup,
    )
    wait_for(lambda: (run / "checkpoints" / "last.ckpt").is_file() or process.poll() is not None)
    assert process.poll() is None, process.communicate()
    workers = children(process.pid)
    process.send_signal(signal.SIGHUP)
    process.send_signal(stop)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if stop == signal.SIGINT else -stop), said
    assert b"Traceback" not in said
    wait_for(lambda: not any(map(runs, workers)), 20)
    resumed = [sys.executable, "-m", "vsehub", "train", f"resume={run.name}"]
    subprocess.run(resumed, check=True, cwd=place, env=environment, capture_output=True)
    assert record(run)["processes"] == 2
    alike(run, alone)


@pytest.mark.parametrize("folder", ["out", "a b", "it's", "a,b", "${x}", r"\${x}", "[1]x", "1.0", "/a/b=c"])
def test_a_folder_with_odd_signs_can_be_resumed(folder):
    value = OverridesParser.create().parse_override(override("resume", folder)).value()
    assert OmegaConf.create({"value": value}).value == folder


def wait_for(condition, seconds=200):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid):
    """Whether a process runs; one that has ended and is not yet removed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(pid):
    """The processes that a process has started and that run."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split() if runs(child)]


def srun_variables():
    """The environment variables that srun gives to each of two processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7"}
    shared |= {"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NNODES": "1", "SLURM_NODEID": "0"}
    return [shared | dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID"), number) for number in ("0", "1")]


def test_two_processes_take_the_steps_of_one(vsehub, features, tmp_path):
    """As srun starts them, in forks; the bank excludes the captions of the batch, of which each has a half."""
    bank = ("bank.first_epoch=0", "bank.fraction=1", "bank.exclude=batch_captions", "loss.alpha=5", "loss.beta=5")
    machine = ("trainer.accelerator=cpu", "trainer.precision=32-true", "+trainer.log_every_n_steps=1")
    settings = (*features, *bank, *machine, "trainer.max_epochs=1")
    vsehub("train", *settings, "run_folder=alone", cwd=tmp_path)
    both = [
        vsehub("train", *settings, "run_folder=both", cwd=tmp_path, start=True, **place) for place in srun_variables()
    ]
    assert [process.wait(200) for process in both] == [0, 0], (tmp_path / "output.txt").read_text()
    assert record(tmp_path / "both")["processes"] == 2
    alike(tmp_path / "both", tmp_path / "alone")


@pytest.mark.long
def test_each_job_of_a_sweep_starts_its_own_processes(alone, place, environment):
    sweep = command("-m", f"hydra.sweep.dir={place}/sweep", "trainer.devices=2", "seed=4,3")
    subprocess.run(sweep, check=True, cwd=place, env=environment, capture_output=True)
    runs = {record(file.parent)["seed"]: file.parent for file in (place / "sweep").glob("*/run.json")}
    assert [record(runs[seed])["processes"] for seed in (3, 4)] == [2, 2]
    alike(runs[3], alone)


def test_a_strategy_that_is_not_known_to_give_the_gradients_of_one(run_here):
    assert "trainer.strategy" in run_here("train", *SMALL, *SETTINGS, "+trainer.strategy=fsdp", status=2)


def test_batch_normalisation_is_refused(run_here):
    """A share of a batch has other statistics."""
    settings = ("image_encoder.norm=batch", "trainer.devices=2")
    assert "ImageCNN normalises" in run_here("train", *SMALL, *SETTINGS, *settings, status=2)


def test_a_batch_divides_and_each_process_has_a_pair(monkeypatch):
    pairs = len(RetrievalDataModule(Scenes("tiny"), 12).train_dataloader().dataset)
    for size, processes, named in ((26, 3, "loader.batch_size is 26, "), (pairs + 1, pairs + 1, f"has {pairs} pairs")):
        monkeypatch.setattr("vsehub.training.datamodule.processes", lambda processes=processes: processes)
        with pytest.raises(InputError, match=named):
            RetrievalDataModule(Scenes("tiny"), size).train_dataloader()


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, {"devices": 2, "num_nodes": 2}),
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, {}),
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "6", "SLURM_NNODES": "3"}, {"devices": 2, "num_nodes": 3}),
        ({"SLURM_STEP_ID": "0", "SLURM_NTASKS": "1", "SLURM_NNODES": "3"}, {}),
    ],
)
def test_the_devices_are_those_that_were_started(monkeypatch, variables, place):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launcher_options() == place

"""wandb offline and online: what runs tell it, `wandb sync`, and the view that compares losses."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from broken_off import stopped
from run_files import record
from wandb_server import KEY, WandbServer

if not all(find_spec(name) for name in ("wandb", "wandb_workspaces")):  # not imported before a test needs them
    pytest.skip("wandb is not installed: extra `wandb`", allow_module_level=True)
STUDY = "first-study"


@pytest.fixture(scope="module")
def synced(vsehub, tmp_path_factory):
    """The folder of a sweep over two losses without an account, and the server to which wandb itself sent it later."""
    folder = tmp_path_factory.mktemp("wandb")
    settings = ["loss=sum,hal", f"study={STUDY}", "logger=wandb", "logger.tags=[mine]", "logger.offline=true"]
    settings += ["trainer.max_epochs=1", "+trainer.log_every_n_steps=1", "hydra.sweep.subdir=${hydra:job.num}"]
    vsehub("train", "-m", *settings, "hydra.sweep.dir=sweep", cwd=folder, small=True, NETRC=str(folder / "absent"))
    offline = sorted(folder.glob("sweep/*/wandb/offline-run-*"))
    with WandbServer() as server:
        command = [Path(sys.executable).with_name("wandb"), "sync", *offline]
        done = subprocess.run(command, env=account(server), cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "ERROR" in done.stderr) == (0, False), done.stderr
    return folder / "sweep", server


def account(server):
    """Environment variables of somebody who is signed in."""
    return {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}


def dashboard(vsehub, cwd, server=None, *settings, status=0):
    """Run the command; what it said and the file that it wrote."""
    signed_in = {} if server is None else account(server)
    done = vsehub("wandb-dashboard", *settings, cwd=cwd, status=status, NETRC=str(cwd / "absent"), **signed_in)
    written = cwd / "wandb-dashboard.json"
    return done.err, json.loads(written.read_text()) if written.is_file() else None


def values(config):
    """wandb keeps each top-level value of a configuration in an envelope."""
    return {key: one["value"] for key, one in json.loads(config).items()}


def test_what_wandb_shows_is_what_the_records_say(synced):
    folder, server = synced
    for number, label in enumerate(("sum", "hal")):
        told = record(folder / str(number))
        (name,) = server.runs.keys() & {told["wandb"]["id"]}
        run, summary = server.runs[name], last_line(server, name, "wandb-summary.json")
        config = values(run["config"])
        assert (run["groupName"], run["tags"], config["label"]) == (STUDY, ["mine"], label)
        assert config["loss"] == told["config"]["loss"]
        assert {name: summary[name] for name in told["metrics"]} == pytest.approx(told["metrics"])
        assert summary["best/val/rsum"] == told["best"]["val/rsum"]


def last_line(server, run, name):
    return {key: value for line in server.files[run, name] for key, value in line.items()}


@pytest.mark.long
def test_a_stopped_run_continues_in_its_own(vsehub, tmp_path):
    folder, offline = tmp_path / "run", {"NETRC": str(tmp_path / "absent")}
    settings = ("logger=wandb", "logger.offline=true", "trainer.max_epochs=1", "hydra.run.dir=run")
    vsehub("train", *settings, cwd=tmp_path, small=True, **offline)
    begun = record(stopped(folder))["wandb"]["id"]
    vsehub("train", "resume=run", "trainer.max_epochs=2", cwd=tmp_path, **offline)
    assert record(folder)["wandb"]["id"] == begun
    assert {path.name.rpartition("-")[2] for path in (folder / "wandb").glob("offline-run-*")} == {begun}


def test_the_view_shows_what_runs_log(synced):
    """Every metric and setting of the view is one that the synced runs have under that very name."""
    from vsehub.training.wandb_view import comparison, sent

    spec = sent(comparison(None, "vsehub", None))["spec"]
    _, server = synced
    logged = set().union(*(last_line(server, run, "wandb-summary.json") for run in server.runs))
    shown = [panel for part in spec["section"]["panelBankConfig"]["sections"] for panel in part["panels"]]
    names = {name for one in shown for name in one["config"].get("metrics", [])}
    columns = [column["accessor"].split(":", 1) for one in shown for column in one["config"].get("columns", [])]
    names |= {name for kind, name in columns if kind == "summary"}
    assert {name.removeprefix("summary_metrics.") for name in names} <= logged
    assert {"val/rsum", "val/hubness/hs_sum", "summary_metrics.test/t2i/r1"} <= names
    config = next(one for run in server.runs.values() if (one := values(run["config"]))["label"] == "hal")
    settings = [name.replace(".value.", ".") for kind, name in columns if kind == "config"]
    assert settings == ["loss.gamma", "loss.epsilon", "bank.k"]
    assert {"gamma", "epsilon"} <= config["loss"].keys()
    assert {key["name"].removesuffix(".value") for key in spec["section"]["runSets"][0]["grouping"]} <= set(config)


def test_offline_writes_what_online_sends(vsehub, tmp_path):
    """But for the random ids of panels. The view is renewed by its id; a refused key ends in a line."""
    settings = ["project=things", f"study={STUDY}", "overwrite=true"]
    _, offline = dashboard(vsehub, tmp_path, None, *settings, "offline=true")
    assert (offline["url"], offline["view"]["entity"]) == (None, None)
    with WandbServer() as server:
        _, online = dashboard(vsehub, tmp_path, server, *settings)
        _, renewed = dashboard(vsehub, tmp_path, server, *settings, f"view={online['url'][-11:]}")
    assert online["url"].startswith(f"{server.url}/me/things?nw=")
    assert renewed["url"] == online["url"]
    first, second = server.views
    assert online["view"]["spec"] == first["spec"]
    assert without_ids(first["spec"]) == without_ids(offline["view"]["spec"])
    assert (first.get("id"), second["id"]) == (None, "VmlldzoxMjM=")
    filters = first["spec"]["section"]["runSets"][0]["filters"]["filters"]
    assert [(one["key"]["name"], one["value"]) for one in filters] == [("group", STUDY)]
    (tmp_path / "wandb-dashboard.json").unlink()
    with WandbServer(refuse=True) as server:
        said, written = dashboard(vsehub, tmp_path, server, status=2)
    assert (written, "offline=true" in said, "Traceback" in said) == (None, True, False)


def without_ids(spec):
    if isinstance(spec, dict):
        return {key: without_ids(value) for key, value in spec.items() if key not in ("__id__", "id")}
    return [without_ids(one) for one in spec] if isinstance(spec, list) else spec

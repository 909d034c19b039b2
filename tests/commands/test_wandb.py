"""wandb offline: a run that continues, and the view that compares losses. The table of settings looks at the logger."""

import json
from importlib.util import find_spec

import pytest
from broken_off import stopped
from run_files import record, rows

from vsehub.recipes import flatten

if not all(find_spec(name) for name in ("wandb", "wandb_workspaces")):  # not imported before a test needs them
    pytest.skip("wandb is not installed: extra `wandb`", allow_module_level=True)


@pytest.mark.long
def test_a_stopped_run_continues_in_its_own(vsehub, tmp_path):
    folder, offline = tmp_path / "run", {"NETRC": str(tmp_path / "absent")}
    settings = ("logger=wandb", "logger.offline=true", "trainer.max_epochs=1", "hydra.run.dir=run")
    vsehub("train", *settings, cwd=tmp_path, small=True, **offline)
    begun = record(stopped(folder))["wandb"]["id"]
    vsehub("train", "resume=run", "trainer.max_epochs=2", cwd=tmp_path, **offline)
    assert record(folder)["wandb"]["id"] == begun
    assert {path.name.rpartition("-")[2] for path in (folder / "wandb").glob("offline-run-*")} == {begun}


def test_the_view_shows_what_runs_log(trained, run_here, tmp_path):
    """Every metric and setting of the view is one that a run has under that very name; runs are those of the study."""
    run_here("wandb-dashboard", "project=things", "study=mine", "offline=true")
    written = json.loads((tmp_path / "wandb-dashboard.json").read_text())
    view = written["view"]["spec"]["section"]
    assert (written["url"], written["view"]["project"]) == (None, "things")
    run_record = record(trained)
    logged = {*rows(trained)[0], *run_record["metrics"], "best/val/rsum"}
    shown = [panel for part in view["panelBankConfig"]["sections"] for panel in part["panels"]]
    names = {name for panel in shown for name in panel["config"].get("metrics", [])}
    columns = [column["accessor"].split(":", 1) for panel in shown for column in panel["config"].get("columns", [])]
    names |= {name for kind, name in columns if kind == "summary"}
    assert {name.removeprefix("summary_metrics.") for name in names} <= logged
    assert {"val/rsum", "val/hubness/hs_sum", "summary_metrics.test/t2i/r1"} <= names
    settings = {name.replace(".value.", ".") for kind, name in columns if kind == "config"}
    assert settings == {"loss.gamma", "loss.epsilon", "bank.k"} <= flatten(run_record["config"]).keys()
    groups = {key["name"].removesuffix(".value") for key in view["runSets"][0]["grouping"]}
    assert groups == {"dataset", "architecture", "label"} <= run_record.keys()
    filters = view["runSets"][0]["filters"]["filters"]
    assert [(condition["key"]["name"], condition["value"]) for condition in filters] == [("group", "mine")]

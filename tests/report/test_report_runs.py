"""Reading run folders: what is found, and what is said about what cannot be read."""

import json
import os

import pytest

from vsehub.checks import InputError
from vsehub.report.build import build_report
from vsehub.report.runs import find_runs, read_runs


def test_runs_are_found_below_parents_once_and_links_are_not_followed(tmp_path, write_run):
    first = write_run(seed=0, folder="sweep/0")
    second = write_run(seed=1, folder="sweep/1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(first, elsewhere / "link")
    assert find_runs([tmp_path / "runs", first, tmp_path / "runs" / "sweep"]) == [first, second]
    assert [run.path for run in read_runs([tmp_path / "runs"])] == ["0", "1"]
    with pytest.raises(InputError, match=r"run\.json.*elsewhere"):
        find_runs([elsewhere])


def test_no_folder_or_an_absent_one_is_refused(tmp_path):
    with pytest.raises(InputError, match="no run folders"):
        find_runs([])
    with pytest.raises(InputError, match="no such file or folder"):
        find_runs([tmp_path / "absent"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema": 2, "na', "cut short"),
        ("", "cut short"),
        ("[1]", "expected a JSON object"),
        ('{"schema": 1}', "a run's record, is of version 1 of its format"),
        ('{"schema": 2, "name": "x"}', "lacks status"),
        ("[" * 100_000, "is not whole JSON"),
    ],
)
def test_an_unusable_run_json_is_named(write_run, text, message):
    path = write_run()
    (path / "run.json").write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_runs([path])
    assert str(path / "run.json") in str(caught.value)


def test_an_unusable_evaluation_is_named(write_run):
    path = write_run()
    (path / "evaluations" / "broken.json").write_text("{")
    with pytest.raises(InputError, match=r"broken\.json.*evaluate the run again"):
        read_runs([path])


@pytest.mark.parametrize("changed", [{"ensemble": ["hal"]}, {"ensemble": [{"loss": "hal"}]}, {"metrics": [1.0]}])
def test_an_evaluation_that_was_changed_by_hand(write_run, changed):
    path = write_run()
    file = sorted((path / "evaluations").glob("*.json"))[0]
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(InputError, match=r"an ensemble without labels|metrics is of another type") as caught:
        read_runs([path])
    assert str(file) in str(caught.value)


@pytest.mark.usefixtures("undrawn")
def test_a_run_killed_at_once_is_noted_not_dropped(tmp_path, write_run):
    write_run("max", 0)
    killed = write_run("hal", 1, rsums=(), status="running", name="killed", data={}, config={}, best=None)
    (killed / "metrics.csv").unlink()
    write_run("hal", 2, rsums=(), name="unevaluated")
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    for file in ("table.md", "index.html"):
        text = files[file].read_text()
        assert "unfinished, in no table: killed (killed, status running, no epoch logged)" in text
        assert "not evaluated, in no table: unevaluated (unevaluated, status finished, last epoch logged 3)" in text


def test_a_report_of_nothing_but_unfinished_runs(tmp_path, write_run):
    write_run(rsums=(), status="failed")
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    assert "No run was evaluated." in files["table.md"].read_text()
    assert "figures/rsum-over-epochs.png" in files

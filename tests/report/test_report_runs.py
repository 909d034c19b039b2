"""Reading run folders: which are found, and how a file that cannot be read is named."""

import json
import os

import pytest

from vsehub.checks import InputError
from vsehub.report.runs import find_runs, read_runs


def test_runs_are_found_below_parents_once_and_links_are_not_followed(tmp_path, write_run):
    first = write_run(seed=0, folder="sweep/0")
    second = write_run(seed=1, folder="sweep/1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(first, elsewhere / "link")
    assert find_runs([tmp_path / "runs", first, tmp_path / "runs" / "sweep"]) == [first, second]
    assert [run.path for run in read_runs([tmp_path / "runs"])] == ["0", "1"]
    for folders, named in (([elsewhere], "elsewhere"), ([tmp_path / "absent"], "absent"), ([], "no runs")):
        with pytest.raises(InputError, match=named):
            find_runs(folders)


@pytest.mark.parametrize("text", ['{"schema": 2, "na', "", "[1]", '{"schema": 1}', '{"schema": 2, "name": "x"}'])
def test_an_unusable_run_json_is_named(write_run, text):
    path = write_run()
    (path / "run.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_runs([path])
    assert str(path / "run.json") in str(caught.value)


@pytest.mark.parametrize("changed", [None, {"metrics": [1.0]}])
def test_an_unusable_evaluation_is_named(write_run, changed):
    path = write_run()
    (file,) = (path / "evaluations").glob("*.json")
    file.write_text("{" if changed is None else json.dumps(json.loads(file.read_text()) | changed))
    with pytest.raises(InputError) as caught:
        read_runs([path])
    assert str(file) in str(caught.value)


def test_one_protocol_of_two_sizes_is_refused(tmp_path, write_run, make_evaluation):
    write_run(seed=0)
    write_run(seed=1, evaluations=[make_evaluation(300.0, fold_images=100, folds=5)])
    with pytest.raises(InputError, match="protocol single"):
        read_runs([tmp_path / "runs"])

"""Reading run folders: which are found, and how a file that cannot be read is named."""

import json
import os

import pytest

from vsehub.checks import InputError
from vsehub.report.runs import find_runs, read_runs


def test_runs_are_found_below_parents_once_and_links_are_not_followed(tmp_path, write_run):
    first, second = (write_run(seed=seed, folder=f"sweep/{seed}") for seed in (0, 1))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.symlink(first, elsewhere / "link")
    assert find_runs([tmp_path / "runs", first, tmp_path / "runs" / "sweep"]) == [first, second]
    assert [run.path for run in read_runs([tmp_path / "runs"])] == ["0", "1"]
    for folders, named in (([elsewhere], "elsewhere"), ([tmp_path / "absent"], "absent"), ([], "no runs")):
        with pytest.raises(InputError, match=named):
            find_runs(folders)


EVALUATION = "evaluations/test-nns-0.json"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("run.json", text) for text in ('{"schema": 2, "na', "", "[1]", '{"schema": 1}', '{"schema": 2}')),
        ("metrics.csv", "epoch\nmany"),
        (EVALUATION, "{"),
        (EVALUATION, {"metrics": [1.0]}),
        *((EVALUATION, {"contributions": parts}) for parts in ([1.0], [1.0] * 499 + ["2"], [float("nan")] * 500)),
    ],
)
def test_an_unusable_file_is_named(write_run, name, text):
    file = write_run() / name
    file.write_text(text if isinstance(text, str) else json.dumps(json.loads(file.read_text()) | text))
    with pytest.raises(InputError) as caught:
        read_runs([file.parents[name.count("/")]])
    assert str(file) in str(caught.value)


def test_one_protocol_of_two_sizes_is_refused(tmp_path, write_run, make_evaluation):
    write_run(seed=0)
    write_run(seed=1, evaluations=[make_evaluation(300.0, fold_images=100, folds=5)])
    with pytest.raises(InputError, match="protocol single"):
        read_runs([tmp_path / "runs"])

"""`vsehub report ... examples=RUN`: hubs and answers are those that evaluation measures; bad input is told."""

import hashlib
import json
import re
import shutil

import pytest
from checkpoint_files import changed
from html_links import Links, assert_self_contained

from vsehub.cli.examples import best_run


@pytest.fixture
def report(run_here, tmp_path, undrawn):
    """A function that runs `vsehub report` and returns its page, or what it says when it fails."""

    def run(*arguments, status=0):
        said = run_here("report", *arguments, "out=page", "overwrite=true", status=status)
        return said if status else (tmp_path / "page" / "index.html").read_text()

    return run


@pytest.fixture
def copied(trained, tmp_path):
    """A function that copies the run under another name, with other facts in its run.json."""

    def copy(name, **facts):
        folder = tmp_path / "runs" / name
        shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("last.ckpt"))
        record = json.loads((folder / "run.json").read_text()) | facts
        (folder / "run.json").write_text(json.dumps(record))
        return folder

    return copy


def recorded(folder):
    """Have a run's record name the checkpoint that is there, as after a training."""
    record = json.loads((folder / "run.json").read_text())
    best = (folder / "checkpoints" / "best.safetensors").read_bytes()
    record["best"]["sha256"] = hashlib.sha256(best).hexdigest()
    (folder / "run.json").write_text(json.dumps(record))


def measured(folder):
    """The metrics of the evaluation in a folder."""
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())["metrics"]


def test_what_the_page_says_is_what_evaluation_measures(report, run_here, trained, tmp_path):
    page = report(trained, f"examples={trained}", "criterion=is", "reference=train")
    for name in ("nns", "is"):
        checkpoint = f"checkpoint={trained}/checkpoints/best.safetensors"
        run_here("evaluate", checkpoint, f"criterion={name}", "reference=train", f"out={name}")
    plain, corrected = (measured(tmp_path / name) for name in ("nns", "is"))
    assert plain != corrected
    text = assert_self_contained(page).text
    assert "hal+mb, seed 3, criterion is (beta 30.0), inductive (reference: all training queries)" in text
    for side, query, item, queries, items in (
        ("i2t", "image", "caption", 32, 160),
        ("t2i", "caption", "image", 160, 32),
    ):
        largest = [round(one[f"hubness/{side}/largest_hub_10"]) for one in (plain, corrected)]
        assert f"{queries} {query}s, {items} {item}s; a fair share is {queries * 10 / items:.3g} {query}s." in text
        assert f"{query}s that have the largest hub among their 10 nearest {largest[0]} {largest[1]}" in text
        never = [round(items * one[f"hubness/{side}/antihub_rate_10"]) for one in (plain, corrected)]
        shares = " ".join(f"{count} ({100 * count / items:.1f} %)" for count in never)
        assert f"{item}s that no {query} finds, of {items} {shares}" in text
        right = [one[f"{side}/r1"] for one in (plain, corrected)]
        counts = [round(queries * share / 100) for share in right]
        shares = " ".join(f"{count} ({share:.1f} %)" for count, share in zip(counts, right, strict=True))
        assert f"{query}s whose first {item} is right, of {queries} {shares}" in text
        turned = [re.search(rf"{query}s that became {way} (\d+)", text)[1] for way in ("right", "wrong")]
        assert int(turned[0]) - int(turned[1]) == counts[1] - counts[0]
    assert page.count('class="thumb" src="data:image/jpeg') >= 12 + 1
    turned = re.findall(r"<h5>(nns|is)</h5><ol.*?>\n<li( class=\"right\")?>", page)
    headings = [way == "wrong to right" for way, n in re.findall(r"From (.*?): (\d+) of", page) for _ in range(int(n))]
    assert len(headings) > 0
    assert [bool(right) for _, right in turned] == [after == won for won in headings for after in (False, True)]


def test_two_runs_and_what_differs_between_them(report, copied, tmp_path):
    folder, other = copied("hal", label="hal"), copied("sum", label="sum")
    best = other / "checkpoints" / "best.safetensors"
    changed(best, best, lambda _, weights: weights["text_encoder.words.weight"].mul_(-1))
    recorded(other)
    text = Links(report("runs", f"examples={folder}", f"against={other}")).text
    assert "Hubs and answers: sum → hal" in text
    assert "sum sum, seed 3, criterion nns hal hal, seed 3, criterion nns" in text
    assert re.search("From (wrong to right|right to wrong)", text)
    same = copied("again", label="hal")
    text = Links(report("runs", f"examples={folder}", f"against={same}", "criterion=csls")).text
    assert "Hubs and answers: again → hal" in text, "runs of one name are told apart by their folders"
    assert text.count("No image turned") == text.count("No caption turned") == 2
    changed(best, best, lambda description, _: description["config"]["data"].update(seed=77))
    recorded(other)
    said = report("runs", f"examples={folder}", f"against={other}", status=2)
    assert "compare runs on the same data" in said


def test_the_best_run_is_that_of_validation(copied, report, tmp_path):
    for number, rsum in enumerate((90.0, 120.0, 100.0, 200.0)):
        folder = copied(f"run-{number}", best={"epoch": 1, "val/rsum": rsum})
    (folder / "checkpoints" / "best.safetensors").unlink()
    assert best_run([tmp_path / "runs"]).name == "run-1"
    copied("other", dataset="coco")
    assert "several data sets (coco, scenes)" in report("runs", "examples=true", status=2)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["criterion=csls"], "criterion has no effect without examples"),
        (["data.seed=1"], "data has no effect without examples"),
        (["examples=nowhere"], "examples: no such file or folder: nowhere"),
        (["examples={run}", "criterion=nns"], "criterion=nns is the plain ranking itself"),
        (["examples={run}", "against={run}"], "is the run of examples itself"),
        (["examples={run}", "criterion=csls+rgm", "reference=train"], "no inductive form"),
        (["examples={run}", "split=train", "reference=train"], "the reference holds the queries themselves"),
        (["examples={run}", "images={run}/run.json"], "is a file; give the folder"),
        (["examples={run}/checkpoints"], "is not a run folder"),
    ],
)
def test_bad_input_is_told(report, trained, arguments, told):
    assert told in report(trained, *(one.format(run=trained) for one in arguments), status=2)

"""`vsehub evaluate checkpoint=[A,B]`."""

import json
import shutil

import pytest
import torch
from run_files import record

from vsehub import load


@pytest.fixture(scope="module")
def runs(trained, vsehub, tmp_path_factory):
    """Two runs on the same data whose words are not numbered alike, and a copy that names other data."""
    folder = tmp_path_factory.mktemp("ensemble")
    shutil.copytree(trained, folder / "hal")
    first = folder / "hal" / "checkpoints" / "best.safetensors"
    shutil.copy(first, first.with_name("again.safetensors"))
    words = ["loader.min_count=30", "text_encoder=text_gru", "text_encoder.cell=lstm", "similarity=order"]
    vsehub("train", "loss=sum", *words, "trainer.max_epochs=3", "hydra.run.dir=sum", cwd=folder, small=True)
    other = shutil.copytree(folder / "sum", folder / "other") / "run.json"
    data = record(folder / "sum")["data"]
    data["val"]["fingerprint"] = "x"
    other.write_text(json.dumps(record(folder / "sum") | {"data": data}))
    shutil.copy(folder / best("sum"), folder / "alone.safetensors")
    return folder


def best(run, name="best"):
    return f"{run}/checkpoints/{name}.safetensors"


def ensemble(runs, folder, of=""):
    (path,) = (runs / folder).glob(f"test-single-nns{of}-ensemble-of-2-*.json")
    return json.loads(path.read_text())


def test_a_model_with_its_copy_gives_its_own_figures(runs, vsehub):
    vsehub("evaluate", f"checkpoint=[{best('hal')},{best('hal', 'again')}]", cwd=runs)
    evaluations = runs / "hal" / "evaluations"
    (single,) = [
        json.loads(path.read_text()) for path in evaluations.glob("test-single-nns-*") if "ens" not in path.name
    ]
    both = ensemble(runs, "hal/evaluations")
    assert both["metrics"] == single["metrics"]
    assert both["histograms"] == single["histograms"]
    assert [member["checkpoint"] for member in both["ensemble"]] == [
        str((runs / best("hal", name)).resolve()) for name in ("best", "again")
    ]


def test_two_models_rank_by_the_mean_of_their_scores_each_with_its_own_words(runs, vsehub):
    vsehub("evaluate", f"checkpoint=[{best('hal')},{best('sum')}]", "out=out", cwd=runs)
    models = [load(runs / best(name), device="cpu") for name in ("hal", "sum")]
    assert len(models[0].vocabulary) != len(models[1].vocabulary)
    encoded = [model.encode("test") for model in models]
    with torch.no_grad():
        scores = sum(model.similarity(split.images, split.texts) for model, split in zip(models, encoded, strict=True))
    ranks = (scores > scores[encoded[0].pairs[:, 0], torch.arange(160)]).sum(dim=0)
    evaluation = ensemble(runs, "out")
    for k in (1, 5, 10):
        assert evaluation["metrics"][f"t2i/r{k}"] == pytest.approx(100 * (ranks < k).float().mean().item())
    assert [member["label"] for member in evaluation["ensemble"]] == ["hal+mb", "sum"]


def test_a_fitted_inductive_criterion_and_the_report(runs, vsehub):
    settings = ["criterion=is", "reference=train", "tune=true"]
    said = vsehub("evaluate", f"checkpoint=[{best('sum')},{best('hal')}]", *settings, cwd=runs).out
    (path,) = (runs / "sum" / "evaluations").glob("test-single-is-*ensemble*")
    evaluation = json.loads(path.read_text())
    assert f"chosen on val: beta {evaluation['parameters']['beta']}" in said
    assert (evaluation["reference"], evaluation["tuned"]["split"]) == ("inductive", "val")
    vsehub("report", "sum", "hal", "out=page", cwd=runs)
    assert "is, ensemble of 2 (sum + hal+mb)" in (runs / "page" / "table.md").read_text()


def test_what_is_no_ensemble_is_refused(runs, run_here):
    files = {name: runs / best(name) for name in ("hal", "sum", "other")}
    for checkpoints, settings, named in (
        ([files["hal"], runs / "hal" / ".." / best("hal")], [], "twice"),
        ([files["hal"], files["other"]], [], "different data"),
        ([files["hal"], runs / "alone.safetensors"], [], "run.json"),
        ([], [], "empty list"),
        ([files["hal"], files["sum"]], ["member_weights=[1,2,3]"], "member_weights is [1, 2, 3]"),
        ([files["sum"]], ["member_weights=[1]"], "member_weights"),
    ):
        paths = f"checkpoint=[{','.join(map(str, checkpoints))}]"
        assert named in run_here("evaluate", paths, *settings, "out=refused", status=2), named


@pytest.mark.long
def test_weights_are_given(runs, vsehub):
    both = f"checkpoint=[{best('hal')},{best('sum')}]"
    vsehub("evaluate", both, "member_weights=[0,2]", "out=weights", cwd=runs)
    vsehub("evaluate", f"checkpoint={best('sum')}", "out=alone", cwd=runs)
    (alone,) = [json.loads(path.read_text()) for path in (runs / "alone").glob("*.json")]
    weighted = ensemble(runs, "weights")
    assert weighted["metrics"] == alone["metrics"]
    assert weighted["shares"] == [0, 1]

"""`vsehub evaluate checkpoint=[A,B]` through the console script."""

import json
import shutil

import pytest
import torch

from vsehub import load
from vsehub.criteria import NearestNeighbor
from vsehub.evaluation import Protocol
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.evaluate import evaluate
from vsehub.types import Similarity


@pytest.fixture(scope="module")
def runs(trained, vsehub, tmp_path_factory):
    """Two runs on the same data whose words are not numbered alike, and one on other data."""
    folder = tmp_path_factory.mktemp("ensemble")
    shutil.copytree(trained, folder / "hal")
    first = folder / "hal" / "checkpoints" / "best.safetensors"
    shutil.copy(first, first.with_name("again.safetensors"))
    words = ["loader.min_count=30", "text_encoder=text_lstm", "similarity=order"]
    vsehub("train", "loss=sum", *words, "trainer.max_epochs=3", "hydra.run.dir=sum", cwd=folder, small=True)
    vsehub("train", "loss=sum", "data.seed=7", "trainer.max_epochs=1", "hydra.run.dir=other", cwd=folder, small=True)
    return folder


def best(run, name="best"):
    return f"{run}/checkpoints/{name}.safetensors"


def ensemble(runs, folder, of=""):
    (path,) = (runs / folder).glob(f"test-single-nns{of}-ensemble-of-2-*.json")
    return json.loads(path.read_text())


def test_a_model_with_its_copy_gives_its_own_figures(runs, vsehub):
    done = vsehub("evaluate", f"checkpoint=[{best('hal')},{best('hal', 'again')}]", cwd=runs)
    evaluations = runs / "hal" / "evaluations"
    (own,) = [json.loads(path.read_text()) for path in evaluations.glob("test-single-nns-*") if "ens" not in path.name]
    both = ensemble(runs, "hal/evaluations")
    assert both["metrics"] == own["metrics"]
    assert both["histograms"] == own["histograms"]
    assert "ensemble of 2" in done.out
    assert [member["checkpoint"] for member in both["ensemble"]] == [
        str((runs / best("hal", name)).resolve()) for name in ("best", "again")
    ]
    assert "ensemble" not in own


def test_two_models_rank_by_the_mean_of_their_scores_each_with_its_own_words(runs, vsehub):
    vsehub("evaluate", f"checkpoint=[{best('hal')},{best('sum')}]", "out=out", cwd=runs)
    matrices, sizes = [], set()
    for name in ("hal", "sum"):
        model = load(runs / best(name), device="cpu")
        sizes.add(len(model.vocabulary))
        encoded = model.encode("test")
        with torch.no_grad():
            matrices.append(model.similarity(encoded.images, encoded.texts))
    assert len(sizes) == 2

    class Given(Similarity):
        takes = "vectors"

        def forward(self, images, texts):
            return torch.stack(matrices).mean(dim=0)[images[:, 0]][:, texts[:, 0]]

    numbers = EncodedSplit(torch.arange(32)[:, None], torch.arange(160)[:, None], encoded.image_index)
    expected = evaluate(numbers, Given(), NearestNeighbor(), Protocol("single"))
    assert ensemble(runs, "out")["metrics"] == pytest.approx(expected.metrics)
    assert [(member["label"], member["seed"]) for member in ensemble(runs, "out")["ensemble"]] == [
        ("hal+mb", 3),
        ("sum", 0),
    ]


def test_a_fitted_inductive_criterion_and_the_report(runs, vsehub):
    settings = ["criterion=is", "reference=train", "tune=true"]
    said = vsehub("evaluate", f"checkpoint=[{best('sum')},{best('hal')}]", *settings, cwd=runs).out
    (path,) = (runs / "sum" / "evaluations").glob("test-single-is-*ensemble*")
    record = json.loads(path.read_text())
    assert f"criterion is (chosen on val: beta {record['parameters']['beta']}), ensemble of 2 (inductive" in said
    assert (record["reference"], record["tuned"]["split"]) == ("inductive", "val")
    vsehub("report", "sum", "hal", "out=page", cwd=runs, UNDRAWN="1")
    lines = (runs / "page" / "table.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if line.startswith("|")]
    criteria = [(row[1], row[2].split(" (")[0]) for row in rows]
    assert criteria.count(("sum", "nns")) == 1
    assert ("sum", "is, ensemble of 2") in criteria
    assert any("(sum + hal+mb)" in row[2] for row in rows)


@pytest.mark.parametrize(
    ("checkpoints", "message"),
    [
        ("[hal/checkpoints/best.safetensors,hal/evaluations/../checkpoints/best.safetensors]", "is given twice"),
        (
            "[hal/checkpoints/best.safetensors,other/checkpoints/best.safetensors]",
            "trained on different data",
        ),
        ("[hal/checkpoints/best.safetensors,alone.safetensors]", "run.json"),
        ("[hal/checkpoints/best.safetensors,absent.safetensors]", "no such file or folder: absent.safetensors"),
        ("[]", "checkpoint is an empty list"),
    ],
    ids=["twice", "other data", "no run", "absent", "empty"],
)
def test_what_is_no_ensemble_is_refused(checkpoints, message, runs, vsehub):
    shutil.copy(runs / best("sum"), runs / "alone.safetensors")
    refused = vsehub("evaluate", f"checkpoint={checkpoints}", "out=refused", cwd=runs, status=2)
    assert message in refused.err
    assert not (runs / "refused").exists()


@pytest.mark.long
def test_weights_are_given_or_chosen_on_validation(runs, vsehub):
    both = f"checkpoint=[{best('hal')},{best('sum')}]"
    vsehub("evaluate", both, "member_weights=[0,2]", "out=weights", cwd=runs)
    vsehub("evaluate", f"checkpoint={best('sum')}", "out=alone", cwd=runs)
    (alone,) = [json.loads(path.read_text()) for path in (runs / "alone").glob("*.json")]
    given = ensemble(runs, "weights")
    assert given["metrics"] == alone["metrics"]
    assert given["shares"] == [0, 1]
    vsehub("evaluate", both, "member_weights=val", "out=chosen", cwd=runs)
    assert sum(ensemble(runs, "chosen")["shares"]) == pytest.approx(1)
    for settings, message in (
        ((both, "member_weights=[1,2,3]"), "member_weights is [1, 2, 3]"),
        ((both, "member_weights=test"), "expected a number"),
        ((both, "member_weights=val", "split=val"), "is what member_weights=val chooses on"),
        ((f"checkpoint={best('sum')}", "member_weights=[1]"), "member_weights is for an ensemble"),
    ):
        assert message in vsehub("evaluate", *settings, cwd=runs, status=2).err

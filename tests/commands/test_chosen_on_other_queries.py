"""What is tuned or chosen is what is best on the queries to choose by, never what is best on the measured ones."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F

from vsehub.criteria import CSLS, InvertedSoftmax
from vsehub.data import pairs_by_caption
from vsehub.encoders import ImageFeatures, TextFeatures
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.models import EncodedSplit
from vsehub.models.checkpoint import write_checkpoint
from vsehub.similarities import Cosine

DIM = 16


def unit(rows):
    return F.normalize(rows, dim=1)


def table(path, pairs):
    path.write_text("\n".join(["query,item", *(f"{query},{item}" for query, item in pairs)]) + "\n")
    return path.name


def spread(seed, hubs=1.0, offset=0.0, noise=1.0):
    """60 images, some of them hubs, and two texts beside each; offset: along one axis, so that all scores are high."""
    random = torch.Generator().manual_seed(seed)
    side = torch.full((DIM,), DIM**-0.5)
    images = unit(torch.randn(60, DIM, generator=random)) + hubs * torch.randn(60, 1, generator=random).exp() * side
    texts = unit(images).repeat_interleave(2, dim=0) + noise * torch.randn(120, DIM, generator=random) / DIM**0.5
    shift = offset * F.one_hot(torch.tensor(0), DIM)
    return unit(images) + shift, texts + 0.5 * side + shift


def rsum(criterion, images, texts):
    split = EncodedSplit(images, texts, torch.from_numpy(pairs_by_caption(torch.arange(120) // 2)))
    return evaluate(split, Cosine(), criterion, Protocol("single")).metrics["rsum"]


@pytest.fixture
def evaluated(run_here, tmp_path):
    """A function that evaluates, on test, a model whose encodings are those given for each split; the record."""

    def run(splits, *settings):
        images, texts = (torch.cat(side) for side in zip(*splits.values(), strict=True))
        data = {"_target_": "vsehub.data.Pairs", "splits": {}}
        for side, vectors in (("images", images), ("texts", texts)):
            data[side] = str(tmp_path / f"{side}.npy")
            np.save(data[side], vectors.numpy())
        for number, name in enumerate(splits):
            rows = range(120 * number, 120 * (number + 1))
            data["splits"][name] = str(tmp_path / table(tmp_path / f"{name}.csv", [(row, row // 2) for row in rows]))
        encoders = {"image_encoder": ImageFeatures([DIM], DIM), "text_encoder": TextFeatures([DIM], DIM)}
        weights = {f"{side}.linear.weight": torch.eye(DIM) for side in encoders}
        weights |= {f"{side}.linear.bias": torch.zeros(DIM) for side in encoders}
        config = {side: {"_target_": f"vsehub.encoders.{type(encoder).__name__}"} for side, encoder in encoders.items()}
        config["image_encoder"] |= {"image_shape": "???", "dim": DIM}
        config["text_encoder"] |= {"text_shape": "???", "dim": DIM}
        config |= {
            "similarity": {"_target_": "vsehub.similarities.Cosine"},
            "data": data,
            "loader": {"max_words": None},
        }
        description = {"config": config, "vocabulary": None, "image_shape": [DIM], "text_shape": [DIM]}
        write_checkpoint(tmp_path / "model.safetensors", weights, description)
        run_here("evaluate", "checkpoint=model.safetensors", "out=out", *settings)
        (path,) = (tmp_path / "out").glob("test-*.json")
        return json.loads(path.read_text())

    return run


@pytest.mark.parametrize("swapped", [False, True])
def test_settings_are_tuned_on_validation(evaluated, swapped):
    """Where scores lie close together a softmax wants another temperature, which loses on the other split."""
    splits = [spread(0), spread(1, offset=2.0)]
    splits = dict(zip(("val", "test"), splits[::-1] if swapped else splits, strict=True))
    rsums = {
        name: {beta: rsum(InvertedSoftmax(beta), *sides) for beta in InvertedSoftmax.GRID["beta"]}
        for name, sides in splits.items()
    }
    best = {name: max(by_beta, key=by_beta.get) for name, by_beta in rsums.items()}
    assert rsums["test"][best["test"]] > rsums["test"][best["val"]] + 5
    evaluation = evaluated(splits, "criterion=is", "tune=true")
    assert evaluation["parameters"]["beta"] == best["val"]
    assert evaluation["tuned"]["rsum"] == pytest.approx(rsums["val"][best["val"]])
    assert evaluation["metrics"]["rsum"] == pytest.approx(rsums["test"][best["val"]])


@pytest.mark.parametrize("swapped", [False, True])
def test_the_criterion_of_an_evaluation_is_chosen_on_validation(evaluated, swapped):
    hubs, none = spread(0), spread(1, hubs=0.0, noise=0.3)
    splits = {"val": none, "test": hubs} if swapped else {"val": hubs, "test": none}
    evaluation = evaluated(splits, "criterion=auto")
    assert (evaluation["parameters"]["criterion"] == "nns") == swapped
    if swapped:
        assert rsum(CSLS(), *hubs) > evaluation["metrics"]["rsum"] + 10


ITEMS = 120


def hubby(count, seed=0):
    """Queries (count, 18) near the first 120 items, of which some are near all of them: corrections gain."""
    random = torch.Generator().manual_seed(5)
    side = torch.full((DIM,), DIM**-0.5)
    items = torch.randn(ITEMS, DIM, generator=random) + 2.5 * torch.randn(ITEMS, 1, generator=random).exp() * side
    items, random = unit(items), torch.Generator().manual_seed(seed)
    wanted = torch.randint(ITEMS, (count,), generator=random)
    queries = unit(items[wanted] + 0.14 * torch.randn(count, DIM, generator=random) + 0.5 * side)
    return F.pad(queries, (0, 2)), wanted, F.pad(items, (0, 2))


def popular(count, seed=0):
    """Queries (count, 18) beside four of 64 further items on a circle, which are asked for often: corrections lose."""
    angles, random = torch.arange(64) * 2 * torch.pi / 64, torch.Generator().manual_seed(seed)
    wanted = torch.randint(4, (count,), generator=random)
    turned = angles[wanted] + 0.02 * torch.randn(count, generator=random)
    circle = [torch.stack([radians.cos(), radians.sin()], dim=1) for radians in (turned, angles)]
    return F.pad(circle[0], (DIM, 0)), wanted + ITEMS, F.pad(circle[1], (DIM, 0))


@pytest.fixture
def reranked(run_here, tmp_path):
    """A function that ranks all items for queries; the record."""

    def rerank(queries, pairs, *settings):
        np.save(tmp_path / "queries.npy", queries.numpy())
        np.save(tmp_path / "items.npy", torch.cat([hubby(1)[2], popular(1)[2]]).numpy())
        files = ("queries=queries.npy", "items=items.npy", f"truth={table(tmp_path / 'truth.csv', pairs)}")
        run_here("rerank", *files, *settings, "out=out", "overwrite=true")
        return json.loads((tmp_path / "out" / "result.json").read_text())

    return rerank


def require_chosen(result, by, measured):
    """Assert that the choice is that of the queries to choose by, and that only the others were measured."""
    assert (result["choice"]["criterion"] == "nns") == (by is popular)
    assert result["choice"]["queries"] == 200
    assert result["truth"]["measured_queries"] == 150
    assert (result["rankings"][0]["truth"]["r1"] > 90) == (measured is popular)


@pytest.mark.parametrize(("by", "measured"), [(hubby, popular), (popular, hubby)])
def test_the_criterion_is_chosen_by_the_queries_of_tune_queries(reranked, tmp_path, by, measured):
    tuning, tuned, _ = by(200, seed=1)
    queries, wanted, _ = measured(150)
    vectors = torch.cat([tuning, queries[:70]]).tolist()  # ranked queries are left out
    ids = [f"q{row}" for row in range(270)]
    rows = pa.table({"id": ids, "embedding": pa.array(vectors, pa.list_(pa.float32(), DIM + 2))})
    pq.write_table(rows, tmp_path / "tune.parquet")
    answers = zip(ids[::-1], torch.cat([tuned, wanted[:70]]).tolist()[::-1], strict=True)  # by id, in another order
    tune = ("tune_queries=tune.parquet", f"tune_truth={table(tmp_path / 'tune.csv', answers)}")
    pairs = list(enumerate(wanted.tolist()))
    require_chosen(reranked(queries, pairs, "criterion=auto", *tune), by, measured)
    if measured is hubby:
        plain, corrected = (
            ranking["truth"]["r1"] for ranking in reranked(queries, pairs, "criterion=csls")["rankings"]
        )
        assert corrected > plain + 5, "what would be chosen by the measured queries wins on them"


def test_the_gain_of_a_choice_is_measured_where_the_own_answer_did_not_choose(reranked, monkeypatch):
    """Each fifth is ranked by what the other four choose, here plain search for one and CSLS for the rest."""
    queries, wanted, _ = hubby(150)
    pairs, folds = list(enumerate(wanted.tolist())), []

    def rule(values):
        folds.append(values.shape[1])
        return 0 if len(folds) == 2 else 1 + CSLS.GRID["k"].index(10)

    monkeypatch.setattr("vsehub.criteria.choose.choose_row", rule)
    result = reranked(queries, pairs, "criterion=auto", "criterion.among=[csls]")
    assert folds == [150, *[120] * 5]
    plain, corrected = result["rankings"]
    assert result["choice"]["criterion"] == corrected["criterion"] == "csls"
    assert result["choice"]["gain"]["queries"] == 150
    gain = corrected["truth"]["r1"] - plain["truth"]["r1"]
    assert 0.6 * gain < result["choice"]["gain"]["r1"] < 0.95 * gain
    assert result["choice"]["held_out"] == pytest.approx(plain["truth"]["r1"] + result["choice"]["gain"]["r1"])

"""The adapters' study: no image in two parts of a fold, a test that knows that folds overlap, a loop that learns."""

from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch


@pytest.fixture(scope="module")
def scripts():
    return {name: import_module(f"experiments.adapters.{name}") for name in ("study", "page")}


@pytest.fixture(scope="module")
def vectors(scripts):
    """60 images of two texts each, in 32 dimensions, with a gap between the modalities."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(60, 32, generator=generator)
    texts = images.repeat_interleave(2, 0) + 1.5 * torch.randn(120, 32, generator=generator) + 2 * torch.eye(32)[0]
    unit = torch.nn.functional.normalize
    return scripts["study"].Vectors(unit(images, dim=1), unit(texts, dim=1), torch.arange(60).repeat_interleave(2))


def test_an_image_and_its_texts_are_in_one_part(scripts, vectors):
    study, tested = scripts["study"], []
    for fold in range(study.FOLDS):
        parts = study.split(vectors, 3, fold)
        assert {name: len(part.images) for name, part in parts.items()} == {"train": 38, "val": 10, "test": 12}
        rows = [tuple(row) for part in parts.values() for row in part.images.tolist()]
        assert len(set(rows)) == 60
        for part in parts.values():
            assert part.index.bincount().tolist() == [2] * len(part.images)
            for image, text in zip(part.images[part.index], part.texts, strict=True):
                row = int((vectors.images == image).all(dim=1).nonzero())
                assert (vectors.texts[2 * row : 2 * row + 2] == text).all(dim=1).any()
        tested += [tuple(row) for row in parts["test"].images.tolist()]
    assert len(set(tested)) == 60, "each image is tested on once a draw"


def test_the_loop_learns_and_repeats_itself(scripts, vectors):
    study = scripts["study"]
    parts = study.split(vectors, 0, 0)
    parts["val"] = parts["train"]  # what the best epoch is chosen by: ten images would choose by luck
    frozen = study.quick_rsum(study.EncodedSplit(*parts["train"]))
    for label, (_, values) in study.OWN.items():
        adapters, rsum, _ = study.trained(parts, label, 0.03, values[1], 10, seed=0)
        assert rsum == study.quick_rsum(parts["train"].adapted(adapters)) > frozen + 5
        assert study.trained(parts, label, 0.03, values[1], 10, seed=0)[1] == rsum
    ranks = [
        (block.argsort(descending=True) == own).nonzero()[0].item()
        for block, own in zip((parts["val"].texts @ parts["val"].images.T), parts["val"].index, strict=True)
    ]
    t2i = sum(100 * np.mean([rank < k for rank in ranks]) for k in (1, 5, 10))
    assert t2i < frozen < t2i + 300


def test_the_error_of_a_difference_knows_that_folds_overlap(scripts):
    """By hand: five folds, two draws; s² (1/10 + 1/4), nine degrees of freedom."""
    values = [5.0, 6, 7, 5, 4, 6, 5, 8, 4, 5]
    cells = [(seed, fold) for seed in range(2) for fold in range(5)]
    rows = [
        {
            "set": "s",
            "model": model,
            "criterion": "nns",
            "seed": seed,
            "fold": fold,
            "images": 100,
            "rsum": base + sign * value,
        }
        for model, base, sign in (("a", 100, 1), ("b", 100, 0))
        for (seed, fold), value in zip(cells, values, strict=True)
    ]
    claim = {"claim": "c", "source": "", "metric": "rsum", "higher": "s, a, nns", "lower": "s, b, nns"}
    expected = pd.DataFrame([claim | {"published_higher": None, "published_lower": None}])
    line = scripts["page"].judged(pd.DataFrame(rows).sample(frac=1, random_state=0), expected).iloc[0]
    error = np.std(values, ddof=1) * np.sqrt(0.1 + 0.25)
    assert line["difference"] == pytest.approx(5.5)
    assert (line["high"] - line["low"]) / 2 == pytest.approx(2.2622 * error, rel=1e-4)  # t of nine degrees, 97.5 %
    assert line["seeds"] == 2
    assert line["outcome"] == "too few seeds"

"""Which runs are seeds of one recipe: those of the same data, wherever these lie."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from vsehub.recipes import affects_results
from vsehub.report.recipes import series_of
from vsehub.report.runs import read_runs

CONF = Path(__file__).parents[2] / "conf"
PATHS = {
    "huggingface": ("folder",),
    "karpathy": ("json", "images"),
    "pairs": ("images", "texts", "pairs", "splits.train", "splits.val", "splits.test"),
    "precomp": ("root",),
    "scenes": (),
    "table": ("table", "images"),
}


@pytest.mark.parametrize(
    ("group", "module", "apart"),
    [
        *((group, "mine", True) for group in ("loss", "criterion", "protocol")),
        ("loss", "vsehub.losses.hal", True),
        ("criterion", "vsehub.criteria.csls", False),
    ],
)
def test_runs_of_different_code_are_not_pooled(tmp_path, write_run, group, module, apart):
    """Of vsehub's own criteria the name counts."""
    for seed in (0, 1):
        write_run(seed=seed, code={group: {module: str(seed), "vsehub.checks": "same"}})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 1 + apart


def test_runs_of_other_teachers_are_not_pooled(tmp_path, write_run):
    teachers = [[{"checkpoint": "best.safetensors", "sha256": digit * 64}] for digit in "aab"]
    runs = read_runs([write_run(seed=seed, teacher=teacher) for seed, teacher in enumerate(teachers)])
    assert len({*series_of(runs).values()}) == 2


@pytest.mark.parametrize("name", [path.stem for path in (CONF / "data").glob("*.yaml")])
def test_seeds_whose_data_have_moved_are_of_one_series(tmp_path, write_run, name):
    """Another class of data, or other columns of a table, are another series."""
    changes = [("_target_", "vsehub.data.Other"), *([("columns.image", "photo")] if name == "table" else [])]
    for seed, (folder, *change) in enumerate((("here",), ("there",), *(("there", *names) for names in changes))):
        node = OmegaConf.load(CONF / "data" / f"{name}.yaml")
        for key, value in [*((path, f"{folder}/{path}") for path in PATHS[name]), *([change] if change else [])]:
            OmegaConf.update(node, key, value)
        write_run(seed=seed, config={"data": OmegaConf.to_container(node), "loss": {"gamma": (60, 60.0)[seed % 2]}})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 1 + len(changes)
    for path in PATHS[name]:
        assert affects_results(f"data.{path}"), "a sweep trains on other files anew"


@pytest.mark.parametrize(("key", "pooled"), [("compile", True), ("embedding_dim", False)])
def test_seeds_of_a_compiled_and_of_an_eager_training_are_of_one_series(tmp_path, write_run, key, pooled):
    for seed, value in enumerate((None, "default")):
        write_run(seed=seed, config={key: value, "loss": {"gamma": 60}})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 2 - pooled

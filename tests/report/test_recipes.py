"""Which runs are seeds of one recipe: those of the same data, wherever these lie."""

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from vsehub.recipes import decides
from vsehub.report.recipes import series_of
from vsehub.report.runs import read_runs

CONF = Path(__file__).parents[2] / "conf"
PATHS = {
    "huggingface": ("folder",),
    "karpathy": ("json", "images"),
    "pairs": ("images", "texts", "pairs", "splits.train", "splits.val", "splits.test", "image_ids", "text_ids"),
    "precomp": ("root",),
    "scenes": ("cache",),
    "table": ("table", "images"),
    "webdataset": ("shards", "splits.train", "splits.val", "splits.test"),
}


def data(name, folder, **changes):
    """The settings of conf/data/NAME.yaml, its paths in a folder."""
    node = OmegaConf.load(CONF / "data" / f"{name}.yaml")
    for key, value in {path: f"{folder}/{path}" for path in PATHS[name]}.items() | changes.items():
        OmegaConf.update(node, key, value)
    return OmegaConf.to_container(node)


@pytest.mark.parametrize("name", PATHS)
def test_seeds_whose_data_have_moved_are_of_one_series(tmp_path, write_run, name):
    assert sorted(PATHS) == sorted(path.stem for path in (CONF / "data").glob("*.yaml"))
    for seed, folder in enumerate(("here", "there", "there")):
        write_run(seed=seed, config={"data": data(name, folder)})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 1
    write_run(seed=3, config={"data": data(name, "there", _target_="vsehub.data.Other")})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 2
    for path in PATHS[name]:
        assert decides(f"data.{path}") == ("cache" not in path), "a sweep trains on other files anew"


def test_the_columns_of_a_table_are_not_its_path(tmp_path, write_run):
    for seed, column in enumerate(("picture", "photo")):
        write_run(seed=seed, config={"data": data("table", "here", **{"columns.image": column})})
    assert len({*series_of(read_runs([tmp_path / "runs"])).values()}) == 2

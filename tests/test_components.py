"""Components whose arguments are objects of one class with settings of their own."""

import pytest
from photo_files import photos, write_table

from vsehub.checks import InputError
from vsehub.components import Components, conf_folder


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_table(tmp_path, photos(2), has_splits=False)
    settings = {
        "_target_": "vsehub.data.Table",
        "table": str(tmp_path / "captions.csv"),
        "images": str(tmp_path / "photos"),
    }
    return settings | {"draw": {"val": 0.0, "test": 0.5}, "pictures": {"size": 8}}


def test_nested_settings_are_built(node):
    components = Components([conf_folder()])
    assert components.build("data", node).load("test").images.shape == (1, 3, 8, 8)
    assert components.build("data", node | {"pictures": None}).load("test").images.shape == (1, 3, 224, 224)
    for inner, message in (
        ({"pictures": 5}, "data.pictures is 5"),
        ({"pictures": {"siez": 5}}, "data.pictures: PictureSettings .*'siez'"),
        ({"pictures": {"size": 0}}, "size is 0"),
        ({"pictures": {"_target_": "vsehub.data.Scenes"}}, "data.pictures is .*vsehub.data.Scenes"),
        ({"draw": {"val": 0.5, "test": 0.5}}, "data.draw.val is 0.5 and test 0.5"),
    ):
        with pytest.raises(InputError, match=message):
            components.build("data", node | inner)

"""Components whose arguments are objects of one class with settings of their own."""

import pytest
from photo_files import photos, write_table

from vsehub.checks import InputError
from vsehub.components import Components, changed, conf_folder, nested, without_own_files
from vsehub.data import Karpathy, PhotoColumns, PictureSettings, Scenes, SplitDraw, Table


@pytest.fixture
def node(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_table(tmp_path, photos(2), has_splits=False)
    given = {
        "_target_": "vsehub.data.Table",
        "table": str(tmp_path / "captions.csv"),
        "images": str(tmp_path / "photos"),
    }
    return given | {"draw": {"val": 0.0, "test": 0.5}, "pictures": {"size": 8, "resize": 8}}


def test_the_annotation_chooses_the_class():
    assert nested(Table) == {"columns": PhotoColumns, "draw": SplitDraw, "pictures": PictureSettings}
    assert nested(Karpathy) == {"pictures": PictureSettings}
    assert nested(dict) == {}


def test_nested_settings_are_built_and_checked(node):
    components = Components([conf_folder()])
    found = components.build("data", node)
    assert found.load("test").images.shape == (1, 3, 8, 8)
    for inner, message in (
        ({"pictures": 5}, "data.pictures is 5; expected settings or null"),
        ({"pictures": {"siez": 5}}, r"data.pictures: PictureSettings has no setting 'siez' \(did you mean size\?\)"),
        ({"pictures": {"size": "a"}}, "data.pictures.size is 'a'; expected a whole number"),
        ({"pictures": {"size": 0}}, "data.pictures.size is 0"),
        (
            {"pictures": {"_target_": "vsehub.data.Scenes"}},
            "data.pictures names a class, vsehub.data.Scenes, where only",
        ),
        ({"draw": {"val": 0.5, "test": 0.5}}, "data.draw.val is 0.5 and test 0.5"),
    ):
        with pytest.raises(InputError, match=message):
            components.build("data", node | inner)
    assert components.build("data", node | {"pictures": None}).load("test").images.shape == (1, 3, 224, 224)


def test_a_checkpoint_does_not_say_where_files_are_written():
    assert without_own_files(Scenes, {"size": "tiny", "cache": "here"}) == {"size": "tiny", "cache": None}
    assert without_own_files(Table, {"table": "a"}) == {"table": "a"}


def test_changes_of_nested_settings_leave_the_others():
    assert changed({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 4}, "e": {"f": 5}}) == {
        "a": {"b": 4, "c": 2},
        "d": 3,
        "e": {"f": 5},
    }
    assert changed({"a": {"b": 1}}, {"a": None}) == {"a": None}

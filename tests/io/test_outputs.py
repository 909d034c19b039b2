"""Folders that commands fill: what is not ours stays, what is ours is replaced only where that is said."""

import json

import pytest

from vsehub.checks import InputError
from vsehub.io.files import MARK, Output

NAMES = ("index.html", "result.json")


def written(folder, **settings):
    out = Output(folder, "a report", NAMES, **settings)
    out.begin([*NAMES, "figures/a.png"])
    (out / "figures").mkdir(exist_ok=True)
    for name in (*NAMES, "figures/a.png"):
        (out / name).write_text(name)
    out.finish()
    return out


def test_ours_is_replaced_only_on_demand(tmp_path):
    folder = tmp_path / "out"
    written(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="overwrite=true"):
        Output(folder, "a report", NAMES)
    again = Output(folder, "a report", NAMES, overwrite=True)
    again.begin(NAMES)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", MARK, "figures"}
    assert not list((folder / "figures").iterdir()), "what the new one does not have goes"


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_ours_is_never_touched(tmp_path, overwrite):
    out = Output(tmp_path, "a report", NAMES, overwrite)
    (tmp_path / "index.html").write_text("mine, made meanwhile")
    for write in (lambda: Output(tmp_path, "a report", NAMES, overwrite), lambda: out.begin(NAMES)):
        with pytest.raises(InputError, match=r"index\.html"):
            write()
    assert (tmp_path / "index.html").read_text() == "mine, made meanwhile"


def test_what_a_kill_left_unfinished_is_replaced(tmp_path):
    out = Output(tmp_path, "a report", NAMES)
    out.begin(NAMES)
    (out / "index.html").write_text("half")
    (tmp_path / ".index.html.1234.part").write_text("half")
    again = Output(tmp_path, "a report", NAMES)
    again.begin(NAMES)
    assert [path.name for path in tmp_path.iterdir()] == [MARK]


def test_other_kinds_versions_and_hostile_marks(tmp_path):
    written(tmp_path / "out")
    with pytest.raises(InputError, match="a gallery"):
        Output(tmp_path / "out", "a gallery", NAMES, overwrite=True)
    for damage in ("", "[]", "[" * 100_000, '{"version": 2, "kind": "a report", "files": [], "finished": true}'):
        (tmp_path / "out" / MARK).write_text(damage)
        with pytest.raises(InputError, match="out"):
            Output(tmp_path / "out", "a report", NAMES, overwrite=True)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    for outside in ("../mine.txt", str(tmp_path / "mine.txt"), "link/mine.txt"):
        mark = {"version": 1, "kind": "a report", "finished": True, "files": [*NAMES, outside]}
        (tmp_path / "out" / MARK).write_text(json.dumps(mark))
        with pytest.raises(InputError, match=r"mine\.txt"):
            Output(tmp_path / "out", "a report", NAMES, overwrite=True).begin(NAMES)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "out" / "index.html").exists(), "nothing is removed before every name is checked"


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below", "", "s3://bucket/x", "/proc/x"):
        with pytest.raises(InputError, match="out"):
            Output(folder, "a report", NAMES)


def test_a_folder_of_others_is_not_written_to_unasked(tmp_path):
    (tmp_path / ".DS_Store").touch()
    Output(tmp_path, "a report", ["index.html"])  # as good as a new one
    (tmp_path / "a.jpg").touch()
    with pytest.raises(InputError, match=r"a\.jpg"):
        Output(tmp_path, "a report", ["index.html"])
    Output(tmp_path, "a report", ["index.html"], overwrite=True).begin(["index.html"])
    assert {path.name for path in tmp_path.iterdir()} == {".DS_Store", MARK, "a.jpg"}
    Output(tmp_path, "a report", ["index.html"])  # the same command goes on

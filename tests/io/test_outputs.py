"""Folders that commands fill: what is not ours stays, what is ours is replaced only where that is said."""

import json

import pytest

from vsehub.checks import InputError
from vsehub.io.files import MARK, Output

SHORT = '{"version": 1, "kind": "a report", "files": 5}'
NAMES = ("index.html", "result.json")


def written(folder, names=(*NAMES, "figures/a.png"), **settings):
    out = Output(folder, "a report", NAMES, **settings)
    with out.transaction():
        for name in names:
            (out / name).parent.mkdir(exist_ok=True)
            (out / name).write_text(f"{name} {settings}")
    return out


def test_ours_is_replaced_only_on_demand(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = tmp_path / "out"
    written(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="overwrite=true"):
        Output(folder, "a report", NAMES)
    written(folder, NAMES, overwrite=True)
    assert {path.name for path in folder.iterdir()} == {"notes.txt", MARK, "figures", *NAMES}
    assert not list((folder / "figures").iterdir()), "what the new one does not have goes"
    assert [record.args for record in caplog.records] == [(folder / "figures" / "a.png",)]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_not_ours_is_never_touched(tmp_path, overwrite):
    out = Output(tmp_path, "a report", NAMES, overwrite)
    (tmp_path / "index.html").write_text("mine, made meanwhile")
    for write in (lambda: Output(tmp_path, "a report", NAMES, overwrite), lambda: out.transaction().__enter__()):
        with pytest.raises(InputError, match=r"index\.html"):
            write()
    assert (tmp_path / "index.html").read_text() == "mine, made meanwhile"


def test_what_a_kill_left_unfinished_is_replaced(tmp_path, monkeypatch):
    """Killed while it writes, and while it moves the files: the same command again, without overwrite."""
    (tmp_path / ".new").mkdir()
    (tmp_path / ".new" / "other.html").write_text("half")
    mark = Output._mark

    def killed(out, names, finished):
        if finished:
            raise KeyboardInterrupt
        mark(out, names, finished)

    monkeypatch.setattr(Output, "_mark", killed)
    with pytest.raises(KeyboardInterrupt):
        written(tmp_path, ["index.html", "other.csv"])
    monkeypatch.undo()
    assert (tmp_path / "other.csv").exists()
    written(tmp_path, NAMES)
    assert {path.name for path in tmp_path.iterdir()} == {MARK, *NAMES}


def test_other_kinds_versions_and_hostile_marks(tmp_path):
    written(tmp_path / "out")
    with pytest.raises(InputError, match="a gallery"):
        Output(tmp_path / "out", "a gallery", NAMES, overwrite=True)
    for damage in ("", "[]", "[" * 100_000, '{"version": 2, "kind": "a report", "files": [], "finished": true}', SHORT):
        (tmp_path / "out" / MARK).write_text(damage)
        with pytest.raises(InputError, match="out"):
            Output(tmp_path / "out", "a report", NAMES, overwrite=True)
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "out" / "link").symlink_to(tmp_path)
    for outside in ("../mine.txt", str(tmp_path / "mine.txt"), "link/mine.txt"):
        mark = {"version": 1, "kind": "a report", "finished": True, "files": [*NAMES, outside]}
        (tmp_path / "out" / MARK).write_text(json.dumps(mark))
        with pytest.raises(InputError, match=r"mine\.txt"):
            written(tmp_path / "out", NAMES, overwrite=True)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert (tmp_path / "out" / "index.html").read_text() == "index.html {}", "every name is checked first"


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
    written(tmp_path, ["index.html"], overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == {".DS_Store", MARK, "a.jpg", "index.html"}

"""What a killed search leaves, and who may take it up."""

import io
import zipfile

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.rerank.parts import Parts

SETTINGS = {"k": 10, "criteria": {"csls": [1, 2.5]}}


def test_parts_come_back_as_they_were(tmp_path):
    pieces = [(torch.tensor([[0.1, -0.0]], dtype=torch.float64), torch.tensor([[2**40, 1]])), (), (torch.eye(2) > 0,)]
    Parts(tmp_path / "parts", SETTINGS).put("some", pieces, 1.25)
    found, seconds = Parts(tmp_path / "parts", dict(reversed(SETTINGS.items()))).get("some")
    assert seconds == 1.25
    assert [len(piece) for piece in found] == [2, 0, 1]
    for ours, theirs in zip(sum(found, ()), sum(pieces, ()), strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs)
    assert Parts(tmp_path / "parts", SETTINGS).get("other") is None


def test_parts_of_another_command(tmp_path):
    folder = tmp_path / "parts"
    Parts(folder, SETTINGS).put("some", [(torch.zeros(1),)], 0.0)
    with pytest.raises(InputError, match=r"holds the unfinished work of another command \(other k\)\. Give that"):
        Parts(folder, SETTINGS | {"k": 5})
    assert Parts(folder, SETTINGS).get("some") is not None, "a refusal must leave them"
    assert Parts(folder, SETTINGS | {"k": 5}, overwrite=True).get("some") is None
    assert not folder.exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / "mine.npz").write_text("precious")
    for overwrite in (False, True):
        with pytest.raises(InputError, match="is in the way"):
            Parts(folder, SETTINGS, overwrite)
    assert (folder / "mine.npz").read_text() == "precious"


@pytest.mark.parametrize("version", ['"version": 2', '"other": 1'])
def test_parts_of_another_version(tmp_path, version):
    folder = tmp_path / "parts"
    Parts(folder, SETTINGS).put("some", [(torch.zeros(1),)], 0.0)
    settings = folder / "settings.json"
    settings.write_text(settings.read_text().replace('"version": 1', version))
    with pytest.raises(InputError, match=r"unfinished work of version (2|None); this vsehub continues version 1"):
        Parts(folder, SETTINGS)
    assert Parts(folder, SETTINGS, overwrite=True).get("some") is None


def test_text_is_no_flag(tmp_path):
    """overwrite=no on a command line is the text "no", which Python counts as true."""
    Parts(tmp_path / "parts", SETTINGS).put("some", [(torch.zeros(1),)], 0.0)
    with pytest.raises(InputError, match="overwrite is 'no'; expected true or false"):
        Parts(tmp_path / "parts", SETTINGS | {"k": 5}, overwrite="no")
    assert Parts(tmp_path / "parts", SETTINGS).get("some") is not None


@pytest.mark.parametrize("name", ["pieces", "0.0", "1.0"])
def test_parts_that_claim_more_than_they_hold_are_computed_again(tmp_path, name):
    """A header of 10^12 numbers, stored and deflated, and 10^12 pieces."""
    parts = Parts(tmp_path / "parts", SETTINGS)
    parts.put("some", [(torch.zeros(3),), (torch.ones(2),)], 0.0)
    whole = dict(np.load(tmp_path / "parts" / "some.part.npz"))
    for save in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "parts" / "some.part.npz", "w", save) as archive:
            for key in whole:
                content = io.BytesIO()
                np.save(content, np.array(10**12) if key == name == "pieces" else whole[key])
                if key == name != "pieces":
                    content = io.BytesIO()
                    header = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
                    np.lib.format.write_array_header_1_0(content, header)
                archive.writestr(f"{key}.npy", content.getvalue())
        assert parts.get("some") is None


def test_killed_before_the_settings_were_written(tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / ".settings.json.0a1b2c3d.part").write_bytes(b"{")
    parts = Parts(tmp_path / "parts", {"a": 1})
    assert not any((tmp_path / "parts").iterdir())
    parts.put("one", [], 0.0)
    assert Parts(tmp_path / "parts", {"a": 1}).get("one") == ([], 0.0)


def test_settings_that_cannot_be_read(tmp_path):
    folder = tmp_path / "parts"
    Parts(folder, SETTINGS).put("some", [(torch.zeros(1),)], 0.0)
    (folder / "settings.json").write_text("{")
    with pytest.raises(InputError, match="another command"):
        Parts(folder, SETTINGS)


def test_what_is_not_ours_stays_when_the_work_is_done(tmp_path):
    parts = Parts(tmp_path / "parts", SETTINGS)
    parts.remove()
    parts.put("some", [(torch.zeros(1),)], 0.0)
    (tmp_path / "parts" / ".some.part.npz.x.part").write_text("half")
    (tmp_path / "parts" / "notes.txt").write_text("mine")
    parts.remove()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["notes.txt"]

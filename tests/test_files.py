import errno
import os
from pathlib import Path

import pytest
import torch

from vsehub import files
from vsehub.checks import InputError
from vsehub.training.checkpoint import CheckpointFiles


@pytest.mark.parametrize("killer", [KeyboardInterrupt, ValueError])
def test_killed_while_writing(tmp_path, killer):
    path = tmp_path / "table.csv"
    files.write_text(path, "before")

    def write():
        with files.atomic(path) as handle:
            handle.write(b"half of the new con")
            handle.flush()
            raise killer

    with pytest.raises(killer):
        write()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["table.csv"]
    files.write_text(path, "after")
    assert path.read_text() == "after"
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.fixture
def full_disk(monkeypatch):
    """Temporary files that take small writes; a large one leads to /dev/full, where each write fails with ENOSPC."""
    real = files.tempfile.NamedTemporaryFile

    def on_full_disk(*args, **kwargs):
        handle = real(*args, **kwargs)
        write = handle.write

        def checked_write(data):
            if len(data) > 64:
                handle.flush()
                with open("/dev/full", "wb", buffering=0) as full:
                    full.write(data)
            return write(data)

        handle.write = checked_write
        return handle

    def fill():
        monkeypatch.setattr(files.tempfile, "NamedTemporaryFile", on_full_disk)

    return fill


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk(tmp_path, full_disk):
    """torch.save raises a RuntimeError of its own over the disk's error."""
    path = tmp_path / "last.ckpt"
    CheckpointFiles(tmp_path).save_checkpoint({"epoch": 1}, path)
    full_disk()
    with pytest.raises(InputError, match=r"the disk is full: .*last.ckpt was not written .* untouched. Free room"):
        CheckpointFiles(tmp_path).save_checkpoint({"weights": torch.zeros(10**6)}, path)
    assert torch.load(path) == {"epoch": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


def test_an_error_of_another_kind_stays_what_it_was(tmp_path, monkeypatch):
    def refuse(_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_text(tmp_path / "table.csv", "new")
    assert os.listdir(tmp_path) == []

"""The folder of a training run that was killed before its first record."""

import pytest

from vsehub.checks import InputError
from vsehub.cli.run_folder import forget_start, require_new
from vsehub.io.files import alone, claimed


def test_a_start_that_was_killed_is_no_obstacle(tmp_path):
    """Killed after the noise was drawn and the loggers had begun; a folder without log and lock is somebody else's."""
    for name in ("train.log", ".run.json.1a2b3c4d.part"):
        (tmp_path / name).touch()
    (tmp_path / "noise_index.npy").touch()
    (tmp_path / "csv" / "version_0").mkdir(parents=True)
    with pytest.raises(InputError, match=r"holds csv, noise_index.npy, which does not belong to a run"):
        require_new(tmp_path)
    lock = claimed(tmp_path, "training")
    require_new(tmp_path)
    with pytest.raises(InputError, match="another process is writing in this folder"), alone(tmp_path, "writing"):
        pass
    lock.release()
    forget_start(tmp_path)
    assert {path.name for path in tmp_path.rglob("*")} == {"train.log", ".lock", "csv"}
    (tmp_path / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds notes.txt, which"):
        require_new(tmp_path)

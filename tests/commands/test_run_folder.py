"""The folder of a training run that was killed before its first record."""

import pytest

from vsehub.checks import InputError
from vsehub.cli.run_folder import held, require_own
from vsehub.io.files import alone, claimed


def test_a_start_that_was_killed_is_no_obstacle(tmp_path):
    """Killed after the noise was drawn and the loggers had begun; a folder without a lock is somebody else's."""
    run = tmp_path / "run"
    (run / "csv" / "version_0").mkdir(parents=True)
    for name in ("train.log", ".run.json.1a2b3c4d.part", "noise_index.npy"):
        (run / name).touch()
    with pytest.raises(InputError, match=r"holds .run.json.1a2b3c4d.part, csv, noise_index.npy, which does not"):
        require_own(run, False)
    lock = claimed(run, "training")
    require_own(run, False)
    with pytest.raises(InputError, match="another process is writing in this folder"), alone(run, "writing"):
        pass
    lock.release()
    (run / "notes.txt").touch()
    with pytest.raises(InputError, match=r"holds notes.txt, which"), held(run, False, False):
        pass
    (run / "notes.txt").unlink()
    with held(run, False, False):
        assert run.is_dir()
    assert not run.exists()

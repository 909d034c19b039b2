import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from vsehub.io import files
from vsehub.models.checkpoint import write_checkpoint


@pytest.mark.parametrize("killer", [KeyboardInterrupt, ValueError])
def test_killed_while_writing(tmp_path, killer):
    path = tmp_path / "table.csv"
    files.write_text(path, "before")

    writing = files.atomic(path)
    writing.__enter__().write(b"half of the new con")
    assert not writing.__exit__(killer, killer(), None)
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["table.csv"]
    assert path.stat().st_mode & 0o777 == 0o644


KILLED = """
import os, signal, sys
from vsehub.io import files
with files.atomic(sys.argv[1]) as handle:
    handle.write(b"half")
    handle.flush()
    print(handle.name, flush=True)
    sys.stdin.read()
"""


def test_what_a_kill_left_goes_and_what_lives_stays(tmp_path):
    path = tmp_path / "run.json"

    def writer():
        command = [sys.executable, "-c", KILLED, str(path)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return process, Path(process.stdout.readline().rstrip())

    killed, abandoned = writer()
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    living, owned = writer()
    assert not abandoned.exists(), "the next process that writes the file has taken it away"
    waiting = threading.Thread(target=files.write_text, args=(path, "whole"))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive(), "another process is writing it"
    assert owned.exists()
    assert living.communicate("")[0] == ""
    waiting.join(10)
    assert path.read_text() == "whole"
    assert os.listdir(tmp_path) == ["run.json"]


def test_equal_models_are_equal_files(tmp_path):
    """safetensors writes its metadata in an order that is drawn anew for each file."""
    torch.manual_seed(0)
    weights = {"text_encoder.a": torch.rand(3), "image_encoder.b": torch.rand(2, 2), "loss.c": torch.rand(1)}
    for number in range(8):
        write_checkpoint(tmp_path / f"{number}.safetensors", weights, {"a": "\u00e9"})
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    stored = load_file(tmp_path / "0.safetensors")
    assert stored.keys() == {"text_encoder.a", "image_encoder.b"}
    assert all(torch.equal(tensor, weights[name]) for name, tensor in stored.items())


def test_a_folder_for_one_process(tmp_path):
    with files.lock_folder(tmp_path, "writing"):
        ask = (
            "import sys; from pathlib import Path; from vsehub.io.files import lock_folder\n"
            "with lock_folder(Path(sys.argv[1]), 'writing'): pass"
        )
        done = subprocess.run([sys.executable, "-c", ask, str(tmp_path)], capture_output=True, text=True)
        assert "InputError" in done.stderr
    assert os.listdir(tmp_path) == []

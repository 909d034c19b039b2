import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from vsehub.evaluation.checkpoint import write_checkpoint
from vsehub.io import files
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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_full_disk(tmp_path, monkeypatch):
    """torch.save raises a RuntimeError of its own over the disk's error; the file stays as it was."""
    path, real = tmp_path / "last.ckpt", Path.open
    CheckpointFiles(tmp_path).save_checkpoint({"epoch": 1}, path)

    def opened(file, mode="r", *arguments):
        real(file, mode, *arguments).close()
        return real(Path("/dev/full"), "wb", *arguments)

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises((OSError, RuntimeError)):
        CheckpointFiles(tmp_path).save_checkpoint({"weights": torch.zeros(10**6)}, path)
    monkeypatch.undo()
    assert torch.load(path) == {"epoch": 1}
    assert os.listdir(tmp_path) == ["last.ckpt"]


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
    assert owned.exists()
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


def test_sigterm_at_any_step_leaves_no_temporary_file(tmp_path):
    """A handler that raises is tried before every line that writing executes."""
    count = 0

    def run(stop):
        nonlocal count
        count = 0

        def trace(frame, event, argument):
            nonlocal count
            if frame.f_code.co_filename != files.__file__:
                return None
            if event == "line" and frame.f_code.co_name == "atomic":
                count += 1
                if count == stop:
                    raise SystemExit(143)
            return trace

        sys.settrace(trace)
        try:
            files.write_text(tmp_path / "table.csv", "new")
        finally:
            sys.settrace(None)

    run(None)
    steps = count
    assert steps > 10
    for stop in range(1, steps + 1):
        with pytest.raises(SystemExit):
            run(stop)
        assert set(os.listdir(tmp_path)) <= {"table.csv"}, stop


def test_equal_models_are_equal_files(tmp_path):
    """safetensors writes its metadata in an order that is drawn anew for each file."""
    torch.manual_seed(0)
    weights = {"text_encoder.a": torch.rand(3), "image_encoder.b": torch.rand(2, 2), "loss.c": torch.rand(1)}
    for number in range(8):
        write_checkpoint(tmp_path / f"{number}.safetensors", weights, {"a": "\u00e9"})
    assert len({file.read_bytes() for file in tmp_path.iterdir()}) == 1
    with safe_open(tmp_path / "0.safetensors", "pt") as file:
        assert file.metadata()["description"] == '{"a": "\\u00e9"}'
        assert {name: file.get_tensor(name).tolist() for name in file.keys()} == {  # noqa: SIM118
            name: weights[name].tolist() for name in ("text_encoder.a", "image_encoder.b")
        }


def test_a_folder_for_one_process(tmp_path):
    with files.alone(tmp_path, "writing"):
        ask = (
            "import sys; from pathlib import Path; from vsehub.io.files import alone\n"
            "with alone(Path(sys.argv[1]), 'writing'): pass"
        )
        done = subprocess.run([sys.executable, "-c", ask, str(tmp_path)], capture_output=True, text=True)
        assert "InputError" in done.stderr
    assert os.listdir(tmp_path) == []

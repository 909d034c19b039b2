"""The wall around code that rebuilds objects from a stranger's file: what it refuses, for whom and for how long."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from vsehub.checks import InputError
from vsehub.io.wall import Refused, walled


def reach(tmp_path):
    """Calls that each reach for something outside."""
    (tmp_path / "mine.txt").write_text("secret")
    return {
        "open": lambda: (tmp_path / "mine.txt").read_text(),
        "os.open": lambda: os.open(tmp_path / "mine.txt", os.O_RDONLY),
        "write": lambda: (tmp_path / "new.txt").write_text("x"),
        "remove": lambda: (tmp_path / "mine.txt").unlink(),
        "rename": lambda: (tmp_path / "mine.txt").rename(tmp_path / "other.txt"),
        "link": lambda: os.symlink(tmp_path / "mine.txt", tmp_path / "link"),
        "code": lambda: (Path(os.__file__).parent / "new.py").write_text("x"),
        "connect": lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
        "name": lambda: socket.getaddrinfo("localhost", 80),
        "program": lambda: subprocess.run(["true"], check=False),
        "shell": lambda: os.system("true"),
        "fork": os.fork,
        "pickle": lambda: __import__("pickle").loads(b"cos\nsystem\n."),
        "library": lambda: __import__("ctypes").CDLL(None).system(b"true"),
    }


def swallowed(call):
    with walled(), contextlib.suppress(OSError):
        call()


def replaced(call):
    with walled():
        try:
            call()
        except Refused as error:
            raise RuntimeError("what the library makes of it") from error


def test_what_reaches_outside_is_refused(tmp_path):
    """Also where a library turns the refusal into an error of its own, or goes on as if nothing had happened."""
    import ctypes  # noqa: F401  # libraries are imported before

    for name, call in reach(tmp_path).items():
        for library in (swallowed, replaced):
            with pytest.raises(InputError, match="reach for another file, a connection or a program"):
                library(call)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"], name


def test_what_a_library_needs_is_allowed(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "config.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "secret.txt").write_text("secret")
    with walled([tmp_path / "cache"]):
        assert (tmp_path / "cache" / "config.json").read_text() == "{}"
        assert "def walk" in Path(os.__file__).read_text()
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text("{}")
        assert not Path(folder).exists()
    (tmp_path / "cache" / "out").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(InputError, match=r"open .*cache/out"), walled([tmp_path / "cache"]):
        (tmp_path / "cache" / "out").read_text()


def test_other_threads_and_later_calls_are_free(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    inside, done, found = threading.Event(), threading.Event(), []

    def other():
        inside.wait(20)
        found.append((tmp_path / "mine.txt").read_text())
        found.append(subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, check=True).stdout)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with walled():
        inside.set()
        assert done.wait(60)
    thread.join()
    assert found == ["mine", b"1\n"]
    for call in ("open", "program"):
        reach(tmp_path)[call]()


def test_an_error_of_the_block_stays_what_it_is():
    with pytest.raises(ZeroDivisionError), walled():
        1 / 0  # noqa: B018

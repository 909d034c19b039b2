import os
import stat
import subprocess
import sys

import pytest

from vsehub.checks import InputError
from vsehub.io import seal

NOT_ROOT = pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read and write everything")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "vsehub"


def test_a_key_is_made_once_and_is_the_users_own(state, tmp_path, monkeypatch):
    key = seal.user_key()
    assert seal.key_path() == state / "key"
    assert (len(key), key) == (32, (state / "key").read_bytes())
    assert seal.user_key() == key
    assert [one.name for one in state.iterdir()] == ["key"]
    assert stat.S_IMODE(os.stat(state / "key").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(state).st_mode) == 0o700
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "other"))
    assert seal.user_key() != key


def test_processes_that_make_the_key_at_once_agree(state):
    """Each waits for a line before it asks, so that all ask at the same time."""
    code = "import sys; from vsehub.io import seal; sys.stdin.readline(); print(seal.user_key().hex())"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for one in started:
        one.stdin.write("\n")
        one.stdin.flush()
    keys = {one.communicate(timeout=120)[0] for one in started}
    assert keys == {(state / "key").read_bytes().hex() + "\n"}
    assert [one.name for one in state.iterdir()] == ["key"]


def test_another_process_made_the_key_in_between(state, monkeypatch):
    theirs, link = bytes(range(32)), os.link

    def late(source, target):
        target.write_bytes(theirs)
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    assert seal.user_key() == theirs
    assert [one.name for one in state.iterdir()] == ["key"]


def refused(message):
    with pytest.raises(InputError, match=message) as error:
        seal.user_key()
    assert "\n" not in str(error.value)


@NOT_ROOT
def test_a_home_that_cannot_be_written(state):
    state.parent.mkdir(mode=0o500)
    refused(r"key can neither be read nor made \(Permission denied\); make it readable and its folder writable, or set")


@NOT_ROOT
def test_a_key_that_cannot_be_read(state):
    seal.user_key()
    (state / "key").chmod(0)
    refused(r"key can neither be read nor made \(Permission denied\)")


def test_a_place_that_has_no_room_for_a_key(state, monkeypatch):
    """What root meets too: a read-only file system, a folder that is a file, a key that is a folder or cut short."""

    def read_only(*_, **__):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "mkdir", read_only)
        refused(r"key can neither be read nor made \(Read-only file system\)")
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", read_only)
        refused(r"\(Read-only file system\)")
    assert list(state.iterdir()) == []
    (state / "key").mkdir()
    refused("key is a folder; expected a regular file")
    (state / "key").rmdir()
    (state / "key").write_bytes(bytes(31))
    refused(r"key holds 31 bytes; expected 32\. Remove it, and vsehub makes another")

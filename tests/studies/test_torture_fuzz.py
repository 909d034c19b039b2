"""Damaged files of every format end in an InputError or in the right answer; and what the fuzzing itself would miss."""

import ast
import ctypes
import sys
import time
from contextlib import suppress
from pathlib import Path

import fuzz
import numpy as np
import pytest
from formats import READERS, save_parquet, vectors
from looped import looped
from mutations import Reader

from vsehub.checks import InputError

ROOT = Path(__file__).parents[2]
TORTURE = ROOT / "tests" / "torture"


@pytest.mark.long
def test_a_sample_of_every_reader():
    found = fuzz.run(None, seed=0, cases=40 * len(READERS))
    assert found["wrong"] == []
    assert found["by"] == dict.fromkeys(READERS, 40)
    assert found["cases"] == 40 * len(READERS)


def test_the_same_case_again(tmp_path):
    """By seed and number a case is the same bytes, whichever readers run beside it and for however long."""
    for log, beside, cases in (("first", {}, 20), ("second", {"table": READERS["table"]}, 60), ("other seed", {}, 20)):
        folder = tmp_path / log
        folder.mkdir()
        readers = readers_of(lambda path, folder=folder: (folder / path.read_bytes().hex()[:200]).touch())
        assert fuzz.run(None, int(log == "other seed"), cases, beside | readers)["wrong"] == []
    first, second, other = (
        {path.name for path in (tmp_path / log).iterdir()} for log in ("first", "second", "other seed")
    )
    assert len(first) > 10
    assert first < second
    assert not first <= other


def readers_of(read):
    def make(folder):
        (folder / "file.txt").write_text("content")
        return folder / "file.txt"

    return {"made up": Reader(make, read)}


def refuses(path):
    if path.read_text(errors="replace") != "content":
        raise InputError(f"{path} is damaged")


def broken(what):
    """A reader that reads whole files and does `what` to others."""

    def read(path):
        try:
            refuses(path)
        except InputError:
            what(path)

    return read


def spins(path):
    while True:
        pass


def raises(path):
    {}["key"]


def allocates(path):
    np.ones(1 << 30).sum()


def reads_what_is_not_its_own(path):
    ctypes.string_at(1)


def does_not_say_which(path):
    raise InputError("something is wrong")


def says_too_much(path):
    raise InputError(f"{path} holds {'x' * 5000}")


def answers_something_else(path):
    raise AssertionError("37 rows, not 36")


@looped(
    ("what", "said"),
    [
        (raises, "KeyError at test_torture_fuzz.py"),
        (spins, "no answer after 0.5 s"),
        (lambda path: time.sleep(60), "no answer after 0.5 s"),
        (allocates, "MemoryError"),
        (reads_what_is_not_its_own, "the process died (SIGSEGV)"),
        (sys.exit, "SystemExit"),
        (does_not_say_which, "the message does not name the file"),
        (says_too_much, "the message has 50"),
        (answers_something_else, "AssertionError at test_torture_fuzz.py"),
    ],
)
@pytest.mark.long
def test_what_is_wrong_is_seen_and_repeated(what, said):
    readers = readers_of(broken(what))
    found = fuzz.run(None, seed=0, cases=3, readers=readers, limit=0.5)
    assert found["cases"] == 3
    assert len(found["wrong"]) == 3
    for case, text in enumerate(sorted(found["wrong"])):
        assert said in text
        assert f"--seed 0 --reader 'made up' --case {case}" in text
    (again,) = fuzz.run(None, seed=0, readers=readers, case=1, limit=0.5)["wrong"]
    assert again in found["wrong"]


@pytest.mark.long
def test_a_reader_that_works_and_one_that_cannot_be_made():
    assert fuzz.run(None, seed=0, cases=30, readers=readers_of(refuses)) == {
        "cases": 30,
        "wrong": [],
        "by": {"made up": 30},
    }
    (text,) = fuzz.run(None, seed=0, cases=1, readers=readers_of(raises))["wrong"]
    assert "the valid file cannot be read: KeyError" in text
    began = time.monotonic()
    assert fuzz.run(0.5, seed=0, readers=readers_of(refuses))["cases"] > 3
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("how", ["fixed", "columns"])
def test_a_footer_that_makes_arrow_end_the_process(how):
    """Some bits of the first bytes of a footer did: what the metadata says of a column is no longer asked for."""

    def make(folder):
        save_parquet(folder / "v.parquet", how)
        return folder / "v.parquet"

    def flipped(data, rng):
        data, place = bytearray(data), len(data) - 8 - int.from_bytes(data[-8:-4], "little") + int(rng.integers(60))
        data[place] ^= 1 << int(rng.integers(8))
        return bytes(data), "flip"

    def read(path):
        with suppress(AssertionError):  # the answer is not looked at here
            vectors(path, lambda path: np.zeros(0))

    assert fuzz.run(None, seed=0, cases=150, readers={"parquet": Reader(make, read, flipped)})["wrong"] == []


def test_the_command(script, tmp_path):
    done = script("torture/fuzz.py", "--cases", "6", "--reader", "table", "--seed", "5", cwd=tmp_path)
    assert "6  cases of seed 5" in done.out
    assert done.out.endswith("0 wrong\n")


def test_nothing_unpickles():
    """numpy reads without pickle, torch weights only, and nobody calls pickle itself."""
    calls = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            called = ast.unparse(node.func)
            keywords = {one.arg: ast.unparse(one.value) for one in node.keywords}
            if called in ("np.load", "numpy.load", "np.lib.format.read_array"):
                assert keywords.get("allow_pickle") == "False", f"{path}:{node.lineno}"
                calls.append(called)
            elif called == "torch.load":
                assert keywords.get("weights_only") == "True", f"{path}:{node.lineno}"
                calls.append(called)
            assert called.split(".")[0] not in ("pickle", "joblib", "dill", "shelve", "marshal"), (
                f"{path}:{node.lineno}"
            )
            assert called not in ("pd.read_pickle", "np.fromfile", "faiss.deserialize_index"), f"{path}:{node.lineno}"
    assert {"np.load", "np.lib.format.read_array", "torch.load"} <= set(calls)

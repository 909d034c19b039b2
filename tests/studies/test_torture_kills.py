"""A fixed sample of tools/torture: kills end well, and what differs after them is noticed."""

import json
from pathlib import Path

import pytest

TORTURE = Path(__file__).parents[2] / "tools" / "torture"

SAMPLE = """
import json, multiprocessing, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import kills, world
from kills import Kill

base = Path(sys.argv[2])
known = world.unbroken(base, ["train", "rerank"])
train, rerank = known["train"], known["rerank"]
KILL, TERM, INT = signal.SIGKILL, signal.SIGTERM, signal.SIGINT


def forgotten(*given):
    from vsehub.training.run_record import RunRecorder
    real, RunRecorder.load_state_dict = RunRecorder.load_state_dict, lambda self, state: None
    try:
        return kills.torture(*given)
    finally:
        RunRecorder.load_state_dict = real


figures = train.calls["fsync"] - 1  # the last but one that is written: the final evaluation
tasks = {
    "first record": (kills.torture, train, 0, 0, base, [Kill(KILL, None, "replace", 1, "before")]),
    "twice": (kills.torture, train, 1, 0, base, [Kill(TERM, 0.6), Kill(KILL, None, "fsync", 2, "after")]),
    "figures": (kills.torture, train, 2, 0, base, [Kill(TERM, None, "fsync", figures)]),
    # Killed when the second epoch's rows have taken their name: the first has its checkpoint.
    "forgotten": (forgotten, train, 3, 0, base, [Kill(KILL, None, "replace", 5, "after")]),
    "rerank": (kills.torture, rerank, 4, 0, base, [Kill(INT, None, "replace", 3), Kill(TERM, None, "fsync", 2)]),
    "end": (kills.torture, rerank, 5, 0, base, [Kill(KILL, None, "replace", rerank.calls["replace"], "after")]),
}
with multiprocessing.get_context("fork").Pool(2) as pool:
    given = {name: pool.apply_async(task, arguments) for name, (task, *arguments) in tasks.items()}
    print("FOUND" + json.dumps({name: one.get() for name, one in given.items()}))
"""


@pytest.fixture(scope="module")
def found(script, tmp_path_factory):
    base = tmp_path_factory.mktemp("torture")
    (base / "sample.py").write_text(SAMPLE)
    return json.loads(script(base / "sample.py", TORTURE, base, UNDRAWN="1").out.rpartition("FOUND")[2])


@pytest.mark.long
def test_a_sample_of_kills(found):
    for name, case in found.items():
        if name != "forgotten":
            assert case["wrong"] == [], name
    assert [found[name]["landed"] for name in ("first record", "twice", "figures", "rerank", "end")] == [1, 2, 1, 2, 1]


@pytest.mark.long
def test_a_file_that_differs_after_resuming_is_noticed(found):
    wrong = " ".join(found["forgotten"]["wrong"])
    assert "metrics.csv differs: 1 entries, not 2" in wrong
    assert "run.json differs" in wrong


def test_what_is_compared(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(TORTURE))
    import world

    for name in ("ours", "theirs"):
        folder = tmp_path / name / "out"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"seconds": len(name), "place": f"{folder}/x", "k": [1, 2]}))
        (folder / "metrics.csv").write_text(f"epoch,seconds\n0,{len(name)}\n")
        (folder / "ranking.parquet").write_bytes(b"bytes")
        (folder / "train.log").write_text(name)
    ours, theirs = (tmp_path / name / "out" for name in ("ours", "theirs"))
    assert world.differences(ours, theirs) == []
    (ours / "ranking.parquet").write_bytes(b"bytez")
    (ours / "metrics.csv").write_text("epoch,seconds\n1,3\n")
    (ours / "run.json").write_text(json.dumps({"seconds": 1, "place": f"{ours}/x", "k": [1, 3]}))
    (ours / ".run.json.0.part").touch()
    (theirs / "index.faiss").touch()
    assert world.differences(ours, theirs) == [
        ".run.json.0.part is left over",
        "index.faiss is missing",
        "metrics.csv differs/0/epoch: '1', not '0'",
        "ranking.parquet differs: 5 bytes",
        "run.json differs/k/1: 3, not 2",
    ]
    assert world.temporary(ours) == [".run.json.0.part"]
    (ours / "run.json").write_text("{")
    assert world.damaged(ours)[0].startswith("run.json is damaged: JSONDecodeError")

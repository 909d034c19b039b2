"""What `diagnose` advises is run as it is printed, from the folder where it was printed."""

import json
import shlex
import time

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    gap = 5 * np.eye(8)[0]  # the items nearest to it are hubs
    items = random.normal(size=(80, 8)) + gap
    queries = items[np.arange(120) % 80] + 0.5 * random.normal(size=(120, 8)) + gap
    items, queries = ((one / np.linalg.norm(one, axis=1, keepdims=True)).astype(np.float32) for one in (items, queries))
    place = tmp_path / "it's a $folder"
    place.mkdir()
    np.save(place / "my queries.npy", queries)
    np.save(place / "items.npy", 2 * items)
    np.save(place / "scores.npy", queries @ items.T)
    for name, count in (("truth", 120), ("few", 60)):  # auto chooses by half of them, and needs 50
        (place / f"{name}.csv").write_text("query,item\n" + "".join(f"{row},{row % 80}\n" for row in range(count)))
    return place


FILES = "queries=my queries.npy", "items=items.npy", "normalize=true"


@pytest.mark.parametrize(
    ("given", "criterion", "commands"),
    [
        ((*FILES, "truth=truth.csv"), "auto", ["rerank", "index", "serve"]),
        (("scores=scores.npy", "criteria=[csls]", "truth=few.csv"), "csls", ["rerank"]),
    ],
)
def test_what_is_advised_is_run(folder, vsehub, given, criterion, commands):
    said = vsehub("diagnose", *given, "out=found", cwd=folder, UNDRAWN="1").out
    record = json.loads((folder / "found" / "result.json").read_text())
    assert shlex.split(record["command"]) == ["vsehub", "diagnose", *given, "out=found"]
    steps = [shlex.split(step["command"]) for step in record["next"]]
    assert [words[1] for words in steps] == commands
    assert f"criterion={criterion}" in steps[0]
    for step, words in zip(record["next"], steps, strict=True):
        assert step["command"] in said
        if words[1] != "serve":
            vsehub(*words[1:], cwd=folder, UNDRAWN="1")
            continue
        served = vsehub(*words[1:], "port=0", cwd=folder, start=True)
        while "http://127.0.0.1:" not in (folder / "output.txt").read_text():
            assert served.poll() is None, (folder / "output.txt").read_text()
            time.sleep(0.1)
        served.kill()
        served.wait()

"""What `diagnose` advises is run as it is printed, from the folder where it was printed."""

import json
import re
import shlex
import signal
import time
import urllib.request

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
    (place / "truth.csv").write_text("query,item\n" + "".join(f"{row},{row % 80}\n" for row in range(120)))
    return place


def advised(folder, said, out):
    steps = json.loads((folder / out / "result.json").read_text())["next"]
    for step in steps:
        assert step["command"] in said
        assert step["why"] in said
    return [shlex.split(step["command"]) for step in steps]


def run(vsehub, folder, words):
    assert words[0] == "vsehub"
    if words[1] != "serve":
        assert "written to" in vsehub(*words[1:], cwd=folder).out
        return
    served = vsehub(*words[1:], "port=0", cwd=folder, start=True)
    deadline = time.monotonic() + 120
    while "http://127.0.0.1:" not in (folder / "output.txt").read_text():
        assert served.poll() is None, (folder / "output.txt").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    address = re.search(r"http://127\.0\.0\.1:\d+", (folder / "output.txt").read_text()).group()
    urllib.request.urlopen(f"{address}/health").read()  # it answers: whatever it does at its start is done
    served.send_signal(signal.SIGINT)
    assert served.wait(60) == 0


def test_with_known_answers(folder, vsehub):
    files = "queries=my queries.npy", "items=items.npy", "truth=truth.csv", "normalize=true"
    said = vsehub("diagnose", *files, "out=found", cwd=folder).out
    steps = advised(folder, said, "found")
    typed = json.loads((folder / "found" / "result.json").read_text())["command"]
    assert typed == "vsehub diagnose 'queries=my queries.npy' items=items.npy truth=truth.csv normalize=true out=found"
    assert [words[1] for words in steps] == ["rerank", "index", "serve"]
    assert {"criterion=auto", "criterion.indexable=true"} <= set(steps[0])
    for words in steps:
        run(vsehub, folder, words)
    again = vsehub("diagnose", *files, "out=found", "overwrite=true", cwd=folder).out
    assert "out=found-reranked-2" in again, "nothing that is there is in the way"
    assert "What to try next" in (folder / "found" / "index.html").read_text()


def test_without_answers_and_with_scores(folder, vsehub):
    said = vsehub("diagnose", "scores=scores.npy", "criteria=[csls]", "out=scored", cwd=folder).out
    for words in advised(folder, said, "scored"):
        assert words[1] == "rerank"
        run(vsehub, folder, words)
    files = "queries=my queries.npy", "items=items.npy", "normalize=true", "criteria=[csls,nnn]"
    steps = advised(folder, vsehub("diagnose", *files, "out=bare", cwd=folder).out, "bare")
    assert not any("criterion=auto" in words for words in steps)
    assert steps[-1][1] == "serve"
    for words in steps:
        run(vsehub, folder, words)


@pytest.mark.parametrize(("shift", "level", "criteria"), [(0.5, "ok", []), (5.0, "warn", ["csls"])])
def test_without_answers_csls_is_advised_where_there_are_hubs(tmp_path, run_here, undrawn, shift, level, criteria):
    random = np.random.default_rng(0)
    away = shift * np.eye(16)[0]  # what behind a gap is nearest to all
    items = random.normal(size=(300, 16)) + away
    np.save(tmp_path / "items.npy", items.astype(np.float32))
    np.save(tmp_path / "queries.npy", (items + random.normal(size=items.shape) + away).astype(np.float32))
    run_here("diagnose", "queries=queries.npy", "items=items.npy", "normalize=true", "criteria=[is,csls]", "out=found")
    record = json.loads((tmp_path / "found" / "result.json").read_text())
    assert record["verdict"]["level"] == level
    largest = {one["criterion"]: one["hubness"]["largest_hub_10"] for one in record["rankings"]}
    assert min(largest, key=largest.get) == ("is" if criteria else "csls"), "the largest hub does not decide"
    words = [word for step in record["next"] for word in shlex.split(step["command"])]
    assert [word.partition("=")[2] for word in words if word.startswith("criterion=")] == criteria
    assert [word for word in words if word in ("rerank", "index", "serve")] == ["rerank", "index"] * len(criteria) + [
        "serve"
    ]

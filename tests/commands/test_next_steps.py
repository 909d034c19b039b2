"""What `diagnose` advises is run as it is printed, from the folder where it was printed."""

import json
import shlex

import numpy as np
import pytest
from own_vectors import write_vectors


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "it's a $folder").mkdir()
    place = write_vectors(tmp_path / "it's a $folder")
    np.save(place / "scores.npy", np.load(place / "q.npy") @ np.load(place / "m.npy").T)
    (place / "q.npy").rename(place / "my queries.npy")
    few = (place / "rows.csv").read_text().splitlines()[:41]
    (place / "few.csv").write_text("\n".join(few) + "\n")  # auto needs 50
    return place


FILES = "queries=my queries.npy", "items=raw.npy", "normalize=true"


@pytest.mark.parametrize(
    ("settings", "criterion", "commands"),
    [
        ((*FILES, "truth=rows.csv"), "auto", ["rerank", "index", "serve"]),
        (("scores=scores.npy", "criteria=[csls]", "truth=few.csv"), "csls", ["rerank"]),
    ],
)
def test_what_is_advised_is_run(folder, vsehub, settings, criterion, commands, monkeypatch):
    monkeypatch.setattr("vsehub.web.server.run", lambda served, taken: taken.close())
    said = vsehub("diagnose", *settings, "out=found", cwd=folder).out
    record = json.loads((folder / "found" / "result.json").read_text())
    assert shlex.split(record["command"]) == ["vsehub", "diagnose", *settings, "out=found"]
    steps = [shlex.split(step["command"]) for step in record["next"]]
    assert [words[1] for words in steps] == commands
    assert f"criterion={criterion}" in steps[0]
    assert ("criterion.among=[csls,is,nnn,dn]" in steps[0]) == (criterion == "auto"), "which `add` keeps current"
    for step, words in zip(record["next"], steps, strict=True):
        assert step["command"] in said
        vsehub(*words[1:], *(["port=0"] if words[1] == "serve" else []), cwd=folder)

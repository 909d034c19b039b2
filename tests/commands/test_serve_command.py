"""`vsehub serve` as its user starts it: a result and a checkpoint; refusals; how it ends."""

import csv
import http.client
import json
import signal
import socket
import time
from importlib.util import find_spec
from urllib.parse import quote

import numpy as np
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.skipif(find_spec("fastapi") is None, reason="pip install 'vsehub[serve]'")

IDS = ["a/b", 'it\'s "one"', "ü %2F?&#", *(f"m{row}" for row in range(3, 60))]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory, vsehub):
    """A folder with the result of a reranking."""
    folder = tmp_path_factory.mktemp("served")
    random = np.random.default_rng(0)
    items = random.normal(size=(60, 8)).astype(np.float32) + 0.4
    queries = items[np.arange(90) % 60] + 0.3 * random.normal(size=(90, 8)).astype(np.float32)
    for name, rows in (("items", items), ("queries", queries)):
        np.save(folder / f"{name}.npy", rows / np.linalg.norm(rows, axis=1, keepdims=True))
    (folder / "ids.txt").write_text("\n".join(IDS) + "\n")
    with (folder / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("query", "item"), *((row, IDS[row % 60]) for row in range(90))])
    settings = [f"queries={folder}/queries.npy", f"items={folder}/items.npy", f"item_ids={folder}/ids.txt"]
    settings += [f"truth={folder}/truth.csv"]
    vsehub("rerank", *settings, "criterion=csls", "k=5", "out=ranked", cwd=folder)
    return folder


class Served:
    """A running `vsehub serve`."""

    def __init__(self, vsehub, cwd, *arguments):
        self.folder, self.process = cwd, vsehub("serve", *arguments, "port=0", cwd=cwd, start=True)
        while "http://127.0.0.1:" not in self.output():
            assert self.process.poll() is None, self.output()
            time.sleep(0.05)
        self.port = int(self.output().rpartition("http://127.0.0.1:")[2].split()[0])

    def output(self):
        return (self.folder / "output.txt").read_text()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def json(self, path):
        status, content = self.get(path)
        assert status == 200, content
        return json.loads(content)

    def end(self):
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def test_a_result_is_served_until_an_interrupt_and_nothing_is_written(ranked, vsehub, tmp_path):
    before = sorted(path.name for path in ranked.rglob("*"))
    served = Served(vsehub, tmp_path, f"{ranked}/ranked", "criteria=[is,nnn,csls]")
    collection = served.json("/api/collection")
    assert collection["criteria"] == ["nns", "csls", "is", "nnn"]
    for name in IDS[:3]:
        assert served.json(f"/api/items/{quote(name, safe='')}")["id"] == name
    answer = served.json("/api/search?query=3&criterion=nnn&k=4")
    items, queries = np.load(ranked / "items.npy"), np.load(ranked / "queries.npy")
    order = np.argsort(-(items @ queries[3]), kind="stable")[:4]
    assert [hit["id"] for hit in answer["lists"]["nns"]] == [IDS[row] for row in order]
    ranking = pq.read_table(ranked / "ranked" / "ranking.parquet").to_pylist()
    for query in (0, 7, 50):
        corrected = served.json(f"/api/search?query={query}&k=5&criterion=csls")["lists"]["csls"]
        assert [hit["id"] for hit in corrected] == [row["item"] for row in ranking if row["query"] == query]
    assert served.get("/..%2f..%2fetc/passwd")[0] == 404
    assert (served.end(), "Traceback" in served.output()) == (0, False)
    assert sorted(path.name for path in ranked.rglob("*")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["output.txt"]


@pytest.mark.long
def test_a_checkpoint_with_its_scenes(vsehub, tmp_path):
    vsehub("train", "hydra.run.dir=run", cwd=tmp_path, small=True)
    checkpoint = "checkpoint=run/checkpoints/best.safetensors"
    served = Served(vsehub, tmp_path, checkpoint)
    collection = served.json("/api/collection")
    assert collection["fitted_on"].endswith("of the train split (inductive)")
    answer = served.json("/api/search?text=a+red+circle&k=3")
    said = vsehub("search", checkpoint, "a red circle", "k=3", cwd=tmp_path).out
    assert all(hit["id"] in said for hit in answer["lists"]["nns"])
    assert served.get(answer["lists"]["nns"][0]["picture"])[1][:3] == b"\xff\xd8\xff"
    assert served.get("/api/search?text=xyzzy")[0] == 422
    assert served.end() == 0


@pytest.mark.parametrize("setting", ["reference=test", "data.root=x"])
def test_settings_of_a_checkpoint_beside_a_result(ranked, vsehub, setting):
    assert setting.partition("=")[0].partition(".")[0] in vsehub("serve", "ranked", setting, cwd=ranked, status=2).err


def test_a_port_in_use_or_that_is_none(ranked, vsehub):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 70_000):
            assert f"127.0.0.1:{port}" in vsehub("serve", "ranked", f"port={port}", cwd=ranked, status=2).err

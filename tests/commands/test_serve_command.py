"""`vsehub serve` as its user starts it: files, a collection and a checkpoint; refusals; how it ends."""

import http.client
import json
import signal
import socket
import time
from urllib.parse import quote

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install 'vsehub[serve]'")

FILES = {"items": "items.npy", "queries": "queries.npy", "item_ids": "ids.txt", "truth": "truth.csv"}
IDS = ["a/b", 'it\'s "one"', "ü %2F?&#", *(f"m{row}" for row in range(3, 60))]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    random = np.random.default_rng(0)
    items = random.normal(size=(60, 8)).astype(np.float32) + 0.4
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    queries = items[np.arange(90) % 60] + 0.3 * random.normal(size=(90, 8)).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    np.save(folder / "items.npy", items)
    np.save(folder / "queries.npy", queries)
    (folder / "ids.txt").write_text("\n".join(IDS) + "\n")
    (folder / "truth.csv").write_text("query,item\n" + "".join(f"{row},{json_id(row % 60)}\n" for row in range(90)))
    return folder


def json_id(row):
    return '"' + IDS[row].replace('"', '""') + '"'


class Served:
    """A running `vsehub serve`."""

    def __init__(self, vsehub, cwd, *arguments):
        self.folder, self.process = cwd, vsehub("serve", *arguments, "port=0", cwd=cwd, start=True)
        deadline, self.said = time.monotonic() + 120, ""
        while "http://" not in self.said:
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.1)
            self.said = self.output()
        self.port = int(self.said.rpartition("http://127.0.0.1:")[2].split()[0])

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

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def result(files, vsehub):
    """A reranking of the files by CSLS."""
    own = (f"{name}={files / file}" for name, file in FILES.items())
    vsehub("rerank", *own, "criterion=csls", "k=5", "out=ranked", cwd=files)
    return files / "ranked"


def test_a_result_is_served_with_its_own_correction_and_nothing_is_written(files, result, vsehub, tmp_path):
    before = sorted(path.name for path in result.iterdir())
    served = Served(vsehub, tmp_path, str(result), "criteria=[is,nnn]")
    assert "60 items of 8 dimensions, 90 queries" in served.said
    collection = served.json("/api/collection")
    assert collection["criteria"] == ["nns", "csls", "is", "nnn"]
    import pyarrow.parquet as pq

    ranking = pq.read_table(result / "ranking.parquet").to_pylist()
    for query in (0, 7, 50):
        corrected = served.json(f"/api/search?query={query}&k=5&criterion=csls")["corrected"]
        assert [one["id"] for one in corrected] == [row["item"] for row in ranking if row["query"] == query]
    assert collection["hubness"][0]["recalls"]["R@10"] > 50
    for name in IDS[:3]:
        assert served.json(f"/api/items/{quote(name, safe='')}")["id"] == name
        assert served.get(f"/items/{quote(name, safe='')}")[0] == 200
    found = served.json("/api/search?query=3&criterion=nnn&k=4")
    items, queries = np.load(files / "items.npy"), np.load(files / "queries.npy")
    order = np.argsort(-(items @ queries[3]), kind="stable")[:4]
    assert [one["id"] for one in found["plain"]] == [IDS[row] for row in order]
    assert b"question" not in served.get("/?query=3")[1]
    status, said = served.get("/..%2f..%2fetc/passwd")
    assert status == 404
    assert b"root:" not in said
    assert served.end() == 0
    assert "Traceback" not in served.output()
    assert sorted(path.name for path in result.iterdir()) == before
    assert [path.name for path in tmp_path.iterdir()] == ["output.txt"]


@pytest.mark.long
def test_a_checkpoint_with_its_scenes(vsehub, tmp_path):
    vsehub("train", "hydra.run.dir=run", cwd=tmp_path, small=True)
    checkpoint = "checkpoint=run/checkpoints/best.safetensors"
    served = Served(vsehub, tmp_path, checkpoint)
    collection = served.json("/api/collection")
    assert collection["reads"]
    assert collection["fitted_on"].endswith("of the train split (inductive)")
    found = served.json("/api/search?text=a+red+circle&k=3")
    said = vsehub("search", checkpoint, "a red circle", "k=3", cwd=tmp_path).out
    assert all(one["id"] in said for one in found["plain"])
    status, jpeg = served.get(found["plain"][0]["picture"])
    assert (status, jpeg[:3]) == (200, b"\xff\xd8\xff")
    status, said = served.get("/api/search?text=xyzzy")
    assert status == 422
    assert b"knows no word of the text" in said
    assert served.end() == 0


def test_a_port_in_use_or_that_is_none(result, vsehub, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for port in (taken.getsockname()[1], 70_000):
            said = vsehub("serve", str(result), f"port={port}", cwd=tmp_path, status=2).err
            assert f"127.0.0.1:{port}" in said

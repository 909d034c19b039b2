"""`engine=ray` on a real cluster of two workers, which on_cluster.py starts once for all of these tests."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from false_packages import write_false_packages

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: extra `ray`"),
    pytest.mark.long,
]
# Of the items: fewer than k, as many as a shard, one more, many.
FILES = (3, 37, 38, 127)


def unit(rows, seed):
    array = np.random.default_rng(seed).normal(size=(rows, 8)) + 0.3
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory, environment):
    """What on_cluster.py found."""
    folder = tmp_path_factory.mktemp("ray")
    items = unit(sum(FILES), 0)
    items[45:60], items[-1] = items[:15], items[0]  # equal scores in several shards
    (folder / "items").mkdir()
    for number, part in enumerate(np.split(items, np.cumsum(FILES)[:-1])):
        np.save(folder / "items" / f"part_{number}.npy", part)
    for name, rows, seed in (("q", 60, 1), ("r", 70, 2), ("bank", 41, 3)):
        np.save(folder / f"{name}.npy", unit(rows, seed))
    script = Path(__file__).with_name("on_cluster.py")
    done = subprocess.run(
        [sys.executable, script, folder], capture_output=True, text=True, timeout=400, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / "answer.json").read_text())


def test_results_are_those_of_one_machine(on_ray):
    result = on_ray["equal_to_local"]
    assert result.keys() == {"nns", "csls", "sinkhorn", "dbsn"}
    for name, (positions, difference) in result.items():
        assert positions, name
        assert difference < 1e-6, name


def test_the_work_of_a_lost_worker_is_done_again(on_ray):
    result = on_ray["lost_worker"]
    assert result == {"done": list(range(len(result["done"]))), "tries": 2}


def test_a_command_imports_nothing_from_the_working_folder(tmp_path, environment):
    """Its files are those of one machine."""
    np.save(tmp_path / "q.npy", unit(6, 0))
    np.save(tmp_path / "m.npy", unit(9, 1))
    write_false_packages(tmp_path)
    records, files = [], []
    for engine in ("local", "ray"):
        command = [sys.executable, "-m", "vsehub", "rerank", "queries=q.npy", "items=m.npy", "k=2", f"engine={engine}"]
        done = subprocess.run(
            [*command, f"out={engine}"], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        records.append(json.loads((tmp_path / engine / "result.json").read_text()))
        files.append({path.name for path in (tmp_path / engine).iterdir()})
    assert not (tmp_path / "imported").exists()
    assert files[0] == files[1]
    assert [record["engine"]["name"] for record in records] == ["local", "ray"]
    for part in ("rankings", "hubs", "antihubs", "verdict", "queries", "items", "reference"):
        assert records[0][part] == records[1][part], part

"""Every notebook runs from its first cell to its last on small data, and what it finds is what the data hold."""

import ast
import json
import os
import statistics
import sys
from pathlib import Path

import numpy as np
import pytest

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
NotebookClient = pytest.importorskip("nbclient").NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.fixture
def executed(tmp_path, monkeypatch, shared_folder):
    """A function that runs a notebook, parameters changed: what `wanted` is at its end, how many pictures it drew."""
    from jupyter_client import AsyncKernelManager
    from jupyter_client.kernelspec import KernelSpecManager

    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "IPYTHONDIR", "TMPDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared_folder / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(name, wanted, **parameters):
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        (given,) = (cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
        unknown = set(parameters) - names(given.source)
        assert not unknown, f"{name} has no parameters {unknown}"
        given.source += "\n" + "\n".join(f"{key} = {value!r}" for key, value in parameters.items())
        ask = f"import json, sys\nprint(json.dumps([sys.executable, {wanted}], default=lambda x: x.item()))"
        notebook.cells.append(nbformat.v4.new_code_cell(ask))
        # No folder of kernels: the one of this very interpreter, whatever is installed on the machine.
        manager = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=KernelSpecManager(kernel_dirs=[]))
        place = {"metadata": {"path": str(ROOT / "notebooks")}}
        NotebookClient(notebook, km=manager, timeout=200, resources=place).execute(env=dict(os.environ))
        (said,) = notebook.cells[-1].outputs
        interpreter, value = json.loads(said.text)
        assert interpreter == sys.executable
        pictures = [
            out for cell in notebook.cells for out in cell.get("outputs", ()) if "image/png" in out.get("data", ())
        ]
        return value, len(pictures)

    return run


def names(source):
    """What a cell assigns."""
    return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}


def test_hubs_in_your_embeddings(executed):
    wanted = "[queries, items, reference, comparison.to_dict(), worst['found'].to_dict()]"
    (*files, comparison, worst), pictures = executed("hubs_in_your_embeddings", wanted, made_up_items=120)
    queries, items, train = (np.load(file).astype(np.float64) for file in files)
    scores, among = queries @ items.T, np.arange(120)

    def figures(scores):
        order = (-scores).argsort(axis=1)[:, :10]
        found = np.bincount(order.ravel(), minlength=120)
        right = order == np.repeat(among, 5)[:, None]
        recall = {f"truth: r{k}": 100 * right[:, :k].any(axis=1).mean() for k in (1, 5, 10)}
        skew = ((found - found.mean()) ** 3).mean() / found.std() ** 3
        return found, {"skewness of N_10": skew, "largest N_10": found.max(), **recall}

    found, plain = figures(scores)
    bias = np.sort(train @ items.T, axis=0)[-10:].mean(axis=0)
    _, corrected = figures(2 * scores - bias)
    for name, expected in (("nns", plain), ("csls", corrected)):
        assert {key: comparison[name][key] for key in expected} == pytest.approx(expected, abs=1e-6), name
    assert corrected["skewness of N_10"] < plain["skewness of N_10"]
    assert sorted(worst.values(), reverse=True) == sorted(found.tolist(), reverse=True)[:10]
    assert all(found[int(item)] == count for item, count in worst.items())
    assert pictures == 2


@pytest.mark.long
def test_tuning_gamma_epsilon(executed):
    """A sweep trained by the notebook itself."""
    small = {"gammas": (10, 60), "epsilons": (0.3,), "seeds": (0, 1)}
    wanted = "[str(runs), best, chosen.to_dict(), means.to_dict()]"
    (runs, best, chosen, means), pictures = executed("tuning_gamma_epsilon", wanted, **small)
    records = [json.loads(path.read_text()) for path in Path(runs).glob("*/run.json")]
    assert len(records) == 4
    validation, test = {}, {}
    for record in records:
        gamma = record["config"]["loss"]["gamma"]
        validation.setdefault(gamma, []).append(record["best"]["val/rsum"])
        test.setdefault(gamma, []).append(record["metrics"]["test/rsum"])
    assert means["0.3"] == {str(gamma): pytest.approx(statistics.mean(of)) for gamma, of in validation.items()}
    winner = max(validation, key=lambda gamma: statistics.mean(validation[gamma]))
    assert best == [winner, 0.3]
    assert chosen["test"] == pytest.approx(statistics.mean(test[winner]))
    assert chosen["test_spread"] == pytest.approx(statistics.stdev(test[winner]))
    assert pictures == 2

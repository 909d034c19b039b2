"""What a notebook finds is what the data hold; `make docs` runs all of them."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_hubs_in_your_embeddings():
    cells = json.loads((NOTEBOOKS / "hubs_in_your_embeddings.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (place,) = (n for n, text in enumerate(code) if "made_up_items =" in text)
    code[place] += "\nmade_up_items = 120"
    wanted = "[queries, items, reference, comparison.to_dict(), worst['found'].to_dict()]"
    code.append(f"import json\nprint('FOUND' + json.dumps({wanted}, default=lambda x: x.item()))")
    command = [sys.executable, "-c", "\n".join(["import matplotlib", "matplotlib.use('agg')", *code])]
    done = subprocess.run(command, cwd=NOTEBOOKS, capture_output=True, text=True, check=True)
    *files, comparison, worst = json.loads(done.stdout.rpartition("FOUND")[2])
    queries, items, train = (np.load(file).astype(np.float64) for file in files)
    scores = queries @ items.T

    def figures(scores):
        order = (-scores).argsort(axis=1)[:, :10]
        found = np.bincount(order.ravel(), minlength=120)
        right = order == np.repeat(np.arange(120), 5)[:, None]
        recall = {f"truth: r{k}": 100 * right[:, :k].any(axis=1).mean() for k in (1, 5, 10)}
        skew = ((found - found.mean()) ** 3).mean() / found.std() ** 3
        return found, {"skewness of N_10": skew, "largest N_10": found.max(), **recall}

    found, plain = figures(scores)
    _, corrected = figures(2 * scores - np.sort(train @ items.T, axis=0)[-10:].mean(axis=0))
    for name, expected in (("nns", plain), ("csls", corrected)):
        assert {key: comparison[name][key] for key in expected} == pytest.approx(expected, abs=1e-6), name
    assert corrected["skewness of N_10"] < plain["skewness of N_10"]
    assert {int(item): count for item, count in worst.items()}.items() <= dict(enumerate(found.tolist())).items()

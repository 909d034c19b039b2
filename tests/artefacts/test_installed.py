"""What a stranger installs: the wheel for trainings, the sdist for embeddings, used from a folder of somebody else.

The working folder holds files and folders with the names of what vsehub reads and imports: conf/, vsehub/,
hydra_plugins/ and packages. Nothing there may be read or imported.
"""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from false_packages import write_false_packages
from filelock import FileLock
from installing import clean, install, run

from vsehub.cli.main import COMMANDS

pytestmark = pytest.mark.long
SMALL = ("data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8", "image_encoder.width=4")
LOADED = """
import sys
import vsehub
assert vsehub.__file__.startswith(sys.argv[1]), vsehub.__file__
model = vsehub.load("run/checkpoints/best.safetensors")
found = model.search(["a red circle"], k=3)
print([tuple(part.shape) for part in found])
"""


@pytest.fixture(scope="session")
def wheel(artefacts, shared_folder):
    """The programs of an environment with everything that a training needs, from the wheel."""
    return installed(shared_folder / "of the wheel", f"{artefacts[1]}[train,cpu]")


@pytest.fixture(scope="session")
def sdist(artefacts, shared_folder):
    """The programs of an environment for the commands on embeddings, from the sdist."""
    return installed(shared_folder / "of the sdist", f"{artefacts[0]}[cpu]")


def installed(environment, requirement):
    """The programs of an environment that the processes of the tests share."""
    with FileLock(f"{environment}.lock"):
        return environment / "bin" if environment.exists() else install(environment, requirement)


@pytest.fixture(params=["wheel", "sdist"])
def programs(request):
    """Each of both."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(tmp_path):
    """The working folder."""
    place = tmp_path / "somebody else's"
    place.mkdir()
    write_false_packages(place)
    for name in ("vsehub", "hydra_plugins"):
        (place / name).mkdir()
        text = "import pathlib\npathlib.Path('imported').write_text(__file__)\nraise SystemExit(9)\n"
        for file in ("__init__.py", "__main__.py", "stranger.py"):
            (place / name / file).write_text(text)
    for command in ("train", "rerank", "loss/hal", "criterion/csls", "hydra/launcher/basic"):
        file = place / "conf" / f"{command}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("not: [a yaml")
    yield place
    assert not (place / "imported").exists(), (place / "imported").read_text()


def test_every_command_helps(programs, folder):
    environment = clean(folder)
    assert "usage: vsehub COMMAND" in run(programs / "vsehub", "--help", cwd=folder, env=environment).out
    for command in COMMANDS:
        done = run(programs / "vsehub", command, "--help", cwd=folder, env=environment)
        assert f"vsehub {command}" in done.out
        assert "Warning" not in done.err, command


def test_vectors_are_ranked(programs, folder):
    random = np.random.default_rng(0)
    items = random.normal(size=(40, 8))
    queries = items + random.normal(size=(40, 8))
    items, queries = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (items, queries))
    for name, rows in (("items", items), ("queries", queries)):
        np.save(folder / f"{name}.npy", rows.astype(np.float32))
    (folder / "pairs.csv").write_text("query,item\n" + "".join(f"{row},{row}\n" for row in range(40)))
    sides = ("queries=queries.npy", "items=items.npy", "truth=pairs.csv")
    settings = (*sides, "criterion=csls", "k=5")
    done = run(programs / "vsehub", "rerank", *settings, cwd=folder, env=clean(folder))
    run(programs / "vsehub", "index", "rerank", cwd=folder, env=clean(folder))
    assert "Warning" not in done.err
    scores = queries @ items.T
    largest = np.sort(scores, axis=0)[-10:].mean(axis=0)
    expected = np.argsort(-(2 * scores - largest), axis=1)[:, :5]
    ranking = pq.read_table(folder / "rerank" / "ranking.parquet")
    assert (ranking["item"].to_numpy().reshape(40, 5) == expected).all()
    assert (folder / "rerank" / "index.faiss").is_file()
    assert json.loads((folder / "rerank" / "result.json").read_text())


def test_a_model_is_trained_and_loaded(wheel, folder):
    environment = clean(folder)
    settings = (*SMALL, "trainer.max_epochs=1", "loss=hal", "hydra.run.dir=run")
    done = run(wheel / "vsehub", "train", *settings, cwd=folder, env=environment)
    assert "rsum" in done.out + done.err
    loaded = run(wheel / "python", "-P", "-c", LOADED, wheel.parent, cwd=folder, env=environment)
    assert loaded.out.split("\n")[0] == "[(1, 3), (1, 3), (1, 3)]"


def test_a_command_that_lacks_an_extra_names_it(sdist, folder):
    refused = run(sdist / "vsehub", "train", *SMALL, "hydra.run.dir=run", cwd=folder, env=clean(folder), status=2)
    assert "pip install 'vsehub[train]'" in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (folder / "run").exists()

"""Write small files of every kind that vsehub writes, for later versions to read: tests/kept/VERSION/.

python tests/kept/make.py        once for each version that changes a format, before it is released
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import vsehub
from vsehub.criteria import CSLS
from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases.collection import Items, facts_of

HERE = Path(__file__).parent
K = 3
SMALL = ("data.size=tiny", "embedding_dim=8", "text_encoder.word_dim=6", "image_encoder.width=4")
TRAIN = (*SMALL, "loss=hal", "bank=memory", "data.noise.protocol=captions", "data.noise.rate=0.2", "seed=0")


def vectors(rows: int, seed: int) -> np.ndarray:
    """Unit rows (rows, 6) float32."""
    found = np.random.default_rng(seed).normal(size=(rows, 6)) + 0.3
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def run(folder: Path, *words: str) -> None:
    """One command of vsehub, with paths relative to the folder, which the records therefore hold."""
    subprocess.run([Path(sys.executable).with_name("vsehub"), *words], cwd=folder, check=True, capture_output=True)


def write(folder: Path) -> None:
    """All files, and expected.npz with what is computed from them."""
    run(folder, "train", *TRAIN, "trainer.max_epochs=1", "hydra.run.dir=run")
    best = "run/checkpoints/best.safetensors"
    run(folder, "evaluate", f"checkpoint={best}", "criterion=csls", "reference=train")
    items, queries, reference = vectors(30, 0), vectors(9, 1), vectors(40, 2)
    for name, rows in {"items": items, "queries": queries, "reference": reference}.items():
        np.save(folder / f"{name}.npy", rows)
    given = ("queries=queries.npy", "items=items.npy", "reference=reference.npy", f"k={K}")
    run(folder, "rerank", *given, "criterion=csls", "index=flat", "biases=true", "out=rerank")
    run(folder, "extract", "data=scenes", "data.size=tiny", "image_encoder=torchvision", "image_encoder.model=resnet18",
        "image_encoder.pretrained=false", "dtype=float16", "splits=[test]", "out=features")  # fmt: skip
    search = vsehub.CorrectedSearch("csls", k=K).fit(items, reference=reference)
    search.save(folder / "search.safetensors")
    scores, positions = search.search(queries)
    model = vsehub.load(folder / best)
    encoded = model.encode("test")
    bias = CSLS(K).bias(as_vectors("reference", reference).rows(0, 40) @ as_vectors("items", items).rows(0, 30).T)
    told = facts_of(
        Items(as_vectors("items", items), bias, list(map(str, range(30)))),
        CSLS.scale,
        **{"criterion": "csls", "parameters": {"k": K}, "reference": "reference.npy"},
        **{"approximate": False, "normalize": None},
    )
    (folder / "facts.json").write_text(told.text() + "\n")
    similarities = model.similarity(encoded.images, encoded.texts)
    np.savez_compressed(folder / "expected.npz", similarities=similarities, scores=scores, positions=positions)
    (folder / "about.json").write_text(json.dumps({"vsehub": vsehub.__version__}) + "\n")
    for name in ("run/checkpoints/best.encoded", "run/csv"):
        shutil.rmtree(folder / name)
    for name in ("run/.lock", "run/.hydra/hydra.yaml", "rerank/index.html"):
        (folder / name).unlink()
    for name in ("run/run.json", "rerank/USAGE.md"):
        path = folder / name
        path.write_text(path.read_text().replace(str(folder), "/data"))


def main() -> None:
    """Write the folder of this version, which may not be there."""
    to = HERE / vsehub.__version__
    if to.exists():
        sys.exit(f"{to} is there; what a released version wrote is not written again")
    with tempfile.TemporaryDirectory() as place:
        write(Path(place))
        shutil.copytree(place, to)


if __name__ == "__main__":
    main()

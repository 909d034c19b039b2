"""`vsehub export` through the command line."""

import hashlib
import json

import numpy as np
import pytest
from test_embedding_lines import written

import vsehub
from vsehub.data.text.tokens import TokenTable


def onnx_runtime():
    pytest.importorskip("onnxscript", reason="vsehub export needs vsehub[export]")
    return pytest.importorskip("onnxruntime", reason="vsehub export needs vsehub[export]")


@pytest.mark.long
def test_a_whole_split_is_ranked_as_by_the_checkpoint(trained, run_here, tmp_path):
    runtime = onnx_runtime()
    best = trained / "checkpoints" / "best.safetensors"
    run_here("export", f"checkpoint={best}", "out=out")
    exported = json.loads((tmp_path / "out" / "export.json").read_text())
    assert exported["checkpoint"] == {"file": best.name, "sha256": hashlib.sha256(best.read_bytes()).hexdigest()}

    model = vsehub.load(best, device="cpu")
    split = model.split("test")
    table = TokenTable.build(model.vocabulary, split.captions, model.max_words)
    captions = [array.numpy() for array in table.batch(np.arange(len(table)))]
    outputs = []
    for side, inputs in (("image", [np.array(split.images[:])]), ("text", captions)):  # without code of vsehub
        session = runtime.InferenceSession(tmp_path / "out" / exported[side]["file"])
        outputs += session.run(None, dict(zip(exported[side]["inputs"], inputs, strict=True)))
    wanted = [model.encode_images(split.images).numpy(), model.encode_texts(split.captions).numpy()]
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4)
    units = [
        [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in sides] for sides in (outputs, wanted)
    ]
    ours, theirs = (images @ texts.T for images, texts in units)
    for ranked, scores in ((ours, theirs), (ours.T, theirs.T)):
        order = (-ranked).argsort(axis=1, kind="stable")
        inverted = -np.diff(np.take_along_axis(scores, order, axis=1), axis=1)
        assert inverted.min() > -1e-5  # other positions only where the checkpoint's scores are tied
    assert "overwrite=true" in run_here("export", f"checkpoint={best}", "out=out", status=2)


@pytest.mark.long
@pytest.mark.parametrize("page", ["docs/serve.md", "README.md"])
def test_the_lines_of_the_pages(page, trained, run_here, tmp_path):
    onnx_runtime()
    (tmp_path / "RUN").symlink_to(trained)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "FOLDER").symlink_to(trained)
    (line,) = (line for line in written(page, whole=True) if line[0] == "export")
    run_here(*line)

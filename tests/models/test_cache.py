"""Encodings kept in files: read again for the same weights, data and way of encoding, and for no others."""

import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from looped import looped

import vsehub.models.trained as trained_module
from vsehub.checks import InputError
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import content_digest
from vsehub.models.trained import load_or_encode
from vsehub.types import Preparation

IMAGES = np.random.default_rng(0).random((200, 7), dtype=np.float32)
CAPTIONS = [f"a dog of number {number}" for number in range(200)]
WEIGHTS, HOW = "5a" * 32, "torch.float32, highest, cpu"


@pytest.fixture
def read_again(tmp_path):
    """A function that asks for vectors: whether they came from the file; wrong ones fail."""

    def store(rows, weights=WEIGHTS, how=HOW, side="images", folder=tmp_path / "best.encoded"):
        encoded, added = [], len(how) + int(weights[:2], 16)

        def encode():
            encoded.append(torch.arange(len(rows), dtype=torch.float32)[:, None] + added)
            return encoded[0]

        vectors = load_or_encode(folder / f"test-{side}.safetensors", [weights, content_digest(rows), how], encode)
        assert vectors.tolist() == [[float(row + added)] for row in range(len(rows))]
        return not encoded

    return store


def changed(row, column):
    """The images with the last bit of one number changed."""
    images = IMAGES.copy()
    images.view(np.uint32)[row, column] ^= 1
    return images


@looped(
    "other",
    [
        {"weights": "5b" * 32},
        {"how": HOW.replace("float32", "bfloat16")},
        # Every number counts: 64 rows spread over the data identify them elsewhere, and would miss these.
        *({"rows": changed(row, column)} for row, column in ((0, 0), (1, 3), (100, 6), (198, 0), (199, 6))),
        {"rows": IMAGES[:199]},
        {"rows": IMAGES.astype(np.float16)},
        {"rows": IMAGES.reshape(200, 1, 7)},
        {"rows": IMAGES[::-1]},
        {"rows": CAPTIONS},
    ],
)
def test_others_are_encoded_again_and_replace_them(read_again, other):
    read_again(CAPTIONS, side="texts")
    read_again(IMAGES)
    arguments = {"rows": IMAGES} | other
    assert not read_again(**arguments)
    assert read_again(**arguments)
    assert read_again(CAPTIONS, side="texts")


def test_contents_count():
    """Every caption; of pictures the bytes and the preparation."""

    def pictures(contents="ab", resize=8, how=None):
        made = Pictures(["x", "y"], 8, resize, contents=np.array(list(contents), "S32"))
        return content_digest(made if how is None else made.prepared(how))

    digests = [content_digest([*CAPTIONS[:at], "a cat", *CAPTIONS[at + 1 :]]) for at in range(200)]
    digests += map(content_digest, (CAPTIONS, ["a\nb", "c"], ["a", "b\nc"], ["a", "b", "c"], ["a", "b", "c", ""]))
    digests += [pictures(), pictures("ac"), pictures("ba"), pictures(resize=9), pictures(how=Preparation(8, 8))]
    assert len({*digests, pictures(how=Preparation(8, 8, "squash"))}) == len(digests) + 1


def test_encodings_that_came_with_a_folder_are_made_again(tmp_path, read_again):
    read_again(IMAGES)
    file = tmp_path / "best.encoded" / "test-images.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-4])
    assert not read_again(IMAGES), "it was damaged"
    shutil.move(tmp_path / "best.encoded", tmp_path / "theirs")
    assert not read_again(IMAGES, folder=tmp_path / "theirs")
    file.parent.mkdir()
    file.write_bytes(content)
    assert not read_again(IMAGES)
    (tmp_path / "link.encoded").symlink_to(tmp_path.parent)
    with pytest.raises(InputError, match=r"link\.encoded"):
        read_again(IMAGES, folder=tmp_path / "link.encoded")


def test_the_code_of_your_own_encoder_counts(tmp_path, monkeypatch):
    """The hash is of the file that the class was imported from; weights and data are the same."""

    def way(code):
        file = tmp_path / "own_encoder.py"
        file.write_text(code)
        monkeypatch.setitem(sys.modules, "own_encoder", SimpleNamespace(__file__=str(file)))
        part = type("Own", (torch.nn.Linear,), {"__module__": "own_encoder"})
        return trained_module.DataModel(part(2, 2), None, None, 1, WEIGHTS, "own")._way_of_encoding

    assert way("SCALE = 1") == way("SCALE = 1") != way("SCALE = 2")
    before = way("SCALE = 1")
    (tmp_path / "pooling.py").write_text("# of functions that an encoder imports")
    monkeypatch.setattr(trained_module.encoders, "__file__", str(tmp_path / "__init__.py"))
    assert way("SCALE = 1") != before


def test_a_second_criterion_encodes_nothing(trained, run_here, monkeypatch, tmp_path):
    """Inductive and transductive, in folds and tuned."""
    best = shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path)
    counts = []
    for name in ("encode_images", "encode_texts"):
        whole = getattr(trained_module, name)
        monkeypatch.setattr(
            trained_module, name, lambda *arguments, whole=whole: counts.append(len(arguments[2])) or whole(*arguments)
        )

    def encoded(*settings):
        counts.clear()
        run_here("evaluate", f"checkpoint={best}", "out=there", *settings)
        return len(counts)

    folds = ("protocol=single", "protocol.name=folds", "protocol.fold_images=8", "protocol.folds=3")
    assert encoded("criterion=is", "reference=train") == 4
    assert encoded("criterion=csls", "reference=train", *folds) == 0
    assert encoded("criterion=csls", "tune=true") == 2  # the validation split

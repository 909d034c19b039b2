"""`vsehub search` over a split, a folder and a collection: it finds what a dense ranking finds, and caches soundly."""

import os
import re
import shutil
from functools import partial

import numpy as np
import pytest
from checkpoint_files import changed
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from PIL import Image
from tiny_towers import tiny_hf

from vsehub.cli.overrides import for_hydra
from vsehub.components import Components, conf_folder
from vsehub.criteria import CSLS, DualInvertedSoftmax
from vsehub.models import trained as evaluation_trained
from vsehub.models.trained import TrainedModel
from vsehub.models.zero_shot import ZeroShot

NASTY = 'a "red" circle, it\'s = ${big} [blue]\\'
TEXTS = ["a red circle", "two blue squares"]
NAMES = sorted([f"a/{row}.png" for row in range(1, 20, 2)] + [f"b/c/{row}.png" for row in range(0, 20, 2)])


@pytest.fixture
def checkpoint(trained, tmp_path):
    """A copy of the best checkpoint that may be written beside."""
    return shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path / "best.safetensors")


@pytest.fixture
def model(checkpoint):
    return TrainedModel(checkpoint, Components([conf_folder()]))


@pytest.fixture
def command(run_here, checkpoint):
    """A function that runs `vsehub search` with the checkpoint and returns what it prints."""
    return partial(run_here, "search", f"checkpoint={checkpoint}")


@pytest.fixture
def folder(tmp_path, model):
    """Pictures of the test split as files, some in folders below, beside what is no picture."""
    place = tmp_path / "photos"
    for row, pixels in enumerate(model.split("test").images[:20]):
        below = place / ("a" if row % 2 else "b/c")
        below.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0))).save(below / f"{row}.png")
    for name in ("notes.txt", ".hidden.png"):
        (place / name).touch()
    return place


def lists(out):
    """The names and scores of each printed list."""
    parts = re.split("^ *rank .*$", out, flags=re.MULTILINE)[1:]
    return [[(name, float(score)) for score, name in re.findall(r"^ +\d+ +(\S+) +(\S+)", part, re.M)] for part in parts]


def assert_ranked(out, scores, names, k, corrected=False):
    """The printed lists are the k best of the scores (Q, M). corrected: printed scores lack the query's own term."""
    for printed, row in zip(lists(out), scores, strict=True):
        order = row.argsort(descending=True, stable=True)[:k]
        assert [name for name, _ in printed] == [names[item] for item in order]
        assert corrected or [score for _, score in printed] == pytest.approx(row[order].tolist(), abs=1e-4)


def test_texts_find_what_a_dense_ranking_finds(command, model):
    test, train = model.encode("test"), model.encode("train")
    names, texts = model.split("test").names, ["a red circle", NASTY, "ein big blue square"]
    scores = model.similarity(test.images, model.encode_texts(texts)).T.detach()
    assert_ranked(command(*texts, "k=32"), scores, names, 32)
    reference = model.similarity(test.images, train.texts).T.detach()
    corrected = CSLS(k=10).rescore(scores, reference)
    assert_ranked(command(*texts, "k=5", "criterion=csls"), corrected, names, 5, True)
    bank = model.similarity(test.images, train.images).T.detach()
    corrected = DualInvertedSoftmax().rescore(scores, reference, reference_item_scores=bank)
    assert_ranked(command(*texts, "k=5", "criterion=dual_is"), corrected, names, 5, True)


def test_a_second_search_encodes_nothing_until_something_changed(command, checkpoint, tmp_path, monkeypatch):
    encoded = []
    for name in ("encode_images", "encode_texts"):
        whole = getattr(evaluation_trained, name)

        def counting(encoder, data, positions, *rest, whole=whole, **options):
            encoded.append(len(positions))
            return whole(encoder, data, positions, *rest, **options)

        monkeypatch.setattr(evaluation_trained, name, counting)

    def search(*more):
        encoded.clear()
        return lists(command("a red circle", "criterion=csls", "k=32", *more)), sorted(encoded)

    first, counts = search()
    assert counts == [1, 32, 480]
    assert search() == (first, [1])
    os.truncate(tmp_path / "best.encoded" / "test-images.safetensors", 100)
    assert search() == (first, [1, 32])
    changed(checkpoint, checkpoint, lambda _, weights: weights["text_encoder.words.weight"].mul_(1.5))
    assert search()[1] == [1, 32, 480]
    assert search("data.seed=5")[1] == [1, 32, 480]


def test_a_folder_is_ranked_as_its_pictures_are(command, model, folder):
    rows = np.array([int(name.split("/")[-1].split(".")[0]) for name in NAMES])
    images, texts = model.encode_images(model.split("test").images[rows]), model.encode_texts(TEXTS)
    scores = model.similarity(images, texts).T.detach()
    assert_ranked(command(f"folder={folder}", *TEXTS, "k=50"), scores, NAMES, 20)
    reference = model.similarity(images, model.encode("train").texts).T.detach()
    out = command(f"folder={folder}", *TEXTS, "k=20", "criterion=csls")
    assert_ranked(out, CSLS(k=10).rescore(scores, reference), NAMES, 20, True)


def test_a_published_model_and_a_reference_of_texts(run_here, folder, tmp_path):
    published = ZeroShot(f"hf:{tiny_hf(tmp_path / 'clip')}", None)
    published.use_folder(folder)
    texts = ["a big red box", "the blue circle", "two green", "a box in the circle", "with two red"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    vectors = published.similarity.vectors
    images, queries, reference = map(
        vectors,
        (published._side("folder", "images"), published.encode_texts(["a red circle"]), published.encode_texts(texts)),
    )
    ask = ("search", f"model=hf:{tmp_path / 'clip'}", f"folder={folder}", "a red circle", "k=20")
    assert_ranked(run_here(*ask), queries @ images.T, NAMES, 20)
    out = run_here(*ask, "criterion=csls", "criterion.k=2", f"reference={tmp_path / 'texts.txt'}")
    assert_ranked(out, CSLS(k=2).rescore(queries @ images.T, reference @ images.T), NAMES, 20, True)
    assert "reference" in run_here(*ask, "criterion=csls", status=2)


def test_bad_input(command):
    for arguments, named in (
        ([], "query is"),
        (["circle", "split=dev"], "split is 'dev'"),
        (["circle", "reference=dev", "criterion=csls"], "'dev'"),
        (["circle", "zxqv wvut"], "'zxqv wvut'"),
        (["circle", "criterion=csls+rgm"], "csls.rgm|many queries"),
    ):
        assert re.search(named, command(*arguments, status=2)), arguments


def read(arguments):
    """The values that Hydra and OmegaConf make of the arguments."""
    overrides = OverridesParser.create().parse_overrides(arguments)
    return OmegaConf.to_container(
        OmegaConf.create({override.key_or_group: override.value() for override in overrides}), resolve=True
    )


SIGNS = st.text(alphabet="\\${}'\"[],=:~+ ab\n", min_size=1)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.text(min_size=1), SIGNS), min_size=1, max_size=3))
@example(["a \\${b} \\\\${c}", "it's", "a\\'", "\\", "???", "${", "x: {y}", NASTY])
def test_a_text_reaches_the_command_as_it_was_typed(texts):
    texts = [text for text in texts if not text.startswith("[")]
    assert read(for_hydra("search", [f"query={text}" for text in texts])) == ({"query": texts} if texts else {})


def test_which_arguments_are_texts():
    arguments = [
        "two dogs, running",
        "k=5",
        "x + y=3 more",
        "--cfg",
        "job",
        "+data.root=a b",
        "~image",
        "-m",
        "query=k=5",
    ]
    query = "query=['two dogs, running','x + y=3 more','k=5']"
    assert sorted(for_hydra("search", arguments)) == sorted(
        ["--cfg", "job", "-m", "k=5", "+data.root=a b", "~image", query]
    )

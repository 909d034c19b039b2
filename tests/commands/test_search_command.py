"""`vsehub search`: what it finds is what a dense ranking finds, its cache changes nothing, bad input is told."""

import html
import re
import shlex
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

from vsehub.checks import InputError
from vsehub.cli.overrides import with_texts
from vsehub.cli.searched import ResultPictures
from vsehub.components import Components, conf_folder
from vsehub.criteria import CSLS, DualInvertedSoftmax
from vsehub.data import CaptionedImages, Scenes
from vsehub.data.text.tokens import TokenTable
from vsehub.evaluation import trained as evaluation_trained
from vsehub.evaluation.checkpoint import read_checkpoint, restore
from vsehub.evaluation.encode import encode_split, encode_texts

NASTY = 'a "red" circle, it\'s = ${big} [blue]\\'


@pytest.fixture
def checkpoint(trained, tmp_path):
    """A copy of the best checkpoint that may be written beside."""
    return shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path / "best.safetensors")


@pytest.fixture
def command(run_here):
    """A function that runs `vsehub search` in this process, in a folder of its own, and returns what it prints."""
    return partial(run_here, "search", "out=search", "overwrite=true")


def lists(out):
    """The rows of each list that was printed: (rank, score, ...) as texts."""
    found = []
    for line in out.splitlines():
        if line.startswith("rank"):
            found.append([])
        elif re.match(r" +\d+  ", line):
            found[-1].append(line.split(maxsplit=4))
    return found


class Oracle:
    """The whole ranking of the tiny scenes, dense."""

    def __init__(self, checkpoint):
        read = read_checkpoint(checkpoint)
        self.model, self.vocabulary = restore(read, Components([conf_folder()])), read.vocabulary
        self.source = Scenes(size="tiny")
        self.test = self.encoded("test")

    def encoded(self, split):
        loaded = self.source.load(split)
        table = TokenTable.build(self.vocabulary, loaded.captions)
        return encode_split(self.model.image_encoder, self.model.text_encoder, loaded, table)

    def texts(self, texts):
        table = TokenTable.build(self.vocabulary, texts)
        encoded = encode_texts(self.model.text_encoder, table, np.arange(len(texts)))
        return self.model.similarity(self.test.images, encoded).T.detach()


def test_texts_find_what_a_dense_ranking_finds(command, checkpoint, vsehub, tmp_path):
    oracle = Oracle(checkpoint)
    names = oracle.source.load("test").names
    texts = ["a red circle", NASTY, "ein big blue square"]
    scores = oracle.texts(texts)
    out = vsehub("search", f"checkpoint={checkpoint}", *texts, "k=32", cwd=tmp_path).out
    assert "Not known to the checkpoint: ein" in out
    for rows, row in zip(lists(out), scores, strict=True):
        order = row.argsort(descending=True, stable=True).tolist()
        assert [(int(one[0]), one[2]) for one in rows] == [(n + 1, names[item]) for n, item in enumerate(order)]
        assert [float(one[1]) for one in rows] == pytest.approx([row[item].item() for item in order], abs=1e-4)
    train = oracle.encoded("train")
    reference = oracle.model.similarity(oracle.test.images, train.texts).T.detach()
    corrected = CSLS(k=10).rescore(scores, reference)
    assert (corrected.argsort() != scores.argsort()).any()
    out = command(f"checkpoint={checkpoint}", *texts, "k=5", "criterion=csls", "out=page")
    assert out.count("Criterion csls (k 10), inductive: its reference is the 480 captions of the train split.") == 3
    for rows, row, plain in zip(lists(out), corrected, scores, strict=True):
        order = row.argsort(descending=True, stable=True)[:5].tolist()
        assert [one[3] for one in rows] == [names[item] for item in order]
        assert [float(one[2]) for one in rows] == pytest.approx([plain[item].item() for item in order], abs=1e-4)
    chosen = command(f"checkpoint={checkpoint}", *texts, "k=5", "criterion=auto", "out=auto")
    assert lists(chosen) == lists(out)  # nothing is known to choose by: csls, as the note says
    assert chosen.count("Criterion csls (k 10), inductive") == 3
    out_items = command(f"checkpoint={checkpoint}", *texts, "k=5", "criterion=dual_is", "out=items")
    assert "its reference is the 480 captions of the train split with its 96 images." in out_items
    vectors = oracle.model.similarity.vectors
    bank = (vectors(train.images) @ vectors(oracle.test.images).T).detach()
    corrected = DualInvertedSoftmax().rescore(scores, reference, reference_item_scores=bank)
    for rows, row in zip(lists(out_items), corrected, strict=True):
        order = row.argsort(descending=True, stable=True)[:5].tolist()
        assert [one[3] for one in rows] == [names[item] for item in order]
    alone = command(f"checkpoint={checkpoint}", f"query={NASTY}", "k=5", "criterion=csls")
    assert lists(alone)[0] == lists(out)[1], "a text's ranking depends on its company"
    page = (tmp_path / "page" / "index.html").read_text()
    assert page.count('<img class="thumb" src="data:image/jpeg;base64,') == 15
    assert "it&#39;s = ${big} [blue]\\”</h2>" in page
    assert "<script" not in page
    typed = re.search(r"vsehub search out=search .*?(?=</dd>)", page)[0]
    given = [f"checkpoint={checkpoint}", *texts, "k=5", "criterion=csls", "out=page"]
    assert shlex.split(html.unescape(typed))[4:] == given, "the page's command is not the one that was typed"


def test_an_image_finds_captions(command, checkpoint, tmp_path):
    oracle = Oracle(checkpoint)
    test = oracle.source.load("test")
    scores = oracle.model.similarity(oracle.test.images[7:8], oracle.test.texts)[0].detach()
    out = command(f"checkpoint={checkpoint}", "image=scene-test-000007", "k=160")
    order = scores.argsort(descending=True, stable=True).tolist()
    rows = [line.split(maxsplit=2)[2] for line in out.splitlines() if re.match(r" +\d+  ", line)]
    wanted = [("* " if test.image_index[item] == 7 else "") + test.captions[item] for item in order]
    assert rows == wanted
    assert sum(row.startswith("* ") for row in rows) == 5
    assert "5 of its 5 own captions are among the 160 nearest." in out
    assert (tmp_path / "search" / "index.html").read_text().count("its own</em>") == 5
    again = command(f"checkpoint={checkpoint}", "image=7", "k=160")
    assert [line for line in again.splitlines() if not line.startswith("encodings of ")] == out.splitlines()
    both = command(f"checkpoint={checkpoint}", "image=7", "a red circle", "k=3", "criterion=csls")
    assert "its reference is the 96 images of the train split" in both
    assert len(lists(both)) == 2


def test_a_second_search_encodes_nothing_until_something_changed(command, checkpoint, tmp_path, monkeypatch):
    encoded = []
    for name in ("encode_images", "encode_texts"):
        whole = getattr(evaluation_trained, name)

        def counting(encoder, data, rows, *rest, whole=whole, **options):
            encoded.append(len(rows))
            return whole(encoder, data, rows, *rest, **options)

        monkeypatch.setattr(evaluation_trained, name, counting)

    def search(*more):
        encoded.clear()
        found = lists(command(f"checkpoint={checkpoint}", "a red circle", "criterion=csls", "k=32", *more))
        return found, sorted(encoded)

    first, counts = search()
    assert counts == [1, 32, 480]
    assert search() == (first, [1])
    kept = tmp_path / "best.encoded" / "test-images.safetensors"
    kept.write_bytes(kept.read_bytes()[:100])
    assert search() == (first, [1, 32])
    assert search("data.seed=5")[1] == [1, 32, 480]
    changed(checkpoint, checkpoint, lambda _, weights: weights["text_encoder.words.weight"].mul_(1.5))
    assert search("data.seed=5")[1] == [1, 32, 480]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there is nothing to search for"),
        (["circle", "k=33"], "k is 33; .* 32"),
        (["circle", "k=0"], "k is 0"),
        (["circle", "split=dev"], "split is 'dev'"),
        (["circle", "reference=queries"], "reference is 'queries'"),
        (["circle", "data.rooot=x"], "data.rooot"),
        (["image=scene-test-000123"], r"'scene-test-000123' \(did you mean scene-test-0000.*from 0 to 31"),
        (["image='scene, with = signs'"], "no image 'scene, with = signs'"),
        (["circle", "zxqv wvut"], "knows no word of the text 'zxqv wvut'"),
        (["?!"], r"knows no word of the text '\?!'"),
        (["circle", "images=absent"], "images: .* absent"),
        (["circle", "criterion=rgm"], "RelaxedGreedyMatching matches many queries"),
        (["circle", "criterion=csls+rgm"], "Chain matches many queries"),
        (["circle", "checkpoint=null"], "checkpoint is not set"),
        (["circle", "checkpoint=absent.safetensors"], "absent.safetensors"),
        (["circle", "checkpoint=short.safetensors"], "cannot be read"),
    ],
)
def test_bad_input(command, checkpoint, tmp_path, arguments, message):
    (tmp_path / "short.safetensors").write_bytes(b"PK")
    own = [] if "checkpoint=" in str(arguments) else [f"checkpoint={checkpoint}"]
    said = command(*own, *arguments, status=2)
    assert re.search(message, said), said
    assert not (tmp_path / "search").exists()


def read(arguments):
    """The values that Hydra and OmegaConf make of the arguments."""
    overrides = OverridesParser.create().parse_overrides(arguments)
    return OmegaConf.to_container(OmegaConf.create({one.key_or_group: one.value() for one in overrides}), resolve=True)


SIGNS = st.text(alphabet="\\${}'\"[],=:~+ ab\n", min_size=1)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.text(min_size=1), SIGNS), min_size=1, max_size=3))
@example(["a \\${b} \\\\${c}", "it's", "a\\'", "\\", "???", "${", "x: {y}", NASTY])
def test_a_text_reaches_the_command_as_it_was_typed(texts):
    texts = [text for text in texts if not text.startswith("[")]
    assert read(with_texts([f"query={text}" for text in texts], "query")) == ({"query": texts} if texts else {})


def test_which_arguments_are_texts():
    given = ["two dogs, running", "k=5", "x + y=3 more", "--cfg", "job", "+data.root=a b", "~image", "-m", "query=k=5"]
    rest, texts = (
        ["k=5", "--cfg", "job", "+data.root=a b", "~image", "-m"],
        ["two dogs, running", "x + y=3 more", "k=5"],
    )
    assert with_texts(given, "query") == [*rest, "query=[" + ",".join(f"'{text}'" for text in texts) + "]"]
    assert with_texts(["query=[a,'b c']", "k=5"], "query") == ["query=[a,'b c']", "k=5"]


def test_pictures_from_a_folder_by_the_names_of_the_data(tmp_path):
    features, captions, index = np.ones((4, 6), np.float32), [f"caption {n}" for n in range(8)], np.arange(8) // 2
    split = CaptionedImages(features, captions, index, ["a.png", "b", "c.jpg", "d.jpg"])
    for name in ("a.png", "b.png"):
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    (tmp_path / "c.jpg").write_text("no picture")
    pictures = ResultPictures(split, str(tmp_path))
    assert [bool(pictures.thumbnail(row)) for row in range(4)] == [True, True, False, False]
    assert pictures.thumbnails.missing == ["c.jpg", "d.jpg"]
    with pytest.raises(InputError, match="found by ids, which images does not have"):
        ResultPictures(CaptionedImages(features, captions, index), str(tmp_path))

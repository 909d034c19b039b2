"""True captions against false ones: against loops, with ties, and what is said of files that cannot be used."""

import csv

import numpy as np
import pytest
import torch
from looped import looped
from torch import nn

from vsehub.checks import InputError
from vsehub.data.foils import read_foils, unknown_words
from vsehub.data.text.tokens import TokenTable
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.evaluation.foils import distinct, foil_metrics, foil_scores
from vsehub.sets import Sets
from vsehub.similarities import Cosine, CrossAttention, Order

WORDS = ["red", "blue", "green", "small", "large", "circle", "star", "moon", "on", "the"]
VOCABULARY = Vocabulary.build([" ".join(WORDS)], 1)


class Texts(nn.Module):
    """Word vectors' mean, or the words as a set; notes how many texts it has seen."""

    def __init__(self, sets):
        super().__init__()
        self.words, self.sets, self.seen = nn.Embedding(len(VOCABULARY), 6), sets, 0

    def forward(self, texts, lengths):
        self.seen += len(texts)
        vectors = self.words(texts)
        if self.sets:
            return Sets.from_padded(vectors, lengths)
        inside = torch.arange(texts.shape[1]) < lengths[:, None]
        return (vectors * inside[:, :, None]).sum(dim=1) / lengths[:, None]


class Images(nn.Module):
    def __init__(self, sets):
        super().__init__()
        self.turn, self.sets, self.seen = nn.Linear(5, 6), sets, 0

    def forward(self, images):
        self.seen += len(images)
        vectors = self.turn(images)
        return Sets.from_padded(vectors, torch.full((len(images),), 3)) if self.sets else vectors[:, 0]


def drawn(pairs, images, seed=0):
    """Random pairs, in no order of images, some images without any, some with many; captions that come again."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.choice(WORDS, size=rng.integers(1, 6))) for _ in range(2 * pairs)]
    texts[pairs : pairs + 3] = texts[:3]
    return rng.integers(images, size=pairs) // 2 * 2, texts


@looped(
    ("similarity", "sets"),
    [(Cosine(), False), (Order(), False), (CrossAttention("t2i"), True), (CrossAttention("i2t"), True)],
)
@looped("pairs", [1, 60])
def test_equals_loops_and_encodes_each_once(similarity, sets, pairs):
    torch.manual_seed(0)
    rows, texts = drawn(pairs, images=20)
    if pairs == 1:
        texts = texts[:2]
    pictures = np.random.default_rng(1).normal(size=(20, 3, 5)).astype(np.float32)
    image_encoder, text_encoder = Images(sets).eval(), Texts(sets).eval()
    scores = foil_scores(
        (image_encoder, text_encoder), similarity, pictures, rows, TokenTable.build(VOCABULARY, texts), 7
    )
    assert image_encoder.seen == len(set(rows))
    assert text_encoder.seen == len(set(texts))
    with torch.no_grad():
        for pair, row in enumerate(rows):
            for side, text in enumerate((texts[pair], texts[pairs + pair])):
                words = torch.tensor([VOCABULARY.encode(text)])
                alone = text_encoder(words, torch.tensor([words.shape[1]]))
                expected = similarity(image_encoder(torch.from_numpy(pictures[row : row + 1])), alone)
                assert scores[pair, side].item() == pytest.approx(expected.item(), abs=1e-5)
    if pairs > 1:
        assert torch.equal(scores[:3, 0], scores[:3, 1])


def test_texts_that_read_alike_are_one():
    """Words that the vocabulary lacks, and upper case, are nothing to the model: to the bit."""
    table = TokenTable.build(VOCABULARY, ["a yak", "A  gnu!", "red star", "star red", "Red star."])
    firsts, where = distinct(table)
    assert (firsts.tolist(), where.tolist()) == ([0, 2, 3], [0, 0, 1, 2, 1])
    assert unknown_words(VOCABULARY, ["a yak, a gnu", "red gnu"]) == {"a": 1, "yak": 1, "gnu": 2}


def test_figures_by_loops_and_ties_are_wrong():
    scores = torch.tensor([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0], [-1.0, -2.0], [float("-inf"), 0.0]])
    types = ["colour", "colour", "size", "size", "size"]
    found = foil_metrics(scores, types)
    assert list(found) == ["all", "colour", "size"]
    for name, one in found.items():
        mine = [pair for pair, kind in zip(scores.tolist(), types, strict=True) if name in ("all", kind)]
        right = sum(caption > foil for caption, foil in mine)
        assert (one["pairs"], one["right"], one["ties"]) == (len(mine), right, sum(a == b for a, b in mine))
        assert one["share"] == 100 * right / len(mine)
    assert list(foil_metrics(scores)) == ["all"]


@looped(("right", "pairs"), [(0, 1), (1, 1), (0, 7), (7, 7), (3, 7), (812, 1000), (99_480, 99_480)])
def test_the_interval_is_wilsons(right, pairs):
    """The shares p at which the observed share lies 1.96 standard errors from p: the roots of a quadratic."""
    scores = torch.zeros(pairs, 2)
    scores[:right, 0] = 1.0
    found = foil_metrics(scores)["all"]
    z, share = 1.959963984540054, right / pairs
    roots = np.roots([1 + z**2 / pairs, -2 * share - z**2 / pairs, share**2])
    assert (found["low"], found["high"]) == pytest.approx(sorted(100 * roots.real), abs=1e-5)


def written(tmp_path, *rows, header=("image", "caption", "foil", "type")):
    path = tmp_path / "foils.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_reads_names_rows_and_columns_in_any_order(tmp_path):
    names = ["b.jpg", "a.jpg", "7"]
    rows = [("size", "a, b and\nc", "a.jpg", "d"), ("colour", "e", "7", " f ")]
    named = read_foils(written(tmp_path, *rows, header=("type", "caption", "image", "foil")), 3, names)
    assert (named.images.tolist(), named.captions) == ([1, 2], ["a, b and\nc", "e"])
    assert (named.foils, named.types) == (["d", "f"], ["size", "colour"])
    path = written(tmp_path, ("2", "a", "b"), ("0", "a", "c"), header=("image", "caption", "foil"))
    for known in (None, ["x.jpg", "y.jpg", "z.jpg"]):
        numbered = read_foils(path, 3, known)
        assert (numbered.images.tolist(), numbered.types) == ([2, 0], None)


def test_other_tables(tmp_path):
    """A row number may be a number where the table has numbers."""
    (tmp_path / "f.jsonl").write_text('{"image": 2, "caption": "a", "foil": "b"}\n\n{"image": 0, "caption": "c"}\n')
    with pytest.raises(InputError, match=r"f.jsonl: line 3 has no foil. Give every pair one"):
        read_foils(tmp_path / "f.jsonl", 3)
    (tmp_path / "f.tsv").write_text("image\tcaption\tfoil\n1\ta, b\tc\n")
    found = read_foils(tmp_path / "f.tsv", 3)
    assert (found.images.tolist(), found.captions, found.foils, found.types) == ([1], ["a, b"], ["c"], None)


@pytest.mark.parametrize(
    ("rows", "names", "said"),
    [
        ([], None, "has no pairs"),
        ([("0", "a", "b", "x"), ("0", " a", "a ", "x")], None, "line 3 has a foil that is the caption itself"),
        ([("0", "a", " ", "x")], None, "line 2 has no foil"),
        ([("0", "a", "b", "")], None, "line 2 has no type"),
        ([("3", "a", "b", "x")], None, "line 2 names images that the split does not have. It has 3, numbered from 0"),
        ([("-1", "a", "b", "x")], None, "numbered from 0, without names"),
        ([("²", "a", "b", "x")], None, "numbered from 0, without names"),
        ([("a.jpg", "a", "b", "x")] + [("0", "a", "b", "x")] * 7, ["a.jpg"] * 3, r"3, 4, 5, 6, 7, \.\.\. \(7 in all\)"),
        ([("c.jpg", "a", "b", "x")], ["a.jpg", "b.jpg", "d.jpg"], "or named as 'a.jpg'"),
        ([("0", "a", "b")], None, ":2: 3 entries; expected 4"),
        ([("0", "a", "b", "x", "y")], None, ":2: 5 entries; expected 4"),
    ],
)
def test_bad_pairs(tmp_path, rows, names, said):
    with pytest.raises(InputError, match=said):
        read_foils(written(tmp_path, *rows), 3, names)


def test_captions_of_any_length(tmp_path):
    """Longer than the csv module's 131,072 characters; with a quote that is never closed it is said so."""
    long = "word " * 50_000
    path = written(tmp_path, ("0", long, "b", "x"), ("1", "a", long + "c", "y"))
    assert read_foils(path, 3).captions == [long.strip(), "a"]
    path.write_text(path.read_text() + '2,"a,b,x\n' + long)
    with pytest.raises(InputError, match=r"foils.csv:5: unexpected end of data. Put entries with separators"):
        read_foils(path, 3)
    assert csv.field_size_limit() == 131_072


def test_bad_files(tmp_path):
    path = written(tmp_path, ("0", "a", "b"), header=("image", "caption", "false"))
    with pytest.raises(InputError, match="no column 'foil'"):
        read_foils(path, 3)
    path.write_bytes(b"image,caption,foil\n0,caf\xe9,b\n")
    with pytest.raises(InputError, match=r"foils.csv:2: byte 0xe9 is not UTF-8"):
        read_foils(path, 3)
    path.write_bytes(b"")
    with pytest.raises(InputError, match=r"foils.csv is empty; expected a table with the columns image, caption, foil"):
        read_foils(path, 3)
    with pytest.raises(InputError, match="no such file or folder"):
        read_foils(tmp_path / "absent.csv", 3)

import logging
import zlib

import numpy as np
import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data import SplitDraw
from vsehub.data.contents import warn_of_shared
from vsehub.data.pairs import Pairs, draw_pairs

IMAGES, TEXTS, DIM = 9, 12, 5
SIDES = {"images": (IMAGES, 4), "texts": (TEXTS, DIM)}
# (text, image): text 3 belongs to three images, image 2 to three texts, one pair comes twice, the order is nobody's.
TRAIN = [(3, 7), (0, 2), (3, 2), (3, 7), (5, 2), (3, 0), (1, 1)]
TEST = [(11, 8), (10, 8)]


def arrays(dtype=np.float32):
    generator = np.random.default_rng(0)
    return {side: generator.normal(size=shape).astype(dtype) for side, shape in SIDES.items()}


def table(path, pairs, header="query,item"):
    path.write_text("\n".join([header, *(f"{query},{item}" for query, item in pairs)]) + "\n")
    return path


@pytest.fixture
def folder(tmp_path):
    for side, array in arrays().items():
        np.save(tmp_path / f"{side}.npy", array)
    for split, pairs in (("train", TRAIN), ("val", [(7, 4), (7, 5)]), ("test", TEST)):
        table(tmp_path / f"{split}.csv", pairs)
    return tmp_path


def source(folder, *splits, **settings):
    tables = {"splits": {split: folder / f"{split}.csv" for split in splits}}
    return Pairs(**({side: folder / f"{side}.npy" for side in SIDES} | tables | settings))


def pairs_of(split):
    """A split's pairs as (text row, image row) of the files, each once."""
    rows = {side: {row.tobytes(): number for number, row in enumerate(array)} for side, array in arrays().items()}
    named = [
        (rows["texts"][split.captions[text].tobytes()], rows["images"][split.images[image].tobytes()])
        for image, text in split.pairs
    ]
    assert len(set(named)) == len(named)
    return set(named)


def test_a_split_holds_the_rows_of_its_pairs(folder):
    split = source(folder, "train", "val", "test").load("train")
    assert pairs_of(split) == set(TRAIN)
    for column in (0, 1):
        assert sorted(set(split.pairs[:, column])) == list(range(4))
    for side, rows, vectors in (("images", [0, 1, 2, 7], split.images), ("texts", [0, 1, 3, 5], split.captions)):
        np.testing.assert_array_equal(vectors, arrays()[side][rows])
    assert split.names is None
    assert not isinstance(split.captions, list)


def test_ids(folder):
    """Words with commas and quotes, numbers as words."""
    words = ["a", "b", "7", "c,d", 'e"f', "é", "g", "0", "a b"]
    np.savez(folder / "images.npz", vectors=arrays()["images"], ids=np.array(words))
    table(folder / "train.csv", [(1, "7"), (0, '"c,d"'), (0, '"e""f"'), (4, "0")])
    split = source(folder, "train", images=folder / "images.npz").load("train")
    assert split.names == ["7", "c,d", 'e"f', "0"]
    assert pairs_of(split) == {(1, 2), (0, 3), (0, 4), (4, 7)}


def groups_by_search(pairs):
    """Which group of connected pairs each belongs to, grown pair by pair."""
    group = list(range(len(pairs)))
    changed = True
    while changed:
        changed = False
        for n, pair in enumerate(pairs):
            for m, other in enumerate(pairs):
                if (pair[0] == other[0] or pair[1] == other[1]) and group[n] != group[m]:
                    group[n] = group[m] = min(group[n], group[m])
                    changed = True
    return group


@looped("seed", range(8))
@looped("shares", [{"test": 0.15, "val": 0.1}, {"test": 0.3, "val": 0.0}, {"test": 0.0, "val": 0.0}])
def test_drawn_splits_have_nothing_in_common(seed, shares):
    generator = np.random.default_rng(seed)
    pairs = np.unique(np.stack([generator.integers(0, 70, 60), generator.integers(0, 50, 60)], axis=1), axis=0)
    splits = draw_pairs(pairs, SplitDraw(**shares, seed=seed), "table")
    assert set(splits) == {"train"} | {split for split, share in shares.items() if share}
    together = np.concatenate(list(splits.values()))
    np.testing.assert_array_equal(np.unique(together, axis=0), pairs)
    assert len(together) == len(pairs)
    where = {tuple(pair): split for split, rows in splits.items() for pair in rows.tolist()}
    owners = {}
    for pair, group in zip(pairs.tolist(), groups_by_search(pairs.tolist()), strict=True):
        assert owners.setdefault(group, where[tuple(pair)]) == where[tuple(pair)]
    for split, share in shares.items():
        assert len(splits.get(split, [])) <= share * len(pairs)
    again = draw_pairs(pairs, SplitDraw(**shares, seed=seed), "table")
    assert all(np.array_equal(again[split], rows) for split, rows in splits.items())


def test_one_to_one_pairs_are_drawn_to_their_shares():
    pairs = np.stack([np.arange(200), np.arange(200)[::-1]], axis=1)
    sets = [draw_pairs(pairs, SplitDraw(0.2, 0.1, seed), "table") for seed in (0, 1)]
    assert [{split: len(rows) for split, rows in splits.items()} for splits in sets] == [
        {"train": 140, "val": 40, "test": 20}
    ] * 2
    assert zlib.crc32(sets[0]["test"].astype(np.int64).tobytes()) == 2169851070, "no version may draw others"
    assert not np.array_equal(sets[0]["test"], sets[1]["test"])


def test_a_group_of_most_pairs_stays_in_train():
    star = [(0, text) for text in range(30)]
    splits = draw_pairs(np.array(star + [(item, item + 40) for item in range(1, 21)]), SplitDraw(), "table.csv")
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 40, "val": 5, "test": 5}
    assert (splits["train"][:, 0] == 0).sum() == 30
    with pytest.raises(InputError, match=r"table\.csv"):
        draw_pairs(np.array(star), SplitDraw(), "table.csv")


def test_a_pair_in_two_tables_is_refused_and_shared_rows_are_counted(folder, caplog):
    table(folder / "test.csv", [(11, 8), (3, 2), (5, 2), (1, 2)])
    with pytest.raises(InputError, match=r"test.csv: 2 pairs .*train.csv"):
        source(folder, "train", "val", "test").load("val")
    table(folder / "test.csv", [(3, 8), (5, 0), (5, 7), (6, 6)])
    several = source(folder, "train", "val", "test")
    with caplog.at_level(logging.WARNING):
        warn_of_shared({split: several.load(split) for split in ("train", "test")})
    assert [record.args[:3] for record in caplog.records] == [(2, 4, "test"), (2, 3, "test")]


@looped(
    ("pairs", "named"), [([(0, 0), (1, 9)], "item .*'9' in row 1"), ([(12, 0)], "'12'"), ([(0, "x")], "'x'"), ([], "")]
)
def test_bad_tables(folder, pairs, named):
    table(folder / "train.csv", pairs)
    with pytest.raises(InputError, match=f"train.csv.*{named}"):
        source(folder, "train", "val").load("val")


@looped(
    ("settings", "named"),
    [
        ({}, "splits"),
        ({"splits": {"train": "train.csv"}, "pairs": "train.csv"}, "splits"),
        ({"splits": {"train": "absent.csv"}}, r"train: .*absent\.csv"),
        ({"pairs": "train.csv", "images": "absent.npy"}, r"images: .*absent\.npy"),
    ],
)
def test_bad_settings(folder, monkeypatch, settings, named):
    monkeypatch.chdir(folder)
    with pytest.raises(InputError, match=named):
        Pairs(**{"images": "images.npy", "texts": "texts.npy"} | settings)

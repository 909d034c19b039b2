"""Vectors without the mean of their kind, against loops over the rows."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.neighbors import KindMeans, Kinds, kinds


def rows_of(source, *bounds):
    return torch.cat([source.rows(start, stop) for start, stop in itertools.pairwise(bounds)]).numpy()


def naive(items, names, unit):
    """Each row less the mean of the rows of its kind, one by one."""
    found = []
    for row, name in zip(items, names, strict=True):
        alike = [one for one, other in zip(items, names, strict=True) if other == name]
        left = row - sum(alike) / len(alike)
        length = np.sqrt((left**2).sum())
        found.append(left / length if unit and length > 1e-6 else left)
    return np.array(found)


@pytest.mark.parametrize(
    "names",
    [
        ["text"] * 9,
        ["text", "picture"] * 4 + ["text"],
        ["picture"] * 7 + ["text"] * 2,
        ["picture"] * 8 + ["text"],
        ["b", "a", "c", "c", "a", "b", "b", "b", "a"],
    ],
    ids=["one kind", "two", "unequal", "a kind with one item", "three"],
)
@pytest.mark.parametrize("unit", [True, False])
def test_against_a_loop(names, unit, monkeypatch):
    monkeypatch.setattr(kinds, "BLOCK", 4)
    random = np.random.default_rng(0)
    items, queries = random.normal(size=(9, 5)) + 2, random.normal(size=(6, 5)) - 1
    given = Kinds.named(names)
    means = KindMeans.of(given, items, queries, unit)
    assert np.allclose(rows_of(means.items(items, given), 0, 2, 7, 9), naive(items, names, unit), atol=1e-5)
    assert np.allclose(rows_of(means.queries(queries), 0, 5, 6), naive(queries, ["query"] * 6, unit), atol=1e-5)
    assert given.counts.tolist() == [names.count(one) for one in sorted(set(names))]
    middle = {one: items[[name == one for name in names]].mean(axis=0) for one in given.names}
    gaps = means.gaps()
    assert np.allclose(gaps["from_queries"], [np.linalg.norm(one - queries.mean(axis=0)) for one in middle.values()])
    assert gaps["widest"] == pytest.approx(max(np.linalg.norm(a - b) for a in middle.values() for b in middle.values()))


def test_copies_of_one_vector_leave_nothing():
    items = np.full((4, 3), 1 / 3, np.float32)
    given = Kinds.named(["a"] * 4)
    assert not KindMeans.of(given, items, items).items(items, given).rows(0, 4).any()


def test_new_items_lose_the_stored_means(tmp_path):
    random = np.random.default_rng(1)
    items, queries = random.normal(size=(2, 8, 4)).astype(np.float32)
    names = ["picture", "text"] * 4
    means = KindMeans.of(Kinds.named(names), items, queries, unit=False)
    means.save(tmp_path / "means.npz")
    read = KindMeans.read(tmp_path / "means.npz")
    assert (read.names, read.unit) == (("picture", "text"), False)
    new = random.normal(size=(3, 4)).astype(np.float32)
    found = read.items(new, Kinds.named(["text"] * 3)).rows(0, 3).numpy()
    assert np.allclose(found, new - items[1::2].mean(axis=0), atol=1e-6)
    with pytest.raises(InputError, match=r"item_kinds: 'txt' is no kind \(did you mean text\?\); there are means of"):
        read.items(new, Kinds.named(["text", "txt", "text"]))
    with pytest.raises(InputError, match="2 kinds of 3 items"):
        read.items(new, Kinds.named(["text", "text"]))
    with pytest.raises(InputError, match="shape"):
        read.queries(new[:, :2])
    stored = {"kinds": np.array(["a"]), "means": np.zeros((2, 4), np.float32), "queries": new[0], "unit": 1}
    np.savez(tmp_path / "means.npz", version=2, **stored)
    with pytest.raises(InputError, match=r"is of version 2 of its format, .* Or run rerank again"):
        KindMeans.read(tmp_path / "means.npz")
    np.savez(tmp_path / "means.npz", version=1, **stored)
    with pytest.raises(InputError, match="its arrays do not fit each other"):
        KindMeans.read(tmp_path / "means.npz")
    np.savez(tmp_path / "means.npz", means=np.zeros((2, 4), np.float32))
    with pytest.raises(InputError, match="that rerank wrote"):
        KindMeans.read(tmp_path / "means.npz")
    replace(means, names=("\x1b[2J", "text")).save(tmp_path / "means.npz")
    with pytest.raises(InputError, match="do not fit each other"):
        KindMeans.read(tmp_path / "means.npz")
    (tmp_path / "means.npz").write_text("no archive")
    with pytest.raises(InputError, match="that rerank wrote"):
        KindMeans.read(tmp_path / "means.npz")


def test_what_are_no_kinds():
    with pytest.raises(InputError, match=r"30 items are of 30 kinds, '0' for example; expected at most 20"):
        Kinds.named([str(one) for one in range(30)])
    for name in ("two\nlines", "x" * 101):
        with pytest.raises(InputError, match="expected at most 100, all of them printable"):
            Kinds.named([name, "b"])
    with pytest.raises(InputError, match="'a' has a single item"):
        Kinds.named(["b", "a", "b"]).require_several()

import re

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.data.vectors import embeddings as vectors
from vsehub.data.vectors.embeddings import look_through, open_vectors, same_space


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(vectors, "_BLOCK_BYTES", 2 * 3 * 4)


def matrix(rows=7, dim=3):
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)


def refused(action, *arguments):
    with pytest.raises(InputError) as caught:
        action(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy, "file"], ids=["numpy", "torch", "file"])
def test_bad_rows_are_numbered_and_counted(tmp_path, make):
    array = matrix(100)
    array[7, 1], array[50, 0], array[51] = np.nan, -np.inf, (np.inf, np.nan, 1)
    array[[1, 2, 3, 5, 8, 13, 99]] = -0.0
    np.save(tmp_path / "v.npy", array)
    for normalize in (None, True, False):
        given = open_vectors(tmp_path / "v.npy" if make == "file" else make(array), "items", normalize=normalize)
        message = refused(look_through, given)
        assert message.startswith(f"items ({tmp_path}/v.npy): of " if make == "file" else "items: of ")
        assert (
            "of 100 rows, counted from 0: rows 7, 51 hold NaN; row 50 holds infinite values; rows 1, 2, 3, 5, 8, ... (7"
            in message
        )


def test_extreme_rows_are_normalised_exactly():
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    array = np.array(
        [[tiny, 0], [3 * tiny, 4 * tiny], [huge, huge], [-3e-20, 4e-20], [3, 4], [3e30, -4e30]], np.float32
    )
    given = open_vectors(array, normalize=True)
    norms = look_through(given)
    assert norms.least == tiny
    assert norms.most == pytest.approx(float(huge) * 2**0.5)
    expected = [[1, 0], [0.6, 0.8], [0.5**0.5] * 2, [-0.6, 0.8], [0.6, 0.8], [0.6, -0.8]]
    torch.testing.assert_close(given.rows(0, 6), torch.tensor(expected))
    torch.testing.assert_close(given.take([4, 0]), torch.tensor([[0.6, 0.8], [1, 0]]))
    wide = open_vectors(np.array([[1e300, 0.0], [0.0, 1e-300]]))
    assert "of 2 rows as float32, counted from 0: row 0 holds infinite values; row 1 holds only zeros." in refused(
        look_through, wide
    )


def test_norms_are_unit_or_said():
    array = matrix(100, 16)
    array /= np.linalg.norm(array, axis=1, keepdims=True)
    assert look_through(open_vectors(array)).unit_share == 1
    array[3] *= 1.002
    message = refused(look_through, open_vectors(array, "queries"))
    assert re.search(
        r"lie between 1 and 1.002; 1 of 100 differ from 1 by more than 0.001 \(rows, counted from 0: 3\). Set ", message
    )
    assert "normalize=True) to divide" in message
    assert "or false to take" in message
    halves = look_through(open_vectors(array.astype(np.float16)))
    assert halves.tolerance == 1e-2
    assert halves.unit_share == 1
    as_they_are = look_through(open_vectors(array, normalize=False))
    assert as_they_are.unit_share == pytest.approx(0.99)
    assert as_they_are.most == pytest.approx(1.002)
    assert look_through(open_vectors(array, normalize=True)) == as_they_are, "the norms are those of the file"
    assert open_vectors(array, normalize=True).rows(3, 4).norm() == pytest.approx(1)
    assert torch.equal(open_vectors(array, normalize=False).rows(3, 4), torch.from_numpy(array[3:4]))


@looped(
    ("shapes", "advice"),
    [
        ([(9, 4), (7, 5)], "Give vectors of the same model"),
        ([(9, 4), (9, 5)], "Give vectors of the same model"),
        ([(4, 9), (7, 4)], "as if the queries were transposed"),
        ([(9, 4), (4, 7)], "as if the items were transposed"),
        ([(4, 9), (9, 4)], "as if the (queries or the items|items or the queries) were transposed"),
        ([(4, 9), (4, 7)], "as if the queries and items were transposed"),
        ([(9, 4), (7, 4), (4, 8)], "as if the reference were transposed"),
        ([(4, 9), (7, 4), (4, 8)], "as if the queries and reference were transposed"),
        ([(9, 4), (7, 4), (8, 5)], "Give vectors of the same model"),
    ],
)
def test_one_space(shapes, advice):
    given = [open_vectors(np.ones(shape), name) for name, shape in zip(("queries", "items", "reference"), shapes)]  # noqa: B905
    message = refused(same_space, *given)
    assert re.search(advice, message)
    for one, shape in zip(given, shapes, strict=True):
        assert f"{one.name}: {shape[0]} rows of {shape[1]} numbers" in message
    same_space(open_vectors(np.ones((9, 4))), open_vectors(np.ones((7, 4))), open_vectors(np.ones((1, 4))))

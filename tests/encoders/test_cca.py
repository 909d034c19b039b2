"""The bag of words against counting by hand, CCA against the generalised eigenproblem that defines it."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import linalg, sparse

from vsehub.encoders import TextBag
from vsehub.encoders.cca import Cca, tf_idf

SPECIALS = 4


def table(captions):
    tokens = np.array([word for caption in captions for word in caption], dtype=np.int32)
    return tokens, np.concatenate([[0], np.cumsum([len(caption) for caption in captions])])


def padded(captions):
    longest = max(map(len, captions))
    texts = torch.tensor([[*caption, *[0] * (longest - len(caption))] for caption in captions])
    return texts, torch.tensor([len(caption) for caption in captions])


CAPTIONS = [[1, 4, 5, 4, 2], [1, 6, 2], [1, 3, 2], [1, 4, 4, 4, 3, 7, 2], [1, 5, 2], [1, 5, 6, 7, 8, 2]]


def test_tf_idf_by_counting():
    unit, weights = tf_idf(*table(CAPTIONS), words=10)
    holding = Counter(word for caption in CAPTIONS for word in set(caption))
    expected = np.zeros((len(CAPTIONS), 6))
    for row, caption in enumerate(CAPTIONS):
        for word, count in Counter(caption).items():
            if word >= SPECIALS:
                expected[row, word - SPECIALS] = count * math.log(len(CAPTIONS) / holding[word])
        expected[row] /= np.linalg.norm(expected[row]) or 1
    assert np.allclose(unit.toarray(), expected, atol=1e-12)
    assert weights[:SPECIALS].tolist() == [0] * SPECIALS
    assert weights[4] == pytest.approx(math.log(6 / 2))
    assert not expected[2].any()  # a caption without known words
    assert weights[9] == pytest.approx(math.log(6))  # a word that no caption has


def test_a_bag_is_a_linear_map_of_tf_idf():
    unit, weights = tf_idf(*table(CAPTIONS), words=10)
    bag = TextBag(10, dim=3).eval()
    bag.weights.copy_(weights)
    torch.nn.init.normal_(bag.bias)
    expected = torch.from_numpy(unit.toarray()).float() @ bag.words.weight[SPECIALS:] + bag.bias
    assert torch.allclose(bag(*padded(CAPTIONS)), expected, atol=1e-6)


@pytest.fixture
def pairs_of():
    """Images and texts of one latent variable, with texts of several images and images of several texts."""
    random = np.random.default_rng(3)
    latent = random.normal(size=(40, 3))
    images = latent @ random.normal(size=(3, 7)) + 0.3 * random.normal(size=(40, 7)) + 1
    texts = latent @ random.normal(size=(3, 5)) + 0.3 * random.normal(size=(40, 5)) - 2
    pairs = np.concatenate([np.stack([np.arange(40)] * 2, axis=1), [[0, 1], [0, 2], [5, 9]]])
    return images.astype(np.float32), texts.astype(np.float32), pairs


def normalize(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1)


def oracle(images, texts, image, text):
    """Correlations and the covariances of repeated unit rows, from the generalised eigenproblem of Hotelling."""
    sides = [normalize(rows.astype(np.float64)) for rows in (images, texts)]
    sides = [rows - rows.mean(axis=0) for rows in sides]
    covariances = [rows.T @ rows / len(rows) for rows in sides]
    covariances = [
        covariance + share * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        for covariance, share in zip(covariances, (image, text), strict=True)
    ]
    between = sides[0].T @ sides[1] / len(sides[0])
    squares = linalg.eigh(between @ np.linalg.solve(covariances[1], between.T), covariances[0], eigvals_only=True)[::-1]
    return np.sqrt(squares.clip(0)), covariances, between


@pytest.mark.parametrize(("image", "text", "few"), [(0.01, 0.01, False), (1.0, 3.0, False), (0.5, 0.5, True)])
def test_cca_solves_the_eigenproblem(pairs_of, image, text, few):
    images, texts, pairs = pairs_of
    if few:  # unit rows of a sparse array, one of them without a word
        texts = normalize(texts * (texts > -2) * (np.arange(40) != 3)[:, None])
    fitted = Cca(images, sparse.csr_array(texts) if few else texts, pairs).fit(image, text)
    correlations, within, between = oracle(images[pairs[:, 0]], texts[pairs[:, 1]], image, text)
    assert np.allclose(fitted[2], correlations[:5], atol=1e-6)
    left, right = fitted[0].directions, fitted[1].directions
    assert np.allclose(left.T @ within[0] @ left, np.eye(5), atol=1e-6)  # each side white, under its regularisation
    assert np.allclose(right.T @ within[1] @ right, np.eye(5), atol=1e-6)
    assert np.allclose(left.T @ between @ right, np.diag(correlations[:5]), atol=1e-6)

"""Regularised canonical correlation analysis (CCA) of images and texts: linear encoders in closed form.

Hotelling 1936; as a baseline of text-image retrieval Gong, Ke, Isard and Lazebnik, IJCV 2014, whose scaling of the
directions by their correlations is the setting `powers` of `CcaSolver`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import linalg, sparse
from torch import Tensor

from vsehub.encoders.features import ImageFeatures, TextFeatures
from vsehub.encoders.texts import TextBag
from vsehub.io.progress import bar

_BLOCK = 4096  # rows that are computed with in float64 at a time


@dataclass(frozen=True)
class LinearMap:
    """One side's encoder, x -> (x - mean) @ directions, for unit rows x.

    mean: (F,) float64. directions: (F, D) float64, the most correlated first.
    """

    mean: np.ndarray
    directions: np.ndarray

    def scaled(self, weights: np.ndarray) -> "LinearMap":
        """The first len(weights) directions, each times its weight."""
        return LinearMap(self.mean, self.directions[:, : len(weights)] * weights)

    def put_into(self, encoder: ImageFeatures | TextFeatures | TextBag) -> None:
        """Make `encoder`, which must have the map's F and D, compute the map."""
        directions = torch.from_numpy(self.directions)
        with torch.no_grad():
            if isinstance(encoder, TextBag):
                encoder.words.weight.zero_()  # <pad> and the other specials stay at 0
                encoder.words.weight[-len(directions) :] = directions.to(encoder.words.weight)
            else:
                encoder.linear.weight.copy_(directions.T)
            bias = encoder.bias if isinstance(encoder, TextBag) else encoder.linear.bias
            bias.copy_(torch.from_numpy(-self.mean @ self.directions))


class Cca:
    """The covariances of P pairs, decomposed once; `fit` is then cheap for every regularisation.

    images: (I, F) rows of any float type, which may be memory-mapped. texts: (T, W) rows, or the sparse matrix of
    `tf_idf`. pairs: (P, 2) rows of image and text. Rows are divided by their norms. Memory: F² + W² + F·W numbers of 8
    bytes, and dense texts in float32.
    """

    def __init__(self, images: Any, texts: Any, pairs: np.ndarray):
        count, shape = len(pairs), (len(images), texts.shape[0])
        if not sparse.issparse(texts):
            texts = np.concatenate([block.astype(np.float32) for _, block in _blocks(texts, "texts")])
        pair_counts = sparse.csr_array((np.ones(count), (pairs[:, 0], pairs[:, 1])), shape=shape)
        self._image_mean, image_covariance = _moments(images, pair_counts.sum(axis=1) / count)
        self._text_mean, text_covariance = _moments(texts, pair_counts.sum(axis=0) / count)
        covariance = np.zeros((images.shape[1], texts.shape[1]))
        for first, rows in _blocks(images, "pairs"):
            text_sums = pair_counts[first : first + len(rows)] @ texts  # of each image
            covariance += rows.T @ text_sums
        covariance = covariance / count - np.outer(self._image_mean, self._text_mean)
        self._image_values, self._image_vectors = linalg.eigh(image_covariance, driver="evd")
        self._text_values, self._text_vectors = linalg.eigh(text_covariance, driver="evd")
        self._covariance = self._image_vectors.T @ covariance @ self._text_vectors

    def fit(self, image_ridge: float, text_ridge: float, most: int = 256) -> tuple[LinearMap, LinearMap, np.ndarray]:
        """The maps of both sides and the correlations (D,), largest first; D is the least of `most`, F and W.

        image_ridge, text_ridge: numbers added to the variances of each side, in units of their mean.
        """
        image_scale = _whitening(self._image_values, image_ridge)
        text_scale = _whitening(self._text_values, text_ridge)
        whitened = image_scale[:, None] * self._covariance * text_scale
        squares, left = linalg.eigh(whitened @ whitened.T, driver="evd")
        order = np.argsort(-squares, kind="stable")[: min(most, *whitened.shape)]
        correlations, left = np.sqrt(squares[order].clip(1e-12)), left[:, order]
        right = whitened.T @ left / correlations
        return (
            LinearMap(self._image_mean, self._image_vectors @ (image_scale[:, None] * left)),
            LinearMap(self._text_mean, self._text_vectors @ (text_scale[:, None] * right)),
            correlations,
        )


def tf_idf(tokens: np.ndarray, offsets: np.ndarray, words: int, specials: int = 4) -> tuple[sparse.csr_array, Tensor]:
    """Captions as unit rows (T, words - specials), sparse float64, and the words' weights (words,) float32.

    A row is (the word's count in the caption) x log(captions / captions with the word). tokens, offsets: of a
    `TokenTable`. specials: ids below it do not count. A caption without known words is a row of zeros.
    """
    captions = len(offsets) - 1
    known = tokens >= specials
    rows = np.repeat(np.arange(captions), np.diff(offsets))[known]
    shape = (captions, words - specials)
    counts = sparse.csr_array((np.ones(len(rows)), (rows, tokens[known] - specials)), shape=shape)
    counts.sum_duplicates()
    weights = np.log(captions / np.maximum(np.bincount(counts.indices, minlength=shape[1]), 1))
    weighted = sparse.csr_array(counts * weights[None, :])
    norms = np.sqrt((weighted**2).sum(axis=1))
    unit = sparse.csr_array(weighted * (1 / norms.clip(1e-12))[:, None])
    return unit, torch.from_numpy(np.concatenate([np.zeros(specials), weights])).float()


def _whitening(variances: np.ndarray, ridge: float) -> np.ndarray:
    """1 / standard deviation in each direction, where `ridge` times the mean variance is added to each."""
    variances = variances.clip(1e-12)  # rounding makes some negative; rows that are all alike have 0
    return 1 / np.sqrt(variances + ridge * variances.mean())


def _moments(rows: Any, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean (F,) and covariance (F, F) of rows that count by their shares, which add up to 1."""
    if sparse.issparse(rows):
        mean = np.asarray(rows.T @ shares)
        return mean, (rows.T @ (rows * shares[:, None])).toarray() - np.outer(mean, mean)
    mean, products = np.zeros(rows.shape[1]), np.zeros((rows.shape[1],) * 2)
    for first, block in _blocks(rows, "covariances"):
        weighted = block * shares[first : first + len(block), None]
        mean += weighted.sum(axis=0)
        products += block.T @ weighted
    return mean, products - np.outer(mean, mean)


def _blocks(rows: Any, label: str) -> Iterator[tuple[int, np.ndarray]]:
    """The number of the first row, and the float64 unit rows, of each block."""
    for first in bar(label, range(0, len(rows), _BLOCK), unit=" blocks"):
        block = np.asarray(rows[first : first + _BLOCK], dtype=np.float64)
        yield first, block / np.linalg.norm(block, axis=1, keepdims=True).clip(1e-12)

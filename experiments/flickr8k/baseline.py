"""The linear baseline: regularised canonical correlation analysis (CCA) of image features and TF-IDF captions.

Both sides are centred and projected on the directions in which they correlate most; image and caption are compared by
the cosine of their projections, each direction weighted by its correlation to a power (Gong et al., IJCV 2014).
Regularisation, number of directions and power are those with the best rsum on the val split; test has no say in them.

Expected on Flickr8k: rsum 334 on the 500 images of test, 268 on the 1,000 of val and test. A trained model that is not
clearly above it is broken. 30 s on one core:

    python -m experiments flickr8k baseline FOLDER/OF/flickr8k/global
"""

import itertools

import numpy as np
import torch
from scipy import linalg, sparse

from vsehub.checks import require
from vsehub.data import CaptionedImages, Precomp
from vsehub.data.text.vocabulary import SPECIALS, Vocabulary
from vsehub.metrics import recall_metrics

REGULARISATIONS = {"image": (0.3, 1.0, 3.0, 10.0), "text": (0.3, 1.0, 3.0)}  # in units of the mean variance
DIMENSIONS = (32, 64, 96, 128, 192, 256)
POWERS = (0, 0.5, 1)


class TfIdf:
    """Captions as unit rows of (word count in the caption) x log(captions / captions with the word)."""

    def __init__(self, captions: list[str]):
        self.vocabulary = Vocabulary.build(captions)
        counts = self._counts(captions)
        self.idf = np.log(len(captions) / np.bincount(counts.indices, minlength=counts.shape[1]))

    def __call__(self, captions: list[str]) -> sparse.csr_array:
        """(T, words) sparse; a caption without known words is a row of zeros."""
        weighted = self._counts(captions) * self.idf[None, :]
        norms = np.sqrt((weighted**2).sum(axis=1))
        return sparse.csr_array(weighted * (1 / np.maximum(norms, 1e-12))[:, None])

    def _counts(self, captions: list[str]) -> sparse.csr_array:
        pairs = [(t, word) for t, caption in enumerate(captions) for word in self.vocabulary.numbers(caption)]
        rows, words = np.array(pairs).T
        known = words >= len(SPECIALS)
        places = (rows[known], words[known] - len(SPECIALS))
        shape = (len(captions), len(self.vocabulary) - len(SPECIALS))
        return sparse.csr_array((np.ones(known.sum()), places), shape=shape)


class Cca:
    """The covariances of a training split, decomposed once; `fit` is then cheap for every regularisation."""

    def __init__(self, train: CaptionedImages):
        self.text_features = TfIdf(train.captions)
        images = np.asarray(train.images, dtype=np.float64)[train.image_index]
        texts = self.text_features(train.captions)
        pairs = texts.shape[0]
        self.image_mean, self.text_mean = images.mean(axis=0), texts.mean(axis=0)
        images -= self.image_mean
        image_covariance = images.T @ images / pairs
        text_covariance = (texts.T @ texts).toarray() / pairs - np.outer(self.text_mean, self.text_mean)
        self.image_values, self.image_vectors = linalg.eigh(image_covariance, driver="evd")
        self.text_values, self.text_vectors = linalg.eigh(text_covariance, driver="evd")
        between = (texts.T @ images).T / pairs  # images are centred, so that the mean of the texts adds nothing
        self.between = self.image_vectors.T @ between @ self.text_vectors

    def fit(self, image_regularisation: float, text_regularisation: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Projections (image dim, D) and (words, D) and the correlations (D,), largest first."""
        image_scale = 1 / np.sqrt(self.image_values + image_regularisation * self.image_values.mean())
        text_scale = 1 / np.sqrt(self.text_values + text_regularisation * self.text_values.mean())
        whitened = image_scale[:, None] * self.between * text_scale
        squares, left = linalg.eigh(whitened @ whitened.T, driver="evd")
        kept = np.argsort(-squares)[: min(DIMENSIONS[-1], *whitened.shape)]
        correlations, left = np.sqrt(np.maximum(squares[kept], 1e-12)), left[:, kept]
        right = whitened.T @ left / correlations
        return (
            self.image_vectors @ (image_scale[:, None] * left),
            self.text_vectors @ (text_scale[:, None] * right),
            correlations,
        )

    def project(
        self, data: CaptionedImages, image_map: np.ndarray, text_map: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The split's images (I, D) and captions (T, D)."""
        images = (np.asarray(data.images, dtype=np.float64) - self.image_mean) @ image_map
        return images, self.text_features(data.captions) @ text_map - self.text_mean @ text_map


def score(images: np.ndarray, texts: np.ndarray, weights: np.ndarray) -> torch.Tensor:
    """Cosines (I, T) of the projections, each direction times its weight; those beyond the (D,) weights are cut."""
    both = [side[:, : len(weights)] * weights for side in (images, texts)]
    images, texts = (side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in both)
    return torch.from_numpy(images @ texts.T)


def together(first: CaptionedImages, second: CaptionedImages) -> CaptionedImages:
    """Both splits as one."""
    image_index = np.concatenate([first.image_index, second.image_index + len(first.images)])
    return CaptionedImages(np.concatenate([first.images, second.images]), first.captions + second.captions, image_index)


def positives(data: CaptionedImages) -> torch.Tensor:
    """(I, T) boolean: which caption describes which image."""
    return torch.from_numpy(np.arange(len(data.images))[:, None] == data.image_index)


def baseline(source: Precomp) -> dict:
    """Fit on train, choose on val, measure val, test and both together."""
    train, val, test = (source.load(split) for split in ("train", "val", "test"))
    require(train.images.ndim == 2, f"{source.root} holds region features; CCA expects one vector an image")
    cca = Cca(train)
    best = {"rsum": -1.0}
    for regularisation in itertools.product(*REGULARISATIONS.values()):
        image_map, text_map, correlations = cca.fit(*regularisation)
        images, texts = cca.project(val, image_map, text_map)
        for dimension, power in itertools.product(DIMENSIONS, POWERS):
            weights = correlations[:dimension] ** power
            rsum = recall_metrics(score(images, texts, weights), positives(val))["rsum"]
            if rsum > best["rsum"]:
                names = ("image_regularisation", "text_regularisation")
                chosen = dict(zip(names, regularisation, strict=True)) | {"dimension": len(weights), "power": power}
                best = {"rsum": rsum, "chosen": chosen, "maps": (image_map, text_map), "weights": weights}
    result = {"folder": source.name, "train": {"fingerprint": train.fingerprint(), "words": len(cca.text_features.idf)}}
    result |= {"chosen_on_val": best["chosen"], "sets": {}}
    for name, data in (("val", val), ("test", test), ("val+test", together(val, test))):
        metrics = recall_metrics(score(*cca.project(data, *best["maps"]), best["weights"]), positives(data))
        result["sets"][name] = {"images": len(data.images), "fingerprint": data.fingerprint(), **metrics}
    return result

"""A trained model as files of another format: both encoders, their tokens and preprocessing, and how to use them."""

import hashlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vsehub import __version__
from vsehub.checks import require
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.evaluation.checkpoint_file import checkpoint_file
from vsehub.evaluation.encode import text_table
from vsehub.evaluation.trained import TrainedModel
from vsehub.export.captured import Axes
from vsehub.export.described import preprocessing, scoring, tokens
from vsehub.export.traced import traced
from vsehub.io.files import write_json
from vsehub.io.outputs import Output
from vsehub.sets import Encoding, Sets
from vsehub.types import Encoder

FORMAT, VERSION = "vsehub export", 1
DESCRIPTION, PREPROCESSING = "export.json", "preprocessing.json"
UNFINISHED = ".unfinished"  # the folder in which files are tried before they take their place
LIMIT = 1_900_000_000  # bytes of weights that fit into one file of ONNX
TOLERANCE = 1e-4  # of the largest number that an encoder gives, at least of 1
_ROWS = (3, 1, 5)  # of the batches that are tried; the first is captured
# (arrays of the inputs, in order) -> arrays of the outputs
Run = Callable[..., list[np.ndarray]]


class ModelFormat(ABC):
    """A format of encoders. name: as the command takes it. suffix: of its files."""

    name: str
    suffix: str

    @abstractmethod
    def require(self) -> None:
        """Raise InputError if a package that the format needs is missing."""

    @abstractmethod
    def cells(self, network: nn.RNNBase, every: bool) -> nn.Module:
        """A GRU or an LSTM as the format computes it, every state or the last ones, see `traced.Cells`."""

    @abstractmethod
    def write(
        self, side: str, network: nn.Module, sample: Sequence[Tensor], axes: Axes, outputs: Sequence[str], path: Path
    ) -> None:
        """Write a traceable network.

        side: "image" or "text". sample: a batch of inputs. axes: the inputs' names and which of their sizes vary.
        outputs: the names of the results. Raises InputError for operators that the format lacks.
        """

    @abstractmethod
    def opened(self, path: Path) -> Run:
        """A written network, to be run on a CPU."""


@dataclass(frozen=True)
class Encoded:
    """An encoder to be exported. batches: inputs to try it with. axes: see `ModelFormat.write`."""

    side: str
    encoder: Encoder
    batches: Sequence[tuple[Tensor, ...]]
    axes: Axes

    @property
    def outputs(self) -> list[str]:
        """The names of what it gives."""
        return ["vectors"] if self.encoder.gives == "vectors" else ["vectors", "inside"]


def export_model(model: TrainedModel, form: ModelFormat, out: Output) -> dict[str, Any]:
    """Write both encoders of a model, and the files that say how to use them. Returns the contents of `DESCRIPTION`.

    model: on the CPU. Both encoders are captured and tried before any file takes its place in `out`. Raises InputError
    for an encoder that the format cannot express, and if a written encoder gives other vectors than the model.
    """
    with out.held(), _unfinished(out.folder) as folder:
        own, token_files = tokens(model)
        sides = {one.side: write_encoder(one, form, folder) for one in (_images(model), _texts(model))}
        sides["image"]["preprocessing"] = PREPROCESSING
        sides["text"]["tokens"] = own
        write_json(folder / PREPROCESSING, preprocessing(model))
        for name, text in token_files.items():
            (folder / name).write_text(text, encoding="utf-8")
        written = sorted(path.name for path in folder.iterdir())
        told = {
            "format": FORMAT,
            "version": VERSION,
            "kind": form.name,
            "vsehub": __version__,
            "checkpoint": {"file": checkpoint_file(model.path).name, "sha256": model.sha256},
            **sides,
            "similarity": scoring(model.similarity),
            "files": {name: _sha256(folder / name) for name in written},
        }
        out.begin([*written, DESCRIPTION])
        for name in written:
            (folder / name).replace(out / name)
        write_json(out / DESCRIPTION, told)
        out.finish()
    return told


def write_encoder(one: Encoded, form: ModelFormat, folder: Path) -> dict[str, Any]:
    """Write an encoder and try it. Returns what the description says of it."""
    path = folder / f"{one.side}{form.suffix}"
    with torch.no_grad():
        expected = [_arrays(one.encoder(*batch)) for batch in one.batches]
    network = traced(one.encoder, form.cells).eval()
    form.write(one.side, network, one.batches[0], one.axes, one.outputs, path)
    run = form.opened(path)
    difference = 0.0
    for batch, wanted in zip(one.batches, expected, strict=True):
        found = run(*(part.numpy() for part in batch))
        for name, got, want in zip(one.outputs, found, wanted, strict=True):
            if len(one.outputs) > 1:  # sets may have more padding
                more = max(0, got.shape[1] - want.shape[1])
                want = np.pad(want, [(0, 0), (0, more), *[(0, 0)] * (want.ndim - 2)])
            require(
                got.shape == want.shape,
                f"the exported {one.side} encoder gives {name} of shape {got.shape}, the checkpoint {want.shape}; "
                "nothing was written",
            )
            apart = np.abs(got.astype(np.float32) - want.astype(np.float32)).max()
            difference = float(np.maximum(difference, apart / max(1.0, float(np.abs(want).max()))))  # NaN stays
    require(
        difference <= TOLERANCE,
        f"the exported {one.side} encoder differs from the checkpoint's by {difference:.1e}, more than "
        f"{TOLERANCE:.0e}; nothing was written",
    )
    return {
        "file": path.name,
        "inputs": _shapes(one.axes, one.batches[0]),
        "outputs": one.outputs,
        "dim": int(expected[0][0].shape[-1]),
        "largest_difference": difference,
    }


def _arrays(encoding: Encoding) -> list[np.ndarray]:
    """The outputs of an encoder as an exported one gives them."""
    found = encoding.padded() if isinstance(encoding, Sets) else (encoding,)
    return [one.numpy() for one in found]


def _shapes(axes: Axes, batch: Sequence[Tensor]) -> dict[str, Any]:
    """The type and the shape of each input; sizes that vary have names."""
    return {
        name: {
            "dtype": str(part.dtype).removeprefix("torch."),
            "shape": [varying.get(axis, size) for axis, size in enumerate(part.shape)],
        }
        for (name, varying), part in zip(axes.items(), batch, strict=True)
    }


def _images(model: TrainedModel) -> Encoded:
    """The image encoder with random pictures, or random vectors of which one region is padding."""
    shape, drawn = model.model.image_shape, torch.Generator().manual_seed(0)
    pictures = len(shape) > 2
    batches = []
    for rows in _ROWS:
        if pictures:
            images = torch.randint(0, 256, (rows, *shape), generator=drawn, dtype=torch.uint8)
        else:
            images = torch.randn(rows, *shape, generator=drawn)
            if len(shape) == 2 and shape[0] > 1:
                images[0, 0] = 0
        batches.append((images,))
    return Encoded("image", model.model.image_encoder, batches, {"images": {0: "batch"}})


def _texts(model: TrainedModel) -> Encoded:
    """The text encoder with captions of several lengths, or with random vectors."""
    encoder, vocabulary = model.model.text_encoder, model.vocabulary
    if vocabulary is None:
        drawn = torch.Generator().manual_seed(1)
        vectors = [(torch.randn(rows, *(model.model.text_shape or ()), generator=drawn),) for rows in _ROWS]
        return Encoded("text", _VectorTexts(encoder), vectors, {"texts": {0: "batch"}})
    spelt = ["a", "red", "box", "on", "the", "small", "green", "circle"]
    known = vocabulary.words[-8:] if isinstance(vocabulary, Vocabulary) else spelt
    captions = [" ".join(known[:count]) for count in (4, 0, 8, 1, 6)]
    # Not longer than the encoder takes, where the loader did not cut captions to its positions.
    most = [one for one in (model.max_words, encoder.max_positions) if one is not None]
    tables = text_table(captions, vocabulary, max(1, min(most) - 2) if most else None)
    batches = [tables.batch(np.arange(len(captions))[-rows:]) for rows in _ROWS]
    axes: Mapping[str, Mapping[int, str]] = {"texts": {0: "batch", 1: "length"}, "lengths": {0: "batch"}}
    return Encoded("text", encoder, batches, axes)


class _VectorTexts(Encoder):
    """An encoder of texts that are vectors, without the lengths that captions have."""

    def __init__(self, encoder: Encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, texts: Tensor) -> Tensor:
        """(N, F) -> (N, D)."""
        found: Tensor = self.encoder(texts, texts.new_ones(texts.shape[0], dtype=torch.int64))
        return found


@contextmanager
def _unfinished(folder: Path) -> Iterator[Path]:
    """An empty folder within `folder`, removed at the end; what a killed command left in it is removed first."""
    path = folder / UNFINISHED
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The encoders of a checkpoint as ONNX files, which other programs run without torch, and how to use them."""

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vsehub import __version__
from vsehub.checks import InputError, require
from vsehub.data.text.vocabulary import Vocabulary, clip_pattern, word_pattern
from vsehub.extras import require_packages
from vsehub.io.files import Output, write_json, write_text
from vsehub.io.progress import quiet
from vsehub.models.encode import text_table
from vsehub.models.hub import checkpoint_file
from vsehub.models.trained import TrainedModel
from vsehub.similarities.cosine import Cosine
from vsehub.similarities.order import Order
from vsehub.types import Encoder, Preparation, Similarity

FORMAT, VERSION = "vsehub export", 1
DESCRIPTION, PREPROCESSING = "export.json", "preprocessing.json"
VOCABULARY, TOKENIZER = "vocabulary.json", "tokenizer.json"
TOLERANCE = 1e-4  # of the largest number that an encoder gives, at least of 1
_ROWS = (3, 1, 5)  # of the batches that are tried; the first is captured
# torch's order of the gates -> ONNX's: update, reset, new; input, output, forget, cell.
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


def write_onnx(model: TrainedModel, out: Output) -> dict[str, Any]:
    """Write both encoders of a model, and the files that say how to use them; returns the content of `DESCRIPTION`.

    model: on the CPU. Raises InputError if a package is missing, for an encoder that ONNX cannot express, and if a
    written encoder gives other vectors than the model; the folder is unchanged then.
    """
    require_packages("vsehub export", "export", "onnx", "onnxscript", "onnxruntime")
    with out.replaced():
        description, token_files = tokens(model)
        image = write_encoder("image", model.model.image_encoder, _images(model), out.new)
        text = write_encoder("text", model.model.text_encoder, _texts(model), out.new)
        write_json(out / PREPROCESSING, preprocessing(model))
        for file, content in token_files.items():
            write_text(out / file, content)
        record = {
            "format": FORMAT,
            "version": VERSION,
            "kind": "onnx",
            "vsehub": __version__,
            "checkpoint": {"file": checkpoint_file(model.path).name, "sha256": model.sha256},
            "image": image | {"preprocessing": PREPROCESSING},
            "text": text | {"tokens": description},
            "similarity": scoring(model.similarity),
            "files": sorted(path.name for path in out.new.iterdir()),
        }
        write_json(out / DESCRIPTION, record)
    return record


def write_encoder(side: str, encoder: Encoder, batches: Sequence[Mapping[str, Tensor]], folder: Path) -> dict[str, Any]:
    """Write an encoder as SIDE.onnx and try it; returns its part of the description.

    batches: inputs by name, several sizes to try; texts (N, L) of ids vary in length too. Weights of more
    than 1.5 GB are written to a file beside it.
    """
    require(encoder.gives == "vectors", f"the {side} encoder gives sets, which are not exported; choose one of vectors")
    path = folder / f"{side}.onnx"
    varying = {0: "batch", 1: "length"} if "lengths" in batches[0] else {0: "batch"}
    axes = {name: varying if name == "texts" else {0: "batch"} for name in batches[0]}
    with torch.no_grad():
        expected = [encoder(*batch.values()).numpy() for batch in batches]
    _capture(side, encoder, batches[0], axes, path)
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    differences = []
    for batch, wanted in zip(batches, expected, strict=True):
        got = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})[0]
        differences.append(np.abs(got - wanted).max() / max(1.0, np.abs(wanted).max()))
    difference = float(np.max(differences))  # NaN stays
    require(
        difference <= TOLERANCE,
        f"the exported {side} encoder differs from the checkpoint's by {difference:.1e}, more than {TOLERANCE:.0e}; "
        "nothing was written",
    )
    shapes = {
        name: {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": [axes[name].get(axis, size) for axis, size in enumerate(tensor.shape)],
        }
        for name, tensor in batches[0].items()
    }
    return {
        "file": path.name,
        "inputs": shapes,
        "outputs": ["vectors"],
        "dim": int(expected[0].shape[1]),
        "largest_difference": difference,
    }


def _capture(side: str, encoder: Encoder, batch: Mapping[str, Tensor], axes: Mapping[str, Any], path: Path) -> None:
    """Write an encoder by torch's exporter. Raises InputError, with what it says, for what ONNX lacks."""
    network = copy.deepcopy(encoder).eval()
    for name, part in list(network.named_modules()):
        if isinstance(part, nn.RNNBase):
            network.set_submodule(name, OnnxCells(part))
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # attention by operators that ONNX has
    try:
        with torch.no_grad(), quiet():
            program: Any = torch.onnx.export(  # never None with dynamo=True
                network,
                tuple(batch.values()),
                dynamo=True,
                verbose=False,
                input_names=list(batch),
                output_names=["vectors"],
                dynamic_shapes=tuple(axes.values()),
            )
            program.save(str(path))
    except Exception as error:  # torch's own classes are not public
        if isinstance(error, OSError | MemoryError):  # a full disk, say
            raise
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise InputError(
            f"the {side} encoder cannot be exported as ONNX, nothing was written: {type(cause).__name__}: "
            f"{' '.join(str(cause).split())[:400]}"
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


class OnnxCells(nn.Module):
    """A GRU or an LSTM as ONNX's operator of that name, which takes lengths; it computes nothing in torch itself."""

    def __init__(self, network: nn.RNNBase):
        super().__init__()
        self.mode, self.size, self.directions = network.mode, network.hidden_size, 1 + network.bidirectional
        self.weights = nn.ParameterList()
        for layer in range(network.num_layers):
            names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            inputs, states, *biases = (self._ordered(network, f"{name}_l{layer}") for name in names)
            self.weights += [inputs, states, torch.cat(biases, dim=1)]

    def _ordered(self, network: nn.RNNBase, name: str) -> Tensor:
        """A parameter of each direction, its gates in ONNX's order."""
        gates, ordered = _GATES[self.mode], []
        for ending in ("", "_reverse")[: self.directions]:
            rows = getattr(network, f"{name}{ending}").detach().chunk(len(gates))
            ordered.append(torch.cat([rows[place] for place in gates]))
        return torch.stack(ordered)

    def forward(self, inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(N, L, F), (N,) -> the last layer's states (N, L, H) and the last state of each row (N, H)."""
        states, last = inputs.transpose(0, 1), inputs
        settings: dict[str, Any] = {"hidden_size": self.size}
        settings["direction"] = "bidirectional" if self.directions > 1 else "forward"
        if self.mode == "GRU":
            settings["linear_before_reset"] = 1  # as torch computes the new state
        for layer in range(0, len(self.weights), 3):
            length, rows = states.shape[:2]
            outputs = torch.onnx.ops.symbolic_multi_out(
                self.mode,
                (states, *list(self.weights)[layer : layer + 3], lengths.to(torch.int32)),
                settings,
                dtypes=[states.dtype] * 2,
                shapes=[(length, self.directions, rows, self.size), (self.directions, rows, self.size)],
            )
            both, last = outputs[0], outputs[1]
            states = both.permute(0, 2, 1, 3).flatten(2)
        return both.mean(dim=1).transpose(0, 1), last.mean(dim=0)


def _images(model: TrainedModel) -> list[dict[str, Tensor]]:
    """Random pictures, or random vectors; if they are regions, the first is padding."""
    shape, batches = model.model.image_shape, []
    drawn = torch.Generator().manual_seed(0)
    for rows in _ROWS:
        images = torch.randint(0, 256, (rows, *shape), generator=drawn, dtype=torch.uint8)
        if len(shape) < 3:
            images = torch.randn(rows, *shape, generator=drawn)
        if len(shape) == 2 and shape[0] > 1:
            images[0, 0] = 0
        batches.append({"images": images})
    return batches


def _texts(model: TrainedModel) -> list[dict[str, Tensor]]:
    """Captions of several lengths, or random vectors."""
    vocabulary = model.vocabulary
    if vocabulary is None:
        drawn = torch.Generator().manual_seed(1)
        shape = model.model.text_shape or ()
        return [{"texts": torch.randn(rows, *shape, generator=drawn)} for rows in _ROWS]
    words = ["a", "red", "box", "on", "the", "small", "green", "circle"]
    known = vocabulary.words[-8:] if isinstance(vocabulary, Vocabulary) else words
    captions = [" ".join(known[:count]) for count in (4, 0, 8, 1, 6)]
    # Not longer than the encoder takes, where the loader did not cut captions to its positions.
    most = [limit for limit in (model.max_words, model.model.text_encoder.max_positions) if limit is not None]
    table = text_table(captions, vocabulary, max(1, min(most) - 2) if most else None)
    batches = [table.batch(np.arange(len(captions))[-rows:]) for rows in _ROWS]
    return [dict(zip(("texts", "lengths"), batch, strict=True)) for batch in batches]


def preprocessing(model: TrainedModel) -> dict[str, Any]:
    """The preprocessing of pictures; for vectors only their shape. The encoder normalises the pixels itself."""
    shape = model.model.image_shape
    if len(shape) < 3:
        return {"kind": "vectors", "shape": list(shape)}
    size = shape[-1]
    ours = Preparation(size, model.resize or size, interpolation="bilinear")
    preparation = model.model.image_encoder.preparation or ours
    return {
        "kind": "pictures",
        "shape": list(shape),
        "colours": "RGB, whole numbers from 0 to 255; a transparent background is white",
        **preparation._asdict(),
        "crops": shape[0] if len(shape) == 4 else 1,
    }


def tokens(model: TrainedModel) -> tuple[dict[str, Any], dict[str, str]]:
    """The tokenisation of texts, and the files of the vocabulary, name -> content."""
    words = model.vocabulary
    if words is None:
        return {"kind": "vectors", "shape": list(model.model.text_shape or ())}, {}
    limits: dict[str, Any] = {"max_words": model.max_words}
    if isinstance(words, Vocabulary):
        content = {"words": words.words, "pattern": word_pattern().pattern}
        text = json.dumps(content, ensure_ascii=False)
        return {"kind": "words", "file": VOCABULARY, **limits}, {VOCABULARY: text + "\n"}
    limits |= {"max_tokens": words.most, "special_tokens": words.special, "clean": words.clean}
    split = clip_pattern() if words.clean == "clip" else None
    return {"kind": "subwords", "file": TOKENIZER, **limits, "split": split}, {TOKENIZER: words.json + "\n"}


def scoring(similarity: Similarity) -> dict[str, Any]:
    """The scoring of image and text vectors, which the exported encoders do not include."""
    entry: dict[str, Any] = {"name": type(similarity).__name__, "inner_product": similarity.inner_product}
    if type(similarity) is Cosine:
        return entry | {"how": "divide each vector by its norm; the score is the inner product"}
    if type(similarity) is Order:
        said = "divide each vector by its norm and take absolute values; the score is `shift` minus the norm of "
        return entry | {"shift": similarity.shift, "how": f"{said}max(0, text - image)"}
    return entry | {"how": "a class of its own; not exported"}

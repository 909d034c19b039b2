"""Exported encoders in ONNX Runtime against the checkpoint's own in vsehub, in turns on a CPU.

Random weights. Captions of 6 to 20 words, sorted by length and cut into batches, as vsehub encodes a split. "gru" has
1,024 dimensions; vsehub runs the prefixes that captions share once. "cnn" takes 64 x 64 pixels. The towers are CLIP's.
A ratio below 1: the exported encoder is faster. "plain" is torch's own GRU, without shared prefixes.

    python -m experiments.benchmarks.exported [--rows 128] [--rounds 9] [--model ViT-B-32]
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from experiments.benchmarks import common
from vsehub.encoders import ImageCNN, ImageTower, TextGRU, TextTower, TextTransformer
from vsehub.export import Onnx
from vsehub.export.model import Encoded, write_encoder
from vsehub.types import Encoder

WORDS, BATCHES, LIMIT = 3000, 4, 1.0
SMALL = (3, 64, 64)
PIXELS = {"images": {0: "batch"}}
TOKENS = {"texts": {0: "batch", 1: "length"}, "lengths": {0: "batch"}}
Batch = tuple[torch.Tensor, ...]


def captions(rows: int, end: int = 2) -> Batch:
    """Ids (N, L) of captions of 6 to 20 words that often begin alike, sorted by length, and lengths (N,)."""
    random = np.random.default_rng(rows)
    lengths = np.sort(random.integers(6, 21, rows))
    ids = np.minimum(3 + random.zipf(1.3, (rows, lengths.max())), WORDS - 1)
    ids[:, 0] = 1
    ids[np.arange(lengths.max()) >= lengths[:, None]] = 0
    ids[np.arange(rows), lengths - 1] = end
    return torch.from_numpy(ids), torch.from_numpy(lengths)


def split(texts: torch.Tensor, lengths: torch.Tensor) -> list[Batch]:
    """Batches of equal size, each as long as its longest caption."""
    parts = zip(texts.chunk(BATCHES), lengths.chunk(BATCHES), strict=True)
    return [(ids[:, : int(own.max())].contiguous(), own) for ids, own in parts]


def pictures(rows: int, side: int) -> Batch:
    """Pixels (N, 3, side, side)."""
    return (torch.from_numpy(np.random.default_rng(rows).integers(0, 256, (rows, 3, side, side), dtype=np.uint8)),)


def encoders(model: str, rows: int) -> dict[str, Callable[[], tuple[str, Encoder, dict, list[Batch], list[Batch]]]]:
    """Name -> a function that makes side, encoder, axes, batches that are timed, and others to try it with."""

    def words(made: Callable[[], Encoder]) -> Callable:
        return lambda: ("text", made(), TOKENS, split(*captions(BATCHES * rows)), [captions(3), captions(1)])

    towers = {"library": "open_clip", "model": model, "pretrained": False}
    few = max(1, rows // 8)

    def image_tower() -> tuple:
        encoder = ImageTower(**towers)
        side = encoder.preparation.size
        return "image", encoder, PIXELS, [pictures(few, side)], [pictures(3, side), pictures(1, side)]

    def text_tower() -> tuple:
        end = 49407  # <end_of_text>, at which CLIP's encoder looks
        return "text", TextTower(**towers), TOKENS, [captions(few, end)], [captions(3, end), captions(1, end)]

    return {
        "gru": words(lambda: TextGRU(WORDS)),
        "gru, both ways, gpo": words(lambda: TextGRU(WORDS, bidirectional=True, pooling="gpo")),
        "transformer": words(lambda: TextTransformer(WORDS)),
        "cnn": lambda: (
            "image",
            ImageCNN((3, 64, 64)),
            PIXELS,
            [pictures(rows, 64)],
            [pictures(3, 64), pictures(1, 64)],
        ),
        f"{model} images": image_tower,
        f"{model} texts": text_tower,
    }


def plain_words(encoder: TextGRU, batches: list[Batch]) -> Callable[[], object]:
    """A call of torch's own GRU, whose last states are taken."""

    @torch.no_grad()
    def run() -> object:
        return [encoder.pool(encoder.gru(encoder.words(texts))[0], lengths) for texts, lengths in batches]

    return run


def measured(name: str, made: Callable, rounds: int, folder: Path) -> dict:
    """The times of the encoder and of the exported one, their ratio, and the largest difference."""
    torch.manual_seed(0)
    side, encoder, axes, batches, tried = made()
    encoder = encoder.eval()
    found: dict = {"name": name, "rows": sum(len(one[0]) for one in batches)}

    def own() -> object:
        with torch.no_grad():
            return [encoder(*batch) for batch in batches]

    told = write_encoder(Encoded(side, encoder, tried, axes), Onnx(), folder)
    run = Onnx().opened(folder / told["file"])
    arrays = [[part.numpy() for part in batch] for batch in batches]
    ways: dict[str, Callable[[], object]] = {"vsehub": own, "onnx": lambda: [run(*one) for one in arrays]}
    found["difference"] = told["largest_difference"]
    if isinstance(encoder, TextGRU) and not encoder.gru.bidirectional:
        ways["plain"] = plain_words(encoder, batches)
    seconds = common.interleave(ways, rounds, torch.device("cpu"), warmup=2)
    for way, times in seconds.items():
        found[way] = common.summary(times)
        ratios = sorted(one / bare for one, bare in zip(times, seconds["vsehub"], strict=True))
        found[way]["ratio"] = ratios[len(ratios) // 2]
    return found


def text(entries: list[dict]) -> str:
    """The table."""
    rows = []
    for one in entries:
        ratio = f"{one['onnx']['ratio']:.2f}, {common.target(one['onnx']['ratio'], LIMIT)}"
        times = [common.shown(one[way]) for way in ("vsehub", "onnx")]
        plain = f"{one['plain']['ratio']:.2f}" if "plain" in one else ""
        rows.append([one["name"], one["rows"], *times, ratio, plain])
    columns = ["encoder", "rows", "vsehub (least to most)", "onnx", "median ratio of a round", "ratio of plain"]
    return common.table(columns, rows)


def main(argv: list[str] | None = None) -> None:
    """Read the command line, measure, report."""
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=int, default=128, help="captions at a time; of a tower an eighth (default: 128)")
    parser.add_argument("--model", default="ViT-B-32", help="a name of open_clip (default: ViT-B-32)")
    options = parser.parse_args(argv)
    device = torch.device("cpu")
    entries = []
    for name, made in encoders(options.model, options.rows).items():
        with tempfile.TemporaryDirectory() as folder:
            entries.append(measured(name, made, options.rounds, Path(folder)))
    common.report("exported", "Exported encoders", {"entries": entries}, text(entries), device, options.out)


if __name__ == "__main__":
    main()

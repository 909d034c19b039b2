"""Cross-attention and order similarity against their floors and against the plain ways, in the same run.

Cross-attention's floor is the bare product of all regions with all words, forwards and backwards; the plain way is the
loop over captions as SCAN publishes it, which builds every attended vector. Both directions, the paper's settings, 36
regions, 15 words (and, in a batch, 8 to 22 words), D = 1,024. Order similarity's plain way broadcasts all differences
at once; its floor is three passes over them: subtract, clamp, norm (for gradients too). Plain ways that hold more than
8 GB are left out, and the table says so; at 500 x 2,500 the loop runs over 125 captions, and its time is multiplied by
20. Target: 1.5 times the product.

    python -m experiments.benchmarks.attention                 a batch of 128, and 500 x 2,500 without gradients
    python -m experiments.benchmarks.attention --full          with gradients there too
    python -m experiments.benchmarks.attention --quick         small sizes, which show nothing but that it runs
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.benchmarks import common
from vsehub.sets import Sets
from vsehub.similarities import CrossAttention, Order

REGIONS, DIM, RATIO, PLAIN_GIGABYTES = 36, 1024, 1.5, 8
SCALES = {"t2i": 9.0, "i2t": 4.0}


class Size(NamedTuple):
    """How many of what; the loop runs over the first `looped` captions, and its time is scaled to all."""

    images: int
    texts: int
    fewest_words: int
    most_words: int
    looped: int


SIZES = [Size(128, 128, 15, 15, 128), Size(128, 128, 8, 22, 128), Size(500, 2500, 15, 15, 125)]
QUICK = [Size(6, 5, 3, 3, 5), Size(4, 6, 1, 4, 6), Size(3, 9, 2, 2, 3)]


def sides(size: Size, device: torch.device) -> tuple[Sets, Sets]:
    """Random unit vectors as sets."""
    generator = torch.Generator().manual_seed(0)
    words = torch.randint(size.fewest_words, size.most_words + 1, (size.texts,), generator=generator)
    lengths = torch.full((size.images,), REGIONS), words
    made = (F.normalize(torch.randn(int(one.sum()), DIM, generator=generator), dim=1).to(device) for one in lengths)
    return tuple(Sets(vectors, one.to(device)) for vectors, one in zip(made, lengths, strict=True))


def loop(images: Sets, texts: Sets, direction: str) -> Tensor:
    """SCAN's published way, clipped_l2norm and the mean: caption after caption, against all images."""
    regions, scores = images.vectors.unflatten(0, (len(images), -1)), []
    for words in texts.vectors.split(texts.lengths.tolist()):
        words = words.expand(len(images), *words.shape).contiguous()
        query, source = (words, regions) if direction == "t2i" else (regions, words)
        attention = F.leaky_relu(source @ query.mT, 0.1)
        attention = attention / (attention.norm(dim=2, keepdim=True) + 1e-8)
        attention = (SCALES[direction] * attention.mT).softmax(dim=2)
        scores.append(F.cosine_similarity(query, attention @ source, dim=2).mean(dim=1))
    return torch.stack(scores, dim=1)


def broadcast(images: Tensor, texts: Tensor) -> Tensor:
    """Order similarity as VSE++ computes it: all differences at once."""
    images, texts = (F.normalize(side, dim=1).abs() for side in (images, texts))
    return 1 - (texts[None] - images[:, None]).clamp(min=0).square().sum(dim=2).sqrt()


def passes(images: Tensor, texts: Tensor) -> Callable[[], None]:
    """The three passes over as many differences, in memory that stays in the cache."""
    block, count = torch.empty(1024, images.shape[1], device=images.device), -(-len(images) * len(texts) // 1024)

    def run():
        for _ in range(count):
            torch.linalg.vector_norm(torch.sub(block, images[:1], out=block).clamp_min_(0), dim=1)

    return run


def timed(inputs: list[Tensor], function: Callable[[], Tensor], gradients: bool) -> Callable[[], None]:
    """Scores without a gradient, or scores and the gradient of their sum."""

    def run():
        with torch.set_grad_enabled(gradients):
            scores = function()
            if gradients:
                torch.autograd.grad(scores, inputs, torch.ones_like(scores))

    return run


def measure_attention(size: Size, gradients: bool, rounds: int, device: torch.device) -> list[dict]:
    """One entry a direction: times of the product, ours and the loop, all taking turns."""
    images, texts = sides(size, device)
    inputs = [images.vectors.requires_grad_(), texts.vectors.requires_grad_()]
    # The loop keeps each attended vector, and as much again for the cosine, for its gradient.
    held = {"t2i": len(images) * len(inputs[1]), "i2t": len(texts) * len(inputs[0])}
    some = texts[: size.looped]
    ways = {"floor": timed(inputs, lambda: inputs[0] @ inputs[1].T, gradients)}
    for direction, scale in SCALES.items():
        similarity = CrossAttention(direction, softmax_scale=scale)
        ways[f"ours {direction}"] = timed(inputs, partial(similarity, images, texts), gradients)
        if not gradients or 8 * DIM * held[direction] < PLAIN_GIGABYTES * 1e9:
            ways[f"plain {direction}"] = timed(inputs, partial(loop, images, some, direction), gradients)
    times = taking_turns(ways, size, rounds, device)
    entries = []
    for direction in SCALES:
        found = {name: times.get(f"{name} {direction}") for name in ("ours", "plain")}
        if found["plain"]:
            found["plain"] |= {
                key: found["plain"][key] * size.texts / size.looped for key in ("median", "least", "most")
            }
        found = {"floor": times["floor"]} | {name: one for name, one in found.items() if one}
        entries.append(entry(direction, size, gradients, found))
    return entries


def measure_order(size: Size, gradients: bool, rounds: int, device: torch.device) -> dict:
    """Times of the three passes, ours and the broadcast."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(count, DIM, generator=generator).to(device).requires_grad_() for count in size[:2]]
    ways = {"floor": passes(inputs[0].detach(), inputs[1]), "ours": timed(inputs, lambda: Order()(*inputs), gradients)}
    if 12 * DIM * size.images * size.texts < PLAIN_GIGABYTES * 1e9:
        ways["plain"] = timed(inputs, lambda: broadcast(*inputs), gradients)
    return entry("order", size, gradients, taking_turns(ways, size, rounds, device))


def taking_turns(ways: dict, size: Size, rounds: int, device: torch.device) -> dict[str, dict]:
    """The times of each way; a large size takes one round, and no warming up."""
    large = size.looped < size.texts
    seconds = common.interleave(ways, 1 if large else rounds, device, warmup=0 if large else 1)
    return {name: common.summary(values) for name, values in seconds.items()}


def entry(what: str, size: Size, gradients: bool, seconds: dict) -> dict:
    """What was measured, and the ratios to the floor."""
    ratios = {name: times["median"] / seconds["floor"]["median"] for name, times in seconds.items()}
    return {"what": what, **size._asdict(), "gradients": gradients, "seconds": seconds, "to_floor": ratios}


def measure(sizes: list[Size], device: torch.device, rounds: int, full: bool = False) -> list[dict]:
    """All entries; gradients at a large size only if `full`."""
    entries = []
    for size in sizes:
        for gradients in (False, True) if full or size.looped == size.texts else (False,):
            entries += measure_attention(size, gradients, rounds, device)
            if size.fewest_words == size.most_words:
                entries.append(measure_order(size, gradients, rounds, device))
    return entries


def text(entries: list[dict]) -> str:
    """The table."""
    rows = []
    for one in sorted(entries, key=lambda one: one["what"] == "order"):
        seconds = {name: common.shown(times) for name, times in one["seconds"].items()}
        words = f"{one['fewest_words']}" + (
            f" to {one['most_words']}" if one["most_words"] > one["fewest_words"] else ""
        )
        order, plain, ratio = one["what"] == "order", one["to_floor"].get("plain"), one["to_floor"]["ours"]
        rows.append(
            (
                one["what"],
                f"{one['images']} x {one['texts']:,}" + ("" if order else f", {words} words"),
                "scores and gradients" if one["gradients"] else "scores",
                seconds["floor"],
                seconds["ours"],
                seconds.get("plain", "too large"),
                f"**{ratio:.2f}**" + ("" if order else f", {common.target(ratio, RATIO)}"),
                f"{plain:.2f}" if plain else "",
            )
        )
    columns = ("what", "size", "computed", "floor", "ours", "plain", "ours / floor", "plain / floor")
    return common.table(columns, rows)


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--full", action="store_true", help="gradients at 500 x 2,500 too")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    entries = measure(QUICK if options.quick else SIZES, device, options.rounds, options.full)
    common.report("attention", "Cross-attention and order", {"entries": entries}, text(entries), device, options.out)


if __name__ == "__main__":
    main()

"""Greedy matching of 5,000 images and 25,000 captions against sorting all scores and walking through them.

The plain way is EMNLP algorithm 1 as it stands: numpy sorts all pairs, Python visits them. Both give the same pairs,
which is checked. The vectors have clusters and hubs; the captions are their image with noise. The extra memory is the
peak of a fresh process beyond what it holds with the scores, or for the search with the vectors, made. Target: 50 times
as fast, at each relaxation and in both directions, and half of the scores' own memory.

    python -m experiments.benchmarks.matching --rounds 1        the plain way takes a minute or two a direction
"""

import multiprocessing

import numpy as np
import torch
from torch import Tensor

from experiments.benchmarks import common, evaluation
from vsehub.criteria import RelaxedGreedyMatching
from vsehub.metrics import k_occurrences

IMAGES, PER_IMAGE, DIM, K = 5000, 5, 128, 10
RELAXATIONS = (1.0, 2.0, 3.5)
CLUSTERS, NOISE = 50, 2.0
RATIO, SHARE = 50.0, 0.5
WALKED_AT_ONCE = 10**6


def make(images: int, device: torch.device, dim: int = DIM) -> dict[str, Tensor]:
    """Unit vectors of both sides; a few of each are drawn far to a common direction, which makes hubs of them."""
    generator = torch.Generator().manual_seed(0)
    centres, common_direction = torch.randn(CLUSTERS, dim, generator=generator), torch.randn(dim, generator=generator)
    plain = torch.randn(images, dim, generator=generator)
    plain += centres[torch.randint(CLUSTERS, (images,), generator=generator)]
    sides = {}
    for name, vectors in (("images", plain), ("captions", plain.repeat_interleave(PER_IMAGE, dim=0))):
        pull = torch.randn(len(vectors), 1, generator=generator).exp()
        noise = NOISE * torch.randn(vectors.shape, generator=generator)
        sides[name] = torch.nn.functional.normalize(vectors + noise + pull * common_direction, dim=1).to(device)
    return sides


def directed(sides: dict[str, Tensor], direction: str) -> tuple[Tensor, Tensor]:
    """Queries and items."""
    return (sides["images"], sides["captions"]) if direction == "i2t" else (sides["captions"], sides["images"])


def plain_order(scores: np.ndarray) -> np.ndarray:
    """All pairs, the highest score first."""
    return np.argsort(-scores.ravel(), kind="stable")


def plain_walk(order: np.ndarray, queries: int, items: int, places: int) -> list[tuple[int, int]]:
    """The pairs that are accepted on the way down."""
    wishes, free, accepted = [K] * queries, [places] * items, []
    for start in range(0, len(order), WALKED_AT_ONCE):
        query, item = np.divmod(order[start : start + WALKED_AT_ONCE], items)
        for one, other in zip(query.tolist(), item.tolist(), strict=True):
            if wishes[one] and free[other]:
                wishes[one] -= 1
                free[other] -= 1
                accepted.append((one, other))
                if len(accepted) == queries * K:
                    return accepted
    return accepted


def measure_direction(scores: Tensor, rounds: int, device: torch.device) -> list[dict]:
    """One entry for each relaxation: both times, in turns, and their ratio. The sorting serves all relaxations."""
    criteria = {relaxation: RelaxedGreedyMatching(relaxation) for relaxation in RELAXATIONS}
    pairs = {relaxation: criterion.match(scores, K) for relaxation, criterion in criteria.items()}
    queries, items = scores.shape
    sorting, walking, ours = [], {one: [] for one in RELAXATIONS}, {one: [] for one in RELAXATIONS}
    cpu, given = torch.device("cpu"), scores.cpu().numpy()
    for _ in range(rounds):
        for relaxation, criterion in criteria.items():
            ours[relaxation].append(common.timed(lambda criterion=criterion: criterion.match(scores, K), device))
        found = {}
        sorting.append(common.timed(lambda found=found: found.update(order=plain_order(given)), cpu))
        for relaxation, criterion in criteria.items():
            places = criterion.places(queries, items, K)

            def walk(found=found, places=places):
                found["pairs"] = plain_walk(found["order"], queries, items, places)

            walking[relaxation].append(common.timed(walk, cpu))
            if not np.array_equal(pairs[relaxation].cpu().numpy(), found["pairs"]):
                raise AssertionError(f"relaxation {relaxation}: the pairs differ")
    plain = {one: [a + b for a, b in zip(sorting, walking[one], strict=True)] for one in RELAXATIONS}
    return [
        {
            "relaxation": one,
            "plain": common.summary(plain[one]),
            "ours": common.summary(ours[one]),
            "ratio": common.summary(plain[one])["median"] / common.summary(ours[one])["median"],
        }
        for one in RELAXATIONS
    ]


def extra_megabytes(images: int, direction: str, searched: bool, device: torch.device, dim: int = DIM) -> float:
    """Peak memory of a matching beyond its input: of the GPU, or of a fresh process on the CPU."""
    if device.type == "cuda":
        call = prepared(images, direction, searched, device, dim)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_probe, (images, direction, searched, dim))


def prepared(images: int, direction: str, searched: bool, device: torch.device, dim: int):
    """A call that matches scores, or searches vectors; the input is made."""
    queries, items = directed(make(images, device, dim), direction)
    criterion = RelaxedGreedyMatching(min(RELAXATIONS))
    if searched:
        return lambda: criterion.search(queries, items, k=K)
    scores = queries @ items.T
    return lambda: criterion.match(scores, K)


def _probe(images: int, direction: str, searched: bool, dim: int) -> float:
    cpu = torch.device("cpu")
    prepared(20, direction, searched, cpu, dim)()  # code and thread pools that any matching loads
    call = prepared(images, direction, searched, cpu, dim)
    before = evaluation._memory("VmRSS")
    call()
    return (evaluation._memory("VmHWM") - before) / 2**10


def measure(images: int, device: torch.device, rounds: int, dim: int = DIM) -> dict:
    """Both directions' times, ratios and extra memory, and how strong the hubs are."""
    sides, directions = make(images, device, dim), {}
    for direction in ("i2t", "t2i"):
        queries, items = directed(sides, direction)
        scores = queries @ items.T
        counts = k_occurrences(scores, (K,))[K]
        directions[direction] = {
            "queries": len(queries),
            "items": len(items),
            "score_mb": scores.nbytes / 2**20,
            "largest_hub": int(counts.max()),
            "ways": measure_direction(scores, rounds, device),
        }
        del scores
        for name, searched in (("match_mb", False), ("search_mb", True)):
            directions[direction][name] = extra_megabytes(images, direction, searched, device, dim)
    return {"images": images, "dim": dim, "k": K, "directions": directions}


def text(result: dict) -> str:
    """The tables."""
    rows, memory = [], []
    for direction, part in result["directions"].items():
        for way in part["ways"]:
            ratio = f"**{way['ratio']:.0f}**, at least {RATIO:g}: {'reached' if way['ratio'] >= RATIO else 'MISSED'}"
            times = (common.shown(way[name], 1, "s") for name in ("plain", "ours"))
            rows.append((direction, f"{way['relaxation']:g}", *times, ratio))
        least = SHARE * part["score_mb"]
        memory.append(
            (
                f"{direction}, {part['queries']:,} x {part['items']:,}",
                f"{part['score_mb']:.0f} MB",
                *(
                    f"**{part[name]:.0f} MB**, {common.target(part[name], round(least))}"
                    for name in ("match_mb", "search_mb")
                ),
                f"in {part['largest_hub']:,} of {part['queries']:,} lists",
            )
        )
    head = f"k = {result['k']}, D = {result['dim']}, an item has round(λk·max(1, Q/M)) places"
    return "\n\n".join(
        (
            head,
            common.table(("direction", "λ", "sorting and walking", "ours", "times as fast"), rows),
            common.table(("queries x items", "all scores", "extra: matching", "extra: search", "largest hub"), memory),
        )
    )


def main(argv: list[str] | None = None) -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--images", type=int, default=IMAGES, help=f"images, five captions each (default: {IMAGES})")
    options = parser.parse_args(argv)
    device = common.device_of(options.device)
    result = measure(options.images, device, options.rounds)
    common.report("matching", "Greedy matching against sorting all scores", result, text(result), device, options.out)


if __name__ == "__main__":
    main()

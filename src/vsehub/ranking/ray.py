"""`engine=ray`: items in shards, each ranked by a task of a Ray cluster, with the functions of one machine.

A task opens the file of its shard itself and reads only the shard's rows; queries, reference and reference items come
through Ray's object store. The driver merges the parts in the order of the items. Ray repeats the tasks of lost workers
and spills what exceeds its store.
"""

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch

from vsehub import __version__
from vsehub.checks import InputError, fail, require
from vsehub.criteria.base import Correction, Criterion, Terms, finite_terms, fit_all, joined
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors
from vsehub.extras import require_packages
from vsehub.io.address import masked
from vsehub.io.progress import bar
from vsehub.machine import usable_device
from vsehub.neighbors.tiles import ScoreColumns, held_at_once, nearest
from vsehub.neighbors.topk import Best, merged
from vsehub.neighbors.vectors import VectorSource, as_vectors
from vsehub.ranking.inputs import Sides
from vsehub.ranking.measure import Local

START_SECONDS = 90.0  # importing torch takes long on a busy machine
# About 64 shards, none with few rows or more than 256 MB of float32.
USUAL_SHARDS, LEAST_ROWS, MOST_NUMBERS = 64, 16_384, 2**26
# Terms as they go between processes.
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` - 1 of the file of vectors at `address`, which has `rows` of them.

    first: the number of the first of these rows among all items. normalize: see `VectorFile`.
    """

    address: str
    rows: int
    start: int
    stop: int
    first: int
    normalize: bool | None

    def __len__(self) -> int:
        return self.stop - self.start

    def share_of(self, terms: Sequence[Terms]) -> list[Arrays]:
        """The terms of the shard's items, from those of all items for each criterion."""
        rows = slice(self.first, self.first + len(self))
        return [_arrays(tuple(term[rows] for term in item_terms)) for item_terms in terms]

    def open(self) -> VectorFile:
        """The rows. Raises InputError if the file cannot be read here, or is not the one that the command read."""
        file = _open(self.address, self.normalize)
        require(
            len(file) == self.rows,
            f"{file} has {len(file)} rows on a worker and {self.rows} where the command runs; expected the same file "
            "at the same path on every machine",
        )
        origin = replace(file.origin, path=f"{masked(self.address)}, rows {self.start} to {self.stop - 1}")
        return replace(file, source=file.source[self.start : self.stop], ids=None, labels=None, origin=origin)


@lru_cache(maxsize=2)  # a .parquet is read once for all of its shards
def _open(address: str, normalize: bool | None) -> VectorFile:
    return open_vectors(address, "items on a worker", normalize=normalize)


def divide(items: VectorSource, rows: int | None = None) -> list[Shard]:
    """The items in shards of at most `rows` rows; no shard lies in two files.

    Raises InputError for vectors that lie in no file, which another process could not open.
    """
    if not isinstance(items, VectorFile) or items.origin.files is None:
        fail("engine=ray: items in shards must lie in files; give a file, a folder or a URI")
    count, dim = items.shape
    rows = rows or min(max(LEAST_ROWS, -(-count // USUAL_SHARDS)), max(1, MOST_NUMBERS // dim))
    shards, first = [], 0
    for address, count in items.origin.files:
        pieces = -(-count // rows)
        for piece in range(pieces):  # of almost equal sizes
            start, stop = piece * count // pieces, (piece + 1) * count // pieces
            shards.append(Shard(address, count, start, stop, first + start, items.normalize))
        first += count
    return shards


def terms_by_column(
    shard: Shard, criteria: Sequence[Correction], reference: np.ndarray, bank: np.ndarray | None, device: str
) -> list[Terms]:
    """The item terms of each of the criteria that work column by column, (m,) each."""
    return fit_all(criteria, shard.open(), _on(reference, device), None if bank is None else _on(bank, device))


def on_part(
    items: Shard | np.ndarray, step: Callable[..., Terms], terms: Arrays, reference: np.ndarray, device: str
) -> list[Terms]:
    """A step of `Correction.fit_parts` on a shard, or on reference items (G, D) that are taken as items."""
    source = items.open() if isinstance(items, Shard) else as_vectors("reference_items", items)
    return [step(ScoreColumns(_on(reference, device), source), *_terms(terms, device))]


def lists(
    shard: Shard, block: np.ndarray, depth: int, criteria: Sequence[Correction], terms: Sequence[Arrays], device: str
) -> list[Terms]:
    """Values and positions among all items (b, depth) of a block of queries: the plain lists, and each criterion's.

    terms: item terms of the shard. A shard with fewer items than `depth` returns all of them.
    """
    corrections = [
        criterion.over_tiles(_terms(arrays, device), ()) for criterion, arrays in zip(criteria, terms, strict=True)
    ]
    best = nearest(_on(block, device), shard.open(), min(depth, len(shard)), [None, *corrections])
    return [(values, positions + shard.first) for values, positions in best]


@torch.no_grad()
def carry_out(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of one of the functions above, terms as arrays."""
    answer = function(*arguments)
    return [_arrays(terms) for terms in answer] if isinstance(answer, list) else answer


def _on(rows: np.ndarray, device: str) -> VectorSource:
    return as_vectors("vectors", rows, device=torch.device(device))


def _terms(arrays: Arrays, device: str = "cpu") -> Terms:
    return tuple(torch.tensor(array, device=device) for array in arrays)


def _arrays(terms: Terms) -> Arrays:
    return tuple(term.cpu().numpy() for term in terms)


class Tasks:
    """Tasks of Ray. device: where they compute, "cpu" or "cuda"."""

    def __init__(self, ray: ModuleType, num_gpus: float):
        self._ray, self.device = ray, "cuda" if num_gpus else "cpu"
        self._task = ray.remote(carry_out).options(num_gpus=num_gpus)
        self.share = ray.put  # all workers of a machine read an object of the store without copying it

    def check(self) -> None:
        """Raise InputError unless a worker starts soon, on the same versions and with the device."""
        try:
            (worker,) = self.run(_versions, [(self.device,)], START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            raise InputError(
                f"no worker could start in {START_SECONDS:.0f} seconds; the cluster has {self._ray.cluster_resources()}"
                f", free {self._ray.available_resources()}. Set num_gpus lower, or wait"
            ) from error
        require(worker == _versions("cpu"), f"a worker has {worker}, this machine {_versions('cpu')}; install the same")

    def run(
        self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]], timeout: float | None = None
    ) -> Iterator[Any]:
        """The results of the jobs, in their order."""
        answers = [self._task.remote(function, *arguments) for arguments in jobs]
        try:
            while answers:
                yield self._ray.get(answers.pop(0), timeout=timeout)  # Ray's store frees a result without references
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from error


class Sharded(Local):
    """The engine that ranks items in shards. tasks: `Tasks`, or a stand-in. shard_rows: rows of a shard, as `divide`
    takes them.
    """

    def __init__(self, tasks: Any, shard_rows: int | None = None):
        super().__init__()
        self.tasks, self.shard_rows = tasks, shard_rows

    def look_through(self, vectors: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""
        shards = divide(vectors, self.shard_rows)
        norms = list(self._results(_look, [(shard,) for shard in shards]))
        share = sum(norm.unit_share * len(shard) for norm, shard in zip(norms, shards, strict=True)) / len(vectors)
        return Norms(min(norm.least for norm in norms), max(norm.most for norm in norms), share, norms[0].tolerance)

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """The terms of all items, for each criterion. Raises InputError for one that needs all items at once."""
        bank, device = sides.reference_items, self.tasks.device
        require(not sides.within, "engine=ray needs queries=FILE; one set, whose items search each other, does not")
        for criterion in criteria:
            require(
                not criterion.query_terms_rank
                and type(criterion).over is Correction.over
                and (criterion.columnwise or type(criterion).fit_parts is not Correction.fit_parts)
                and (criterion.reference_items_as != "rows" or bank is not None),
                f"{criterion} needs all items on one machine, and engine=ray divides them. Use engine=local, a "
                "criterion such as csls, or give reference_items=FILE to one that compares items with each other",
            )
        shards = divide(sides.items, self.shard_rows)
        reference = self._shared(sides.reference_queries)
        shared = None if bank is None else self._shared(bank)
        together = [criterion for criterion in criteria if criterion.columnwise]
        jobs = [(shard, together, reference, shared, device) for shard in shards] if together else []
        of_shards = zip(*self._results(terms_by_column, jobs), strict=True)

        def each(step: Callable[..., Terms], terms: Sequence[Terms] | None = None) -> list[Terms]:
            arrays: Iterable[Arrays] = [()] * len(parts) if terms is None else map(_arrays, terms)
            steps = [
                (part, step, part_terms, reference, device) for part, part_terms in zip(parts, arrays, strict=True)
            ]
            return [result for (result,) in self._results(on_part, steps)]

        all_terms = []
        for criterion in criteria:
            parts = [*shards, *([shared] if bank is not None and criterion.reference_items_as == "columns" else [])]
            of_parts = next(of_shards) if criterion.columnwise else criterion.fit_parts(each)[: len(shards)]
            all_terms.append(finite_terms(joined(of_parts)))
        return all_terms

    def matched(self, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Raises InputError: a matching needs all items."""
        fail(f"{criterion} matches queries and items with each other; use engine=local")

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
    ) -> Iterator[tuple[int, list[Best]]]:
        """The lists of the plain ranking and of each criterion, for one block of queries at a time."""
        queries, height = sides.queries, held_at_once(sides.queries)
        shards = [(shard, shard.share_of(terms)) for shard in divide(sides.items, self.shard_rows)]
        for first in range(0, len(queries), height):
            block = self.tasks.share(queries.rows(first, min(first + height, len(queries))).cpu().numpy())
            jobs = [(shard, block, depth, criteria, shard_terms, self.tasks.device) for shard, shard_terms in shards]
            best: list[Any] = [None] * (1 + len(criteria))
            for part in self._results(lists, jobs):
                best = [merged(before, later, depth) for before, later in zip(best, part, strict=True)]
            yield first, best

    def _shared(self, vectors: VectorSource) -> Any:
        return self.tasks.share(vectors.rows(0, len(vectors)).cpu().numpy())

    def _results(self, function: Callable[..., Any], jobs: Sequence[Any]) -> Iterator[Any]:
        with bar(function.__name__.strip("_"), total=len(jobs), unit=" shards") as steps:
            for answer in self.tasks.run(function, jobs):
                yield [_terms(arrays) for arrays in answer] if isinstance(answer, list) else answer
                steps.update()


def _look(shard: Shard) -> Norms:
    return look_through(shard.open(), begin=shard.start)


def _versions(device: str) -> dict[str, str]:
    """The versions that results depend on. Runs in a worker. Raises InputError if the device is not available there."""
    usable_device(device)
    return {"vsehub": __version__, "torch": str(torch.__version__), "python": sys.version.split()[0]}


@contextmanager
def cluster(address: str | None = None, num_gpus: float = 0.0) -> Iterator[Sharded]:
    """The engine, while this process is connected to a Ray cluster; an existing connection is used, and stays open.

    address: HOST:PORT of the cluster's head, or "auto" for a cluster that runs on this machine; None: a cluster is
    started, and stopped at the end. num_gpus: of one task, which has one core; fractions are allowed. Raises InputError
    if Ray is not installed, nothing answers at the address or no worker can start.
    """
    require_packages("engine=ray", "ray", "ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics to its makers
    import ray

    starts = not ray.is_initialized()
    # An empty working folder: otherwise workers would import from this process's folder before all packages.
    with TemporaryDirectory(prefix="vsehub-") as empty:
        try:
            if address not in (None, "auto"):  # Ray itself would keep trying for minutes
                host, _, port = str(address).rpartition(":")
                socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
            if starts:
                ray.init(
                    address or "local",
                    runtime_env={"working_dir": empty},
                    include_dashboard=False if address is None else None,
                    log_to_driver=False,
                    configure_logging=False,
                    logging_level=logging.ERROR,
                )
        except Exception as error:  # Ray also raises plain exceptions
            raise InputError(
                f"ray_address: {address or 'a cluster on this machine'} cannot be joined ({str(error)[:300]}). If it "
                "asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, the token file of its head"
            ) from error
        try:
            engine = Sharded(Tasks(ray, num_gpus))
            engine.tasks.check()
            engine.facts = {"name": "ray", "version": ray.__version__, "address": address, "num_gpus": num_gpus}
            yield engine
        finally:
            if starts:
                ray.shutdown()

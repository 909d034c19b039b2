"""`engine=ray`: items in shards, each ranked by a task of a Ray cluster, with the functions of one machine.

A task opens the file of its shard itself and reads only the shard's rows; queries, reference and reference items come
through Ray's object store. The driver merges the parts in the order of the items. Ray repeats the tasks of lost workers
and spills what exceeds its store.
"""

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import torch

from vsehub import __version__
from vsehub.checks import InputError, fail, positive, require, whole
from vsehub.criteria.base import Correction, Criterion, Terms, finite_terms, fit_all, joined
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors
from vsehub.extras import require_packages
from vsehub.io.address import Address
from vsehub.io.progress import bar
from vsehub.metrics.topk import Best, merged
from vsehub.neighbors.tiles import ScoreColumns, held_at_once, nearest, row_blocks
from vsehub.neighbors.vectors import VectorSource, as_vectors, usable_device
from vsehub.ranking.inputs import Sides

log = logging.getLogger(__name__)

START_SECONDS = 90.0  # importing torch takes long on a busy machine
# About 64 shards, none with few rows or more than 256 MB of float32.
USUAL_SHARDS, LEAST_ROWS, MOST_NUMBERS = 64, 16_384, 2**26
# Methods of a `Correction` that say whether items can be taken in shards.
OPTIONAL = ("over", "fit_parts", "merged_query_terms")
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

    def open(self) -> VectorFile:
        """The rows. Raises InputError if the file cannot be read here, or is not the one that the command read."""
        try:
            file = _open(self.address, self.normalize)
        except InputError as error:
            raise InputError(f"{error} (on a worker: every machine must find the items at the same address)") from error
        require(
            len(file) == self.rows,
            f"{file} has {len(file)} rows on a worker and {self.rows} where the command runs; expected the same file "
            "at the same path on every machine",
        )
        origin = replace(file.origin, path=f"{self.address}, rows {self.start} to {self.stop - 1}")
        return replace(file, source=file.source[self.start : self.stop], ids=None, labels=None, origin=origin)


@lru_cache(maxsize=2)  # a .parquet is read once for all of its shards
def _open(address: str, normalize: bool | None) -> VectorFile:
    return open_vectors(address, "items", normalize=normalize)


def divide(items: VectorSource, rows: int | None = None) -> list[Shard]:
    """The items in shards of at most `rows` rows; no shard lies in two files.

    Raises InputError for vectors that lie in no file, which another process could not open.
    """
    if not isinstance(items, VectorFile) or items.origin.files is None:
        fail("engine=ray: items in shards must lie in files; give a file, a folder or a URI")
    count, dim = items.shape
    rows = rows or min(max(LEAST_ROWS, -(-count // USUAL_SHARDS)), max(1, MOST_NUMBERS // dim))
    found, first = [], 0
    for address, count in items.origin.files or ():
        pieces = -(-count // rows)
        for piece in range(pieces):  # of almost equal sizes
            start, stop = piece * count // pieces, (piece + 1) * count // pieces
            found.append(Shard(Address(address), count, start, stop, first + start, items.normalize))
        first += count
    return found


def terms_by_column(
    shard: Shard, criteria: Sequence[Correction], seen: np.ndarray, bank: np.ndarray | None, device: str
) -> list[Terms]:
    """The item terms of each of the criteria that work column by column, (m,) each."""
    return fit_all(criteria, shard.open(), _on(seen, device), None if bank is None else _on(bank, device))


def on_part(
    items: Shard | np.ndarray, step: Callable[..., Terms], terms: Arrays, seen: Any, device: str
) -> list[Terms]:
    """A step of `Correction.fit_parts` on a shard, or on reference items (G, D) that are taken as items."""
    source = items.open() if isinstance(items, Shard) else as_vectors("reference_items", items)
    return [step(ScoreColumns(_on(seen, device), source), *_terms(terms, device))]


def query_parts(
    shard: Shard, block: np.ndarray, criteria: Sequence[Correction], item_terms: Sequence[Arrays], device: str
) -> list[Terms]:
    """`Correction.query_terms` of each of the criteria for one block of queries. item_terms: of the shard's items."""
    return [
        criterion.query_terms(blocks, _terms(terms, device))
        for criterion, terms in zip(criteria, item_terms, strict=True)
        for blocks in row_blocks(_on(block, device), shard.open())
    ]


def lists(
    shard: Shard,
    block: np.ndarray,
    depth: int,
    criteria: Sequence[Correction],
    terms: Sequence[tuple[Arrays, Arrays]],
    device: str,
) -> list[Terms]:
    """Values and positions among all items (b, depth) of a block of queries: the plain lists, and each criterion's.

    terms: of the shard's items and of these queries. A shard with fewer items than `depth` returns all of them.
    """
    corrections = [
        criterion.over_tiles(_terms(of_items, device), _terms(of_queries, device))
        for criterion, (of_items, of_queries) in zip(criteria, terms, strict=True)
    ]
    found = nearest(_on(block, device), shard.open(), min(depth, len(shard)), [None, *corrections])
    return [(values, positions + shard.first) for values, positions in found]


@torch.no_grad()
def carry_out(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of one of the functions above, terms as arrays."""
    answer = function(*arguments)
    return [_arrays(terms) for terms in answer] if isinstance(answer, list) else answer


def _on(rows: np.ndarray, device: str) -> VectorSource:
    return as_vectors("vectors", rows, device=torch.device(device))


def _terms(arrays: Arrays, device: str) -> Terms:
    return tuple(torch.tensor(array, device=device) for array in arrays)


def _arrays(terms: Terms) -> Arrays:
    return tuple(term.cpu().numpy() for term in terms)


def _array(rows: VectorSource, start: int = 0, stop: int | None = None) -> np.ndarray:
    return rows.rows(start, len(rows) if stop is None else stop).cpu().numpy()


class Tasks:
    """Tasks of Ray. device: where they compute, "cpu" or "cuda"."""

    def __init__(self, ray: ModuleType, num_cpus: float, num_gpus: float):
        self._ray, self.device = ray, "cuda" if num_gpus else "cpu"
        self._task = ray.remote(carry_out).options(num_cpus=num_cpus, num_gpus=num_gpus)

    def share(self, array: np.ndarray) -> Any:
        """A reference into Ray's object store, which all workers of a machine read without copying."""
        return self._ray.put(array)

    def check(self) -> None:
        """Raise InputError unless a worker starts soon, on the same versions and with the device."""
        asked = self._task.remote(_versions, self.device)
        try:
            found = self._ray.get(asked, timeout=START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            self._ray.cancel(asked, force=True)
            raise InputError(
                f"no worker could start in {START_SECONDS:.0f} seconds; the cluster has {self._ray.cluster_resources()}"
                f", free {self._ray.available_resources()}. Set num_cpus or num_gpus lower, or wait"
            ) from error
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from error
        require(found == _versions("cpu"), f"a worker has {found}, this machine {_versions('cpu')}; install the same")

    def run(self, function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """The results of the jobs, in their order."""
        answers = [self._task.remote(function, *arguments) for arguments in jobs]
        try:
            while answers:
                yield self._ray.get(answers.pop(0))  # Ray's store frees a result without references
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause or error from error
        except self._ray.exceptions.RayError as error:
            raise InputError(f"Ray lost a worker; set shard_rows lower or num_cpus higher ({error})") from error


@dataclass(frozen=True)
class Sharded:
    """The engine that ranks items in shards; see `engines.Engine`. tasks: `Tasks`, or a stand-in."""

    tasks: Any
    shard_rows: int | None = None
    told: dict[str, Any] = field(default_factory=dict)

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion that needs all items at once."""
        require_sharded(criteria, sides.reference_items is not None)

    def look_through(self, items: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""
        among = divide(items, self.shard_rows)
        norms = list(self._results(_look, [(shard,) for shard in among], "checking"))
        share = sum(one.unit_share * len(shard) for one, shard in zip(norms, among, strict=True)) / len(items)
        return Norms(min(one.least for one in norms), max(one.most for one in norms), share, norms[0].tolerance)

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """Return the terms of all items, for each criterion."""
        among, device = divide(sides.items, self.shard_rows), self.tasks.device
        seen = self.tasks.share(_array(sides.seen))
        bank = None if sides.reference_items is None else self.tasks.share(_array(sides.reference_items))
        if criteria[0].columnwise:
            jobs = [(shard, list(criteria), seen, bank, device) for shard in among]
            of_shards = list(self._merged(terms_by_column, jobs, "terms"))
            return [finite_terms(joined(terms[place] for terms in of_shards)) for place in range(len(criteria))]
        (criterion,) = criteria
        taken: list[Any] = [*among, *([bank] if bank is not None and criterion.reference_items_as == "columns" else [])]

        def each(step: Callable[..., Terms], terms: Sequence[Terms] | None = None) -> list[Terms]:
            arrays: list[Arrays] = [()] * len(taken) if terms is None else [_arrays(part) for part in terms]
            jobs = [(side, step, part, seen, device) for side, part in zip(taken, arrays, strict=True)]
            return [part for (part,) in self._merged(on_part, jobs, "terms")]

        return [finite_terms(joined(criterion.fit_parts(each)[: len(among)]))]

    def matched(self, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Raises InputError: `require` refuses such criteria."""
        fail(f"{criterion} matches queries and items with each other; use engine=local")

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
    ) -> Iterator[tuple[int, list[Best]]]:
        """Yield the lists of the plain ranking and of each criterion, for one block of queries at a time."""
        queries, among, device = sides.queries, divide(sides.items, self.shard_rows), self.tasks.device
        height, ranking = held_at_once(queries), [one for one in criteria if one.query_terms_rank]
        own = [
            [_arrays(tuple(term[shard.first : shard.first + len(shard)] for term in one)) for one in terms]
            for shard in among
        ]
        for first in range(0, len(queries), height):
            block = self.tasks.share(_array(queries, first, min(first + height, len(queries))))
            of_queries: list[Arrays] = [() for _ in criteria]
            if ranking:
                places = [place for place, one in enumerate(criteria) if one.query_terms_rank]
                asked = [
                    (shard, block, ranking, [mine[place] for place in places], device)
                    for shard, mine in zip(among, own, strict=True)
                ]
                parts = list(self._merged(query_parts, asked, "queries"))
                for at, place in enumerate(places):
                    merged_terms = criteria[place].merged_query_terms([part[at] for part in parts])
                    of_queries[place] = _arrays(finite_terms(merged_terms))
            jobs = [
                (shard, block, depth, list(criteria), list(zip(mine, of_queries, strict=True)), device)
                for shard, mine in zip(among, own, strict=True)
            ]
            best: list[Any] = [None] * (1 + len(criteria))
            for part in self._merged(lists, jobs, "lists"):
                best = [merged(one, (values, places), depth) for one, (values, places) in zip(best, part, strict=True)]
            yield first, best

    def _merged(self, function: Callable[..., Any], jobs: Sequence[Any], label: str) -> Iterator[list[Terms]]:
        for answer in self._results(function, jobs, label):
            yield [_terms(one, "cpu") for one in answer]

    def _results(self, function: Callable[..., Any], jobs: Sequence[Any], label: str) -> Iterator[Any]:
        with bar(label, total=len(jobs), unit=" shards") as steps:
            for answer in self.tasks.run(function, jobs):
                yield answer
                steps.update()


def _look(shard: Shard) -> Norms:
    return look_through(shard.open(), begin=shard.start)


def require_sharded(criteria: Mapping[str, Criterion], reference_items: bool) -> None:
    """Raise InputError for a criterion that needs all items at once. reference_items: whether there are any."""
    for name, criterion in criteria.items():
        own = criterion.correction
        written = {one for one in OPTIONAL if getattr(type(own), one) is not getattr(Correction, one)}
        require(
            criterion.matching is None
            and "over" not in written
            and (own.columnwise or "fit_parts" in written)
            and (not own.query_terms_rank or "merged_query_terms" in written)
            and (own.reference_items_as != "rows" or reference_items),
            f"{name} needs all items on one machine, and engine=ray divides them. Use engine=local, a criterion that "
            "corrects scores, e.g. csls, or give reference_items=FILE to one that compares items with each other",
        )


@contextmanager
def cluster(
    address: str | None = None, num_cpus: float = 1.0, num_gpus: float = 0.0, shard_rows: int | None = None
) -> Iterator[Sharded]:
    """The engine, while this process is connected to a Ray cluster.

    address: HOST:PORT of the cluster's head, or "auto" for a cluster that runs on this machine; None: a cluster is
    started, and stopped at the end. num_cpus, num_gpus: of one task; fractions are allowed. shard_rows: items of a
    shard at most. Raises InputError if Ray is not installed, nothing answers at the address or no worker can start.
    """
    positive("num_cpus", num_cpus)
    if shard_rows is not None:
        whole("shard_rows", shard_rows)
    require_packages("engine=ray", "ray", "ray")
    if address not in (None, "auto"):  # Ray itself would keep trying for minutes
        host, _, port = str(address).rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, OverflowError, ValueError) as error:
            raise InputError(f"ray_address: nothing answers at {address} ({error}); give HOST:PORT") from error
    with _joined(address) as ray:
        tasks = Tasks(ray, num_cpus, num_gpus)
        tasks.check()
        told = {"name": "ray", "version": ray.__version__, "address": address}
        yield Sharded(tasks, shard_rows, told | {"num_cpus": num_cpus, "num_gpus": num_gpus})


def _versions(device: str) -> dict[str, str]:
    """The versions that results depend on. Runs in a worker. Raises InputError if the device is not available there."""
    usable_device(device)
    return {"vsehub": __version__, "torch": str(torch.__version__), "python": sys.version.split()[0]}


@contextmanager
def _joined(address: str | None) -> Iterator[ModuleType]:
    """Ray, connected to the cluster. An existing connection of this process is used, and stays open."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # otherwise Ray sends usage statistics to its makers
    if address is not None:  # a server other than Ray is refused in seconds, not half a minute
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", "5")
    import ray

    if ray.is_initialized():
        yield ray
        return
    handler = signal.getsignal(signal.SIGTERM)
    # An empty working folder: otherwise workers would import from this process's folder before all packages.
    with TemporaryDirectory(prefix="vsehub-") as empty:
        try:
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
                f"Ray: {address or 'a cluster on this machine'} cannot be joined ({str(error)[:300]}). If the cluster "
                "asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE, the token file of its head"
            ) from error
        finally:
            with suppress(ValueError, TypeError):  # from another thread, or for a handler not set by Python
                signal.signal(signal.SIGTERM, handler)  # Ray's own handler ends without vsehub's message
    try:
        yield ray
    finally:
        ray.shutdown()

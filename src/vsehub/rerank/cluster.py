"""Workers as tasks of a Ray cluster: one that runs already, or one started on this machine for the command.

Tasks, not Ray Data: a pass over the items maps shards to arrays of unequal sizes, and Sinkhorn makes eleven passes. On
two cores a pass over 8 shards took 0.03 s as tasks and 0.4 to 0.8 s as a Ray data set. A data set's reading tasks also
need a core of their own: without a free core they wait for ever.
"""

import itertools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from numbers import Real
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import torch

from vsehub import __version__
from vsehub.checks import InputError, fail, is_out_of_memory, positive, require, whole
from vsehub.criteria.base import Criterion
from vsehub.extras import require_packages
from vsehub.rerank.distributed import Distributed, refuse_unsharded
from vsehub.rerank.shards import carried_out
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5.0
START_SECONDS = 90.0  # importing torch takes long on a busy machine
QUIET_SECONDS = 60.0  # without any result, then the log says what the cluster has
RETRIES = 3  # of a shard after its worker was lost


@dataclass(frozen=True)
class Cluster:
    """The cluster of the workers, and the resources of a worker.

    address: HOST:PORT of the cluster's head, or "auto" for a cluster that runs on this machine; None: a cluster is
    started, and stopped at the end. num_cpus, num_gpus: of one worker; fractions are allowed. workers: how many shards
    are worked on at once; None: as many as the cluster has room for. shard_rows: see `Distributed`. Raises InputError
    for other values, if Ray is not installed and if nothing answers at the address.
    """

    fetched: ClassVar[bool] = False
    address: str | None = None
    num_cpus: float = 1.0
    num_gpus: float = 0.0
    workers: int | None = None
    shard_rows: int | None = None

    def __post_init__(self) -> None:
        positive("num_cpus", self.num_cpus)
        require(
            isinstance(self.num_gpus, Real) and not isinstance(self.num_gpus, bool) and 0 <= self.num_gpus < 64,
            f"num_gpus is {self.num_gpus!r}; expected how many GPUs a worker takes: 0, 1, or a part such as 0.5",
        )
        for name in ("workers", "shard_rows"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name))
        require_packages("engine=ray", "ray", "ray")
        if self.address not in (None, "auto"):
            _require_answer(str(self.address))

    @property
    def device(self) -> str:
        """Where workers compute."""
        return "cuda" if self.num_gpus else "cpu"

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion that needs all items at once."""
        refuse_unsharded(criteria, sides.reference_items is not None)

    @contextmanager
    def started(self) -> Iterator[tuple[Distributed, dict[str, Any]]]:
        """The engine, while this process is connected to the cluster, and its part of a record.

        Raises InputError if no worker can start.
        """
        with _joined(self.address) as ray:
            fitting = _fitting(ray, self)
            count = fitting if self.workers is None else min(fitting, self.workers)
            workers = RayWorkers(ray, self, count)
            workers.check()
            where = "this machine" if self.address is None else self.address
            log.info("Ray %s on %s: %d workers of %s", ray.__version__, where, count, _taken(self))
            told = {"name": "ray", "version": ray.__version__, "address": self.address, "workers": count}
            yield Distributed(workers, self.shard_rows), told | {"num_cpus": self.num_cpus, "num_gpus": self.num_gpus}


class RayWorkers:
    """Tasks of Ray, of which at most `count` run at once. See `distributed.Workers`."""

    def __init__(self, ray: ModuleType, settings: Cluster, count: int):
        self._ray, self._settings, self._count = ray, settings, count
        self.device = settings.device
        self._task = ray.remote(carried_out).options(
            num_cpus=settings.num_cpus, num_gpus=settings.num_gpus, max_retries=RETRIES
        )

    def share(self, array: np.ndarray) -> Any:
        """A reference into Ray's object store, which all workers of a machine read without copying."""
        return self._ray.put(array)

    def check(self) -> None:
        """Raise InputError unless a worker starts soon, on the same version of vsehub and with the device."""
        asked = self._ray.remote(_versions).options(
            num_cpus=self._settings.num_cpus, num_gpus=self._settings.num_gpus, max_retries=RETRIES
        )
        answer = asked.remote(self.device)
        try:
            found = self._ray.get(answer, timeout=START_SECONDS)
        except self._ray.exceptions.GetTimeoutError as error:
            self._ray.cancel(answer, force=True)
            raise InputError(
                f"no worker could start in {START_SECONDS:.0f} seconds: {_resources(self._ray)}, and a worker takes "
                f"{_taken(self._settings)}. Set num_cpus=0.5 or less, or wait until others have finished"
            ) from error
        except self._ray.exceptions.RayError as error:
            raise _explained(error) from error
        here = _versions("cpu")
        require(
            found == here, f"a worker has {_said(found)}, this machine {_said(here)}; install the same on every machine"
        )

    def run(
        self, function: Callable[..., Any], jobs: Iterable[tuple[int, tuple[Any, ...]]]
    ) -> Iterator[tuple[int, Any]]:
        """(number, result) of each job. The shard of a lost worker is done again by another worker."""
        ray, left = self._ray, iter(jobs)
        waiting: dict[Any, int] = {}
        # Two jobs for each worker, so that no worker waits for this process; one where the user limits the workers.
        most = 2 * self._count if self._settings.workers is None else self._count

        def fill() -> None:
            for number, arguments in itertools.islice(left, most - len(waiting)):
                waiting[self._task.remote(function, *arguments)] = number

        fill()
        since = time.monotonic()
        while waiting:
            done, _ = ray.wait(list(waiting), timeout=QUIET_SECONDS)
            if not done:
                _fitting(ray, self._settings)  # raises if no machine of the cluster can hold a worker any more
                log.warning("no shard was done for %.0f seconds; %s", time.monotonic() - since, _resources(ray))
                continue
            since = time.monotonic()
            number = waiting.pop(done[0])
            try:
                answer = ray.get(done[0])
            except ray.exceptions.RayError as error:
                for one in waiting:
                    ray.cancel(one, force=True)
                raise _explained(error) from error
            fill()  # before the result is used, so that workers go on meanwhile
            yield number, answer


def _versions(device: str) -> dict[str, str]:
    """The versions that results depend on. Runs in a worker. Raises InputError if the device is not available there."""
    from vsehub.neighbors.vectors import usable_device

    usable_device(device)
    return {"vsehub": __version__, "torch": str(torch.__version__), "python": sys.version.split()[0]}


def _said(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _require_answer(address: str) -> None:
    """Raise InputError unless something listens at HOST:PORT. Ray itself would keep trying for minutes."""
    host, colon, port = address.rpartition(":")
    require(
        bool(colon) and port.isdecimal() and "/" not in host and host != "",
        f"ray_address is {address!r}; expected HOST:PORT of the cluster's head, e.g. 10.0.0.5:6379, on a machine of "
        "the cluster; auto for a cluster that runs on this machine; or null to start one",
    )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"ray_address: nothing answers at {address} ({error}). Give the address that `ray start --head` printed, "
            "or leave ray_address out to start a cluster on this machine"
        ) from error


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
    empty = TemporaryDirectory(prefix="vsehub-")
    try:
        ray.init(
            address="local" if address is None else address,
            # An empty working folder: otherwise workers would import from this process's folder before all packages.
            runtime_env={"working_dir": empty.name},
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:  # Ray also raises plain exceptions
        said = " ".join(str(error).split())[:300]
        if address is None:
            raise InputError(f"Ray: a cluster cannot be started on this machine ({said})") from error
        raise InputError(
            f"Ray: {address} cannot be joined ({said}). If the cluster asks for a token, set RAY_AUTH_MODE=token and "
            f"RAY_AUTH_TOKEN_PATH=FILE, the token file of its head; otherwise see that it runs Ray {ray.__version__}"
        ) from error
    finally:
        empty.cleanup()  # Ray has packed it
        with suppress(ValueError, TypeError):  # from another thread, or for a handler not set by Python
            signal.signal(signal.SIGTERM, handler)  # Ray's own handler ends without vsehub's message
    try:
        yield ray
    finally:
        ray.shutdown()


def _fitting(ray: ModuleType, settings: Cluster) -> int:
    """How many workers the cluster has room for. Raises InputError if there is no room for one."""
    count = 0
    for node in ray.nodes():
        if node["Alive"]:
            have = node["Resources"]
            rooms = [have.get("CPU", 0.0) / settings.num_cpus]
            rooms += [have.get("GPU", 0.0) / settings.num_gpus] if settings.num_gpus else []
            count += int(min(rooms) + 1e-9)
    if not count:
        fail(
            f"no machine of the Ray cluster has room for a worker: {_resources(ray)}, and a worker takes "
            f"{_taken(settings)}. Set num_cpus=0.5 or num_gpus=0.5, or less, so that several share one, or num_gpus=0"
        )
    return count


def _resources(ray: ModuleType) -> str:
    whole_, free = ray.cluster_resources(), ray.available_resources()
    names = ("CPU", "GPU")
    return "the cluster has " + ", ".join(
        f"{whole_.get(name, 0):g} {name} ({free.get(name, 0):g} free)"
        for name in names
        if name == "CPU" or name in whole_
    )


def _taken(settings: Cluster) -> str:
    return f"num_cpus={settings.num_cpus:g}, num_gpus={settings.num_gpus:g}"


def _explained(error: Exception) -> Exception:
    """The error that tells the user about a worker's failure; the failure itself if it is a bug."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, InputError):
        return InputError(str(cause))
    if cause is not None and (isinstance(cause, OSError) or is_out_of_memory(cause)):
        return cause
    if cause is not None:
        return error
    return InputError(
        f"Ray lost a worker {1 + RETRIES} times over one shard ({type(error).__name__}: "
        f"{' '.join(str(error).split())[:300]}). It may have run out of memory: set shard_rows or workers lower, or "
        "num_cpus higher, and run the same command again"
    )

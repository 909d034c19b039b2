"""The processes that train together: joining, values from process 0 or from all, and checks that all agree.

They are started by torchrun, by SLURM's srun, or by `vsehub train trainer.devices=N` itself.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist

from vsehub.checks import InputError, require

LOST = 4  # exit status of a process that ends because another has ended


def processes() -> int:
    """How many processes train together; 1 where torch.distributed is not in use."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process() -> int:
    """The number of this process among them, from 0."""
    return dist.get_rank() if processes() > 1 else 0


def started_place(asked: Mapping[str, Any]) -> dict[str, int]:
    """The Trainer's devices and num_nodes as torchrun or srun started the processes.

    asked: the number in the settings. Raises InputError if that number is neither one nor the number of processes.
    """
    if "LOCAL_WORLD_SIZE" in os.environ:
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
    else:
        devices = processes() // int(os.environ.get("SLURM_NNODES", "1"))
    found = {"devices": devices, "num_nodes": processes() // devices}
    require(
        found["num_nodes"] * devices == processes(),
        f"{processes()} processes were started, {devices} on this node; expected as many on each node",
    )
    for name, value in found.items():
        require(
            asked[name] in (1, -1, value),
            f"trainer.{name} is {asked[name]!r}, but the processes were started with {value}; leave it out",
        )
    return found


def facts_of_group() -> dict[str, Any]:
    """The processes, for a run's record: how many, on how many nodes, and what they talk through."""
    count = processes()
    nodes = 1 if count == 1 else started_place({"devices": 1, "num_nodes": 1})["num_nodes"]
    return {"count": count, "nodes": nodes, "backend": dist.get_backend() if count > 1 else None}


@contextmanager
def joined() -> Iterator[None]:
    """Join the processes that torchrun or srun started with this one, and leave them at the end."""
    _join()
    yield
    dist.destroy_process_group()  # not after an error, when it could wait for the others


def _join() -> None:
    from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    found = TorchElasticEnvironment() if "TORCHELASTIC_RUN_ID" in os.environ else SLURMEnvironment()
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = found.main_address, str(found.main_port)
    if torch.cuda.is_available():
        torch.cuda.set_device(found.local_rank() % torch.cuda.device_count())
    dist.init_process_group(rank=found.global_rank(), world_size=found.world_size())


def is_of_the_group(error: BaseException) -> bool:
    """Whether an error says that another process cannot be reached."""
    if processes() == 1:
        return False
    said = str(error)
    return isinstance(error, dist.DistError) or any(
        word in said for word in ("gloo", "Gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")
    )


def from_first(value: Any) -> Any:
    """The value of process 0, on all processes, as JSON holds it; the values of the others are ignored."""
    if processes() == 1:
        return value
    text = _as_text(value if process() == 0 else None)
    length = torch.tensor([len(text)])
    dist.broadcast(length, 0)
    if process() > 0:
        text = torch.empty(int(length), dtype=torch.uint8)
    dist.broadcast(text, 0)
    return _of_text(text)


def of_all(value: Any) -> list[Any]:
    """The values of all processes as JSON holds them, those of process 0 first."""
    if processes() == 1:
        return [value]
    text = _as_text(value)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(processes())]
    dist.all_gather(lengths, torch.tensor([len(text)]))
    most = int(max(lengths))
    texts = [torch.zeros(most, dtype=torch.uint8) for _ in lengths]
    dist.all_gather(texts, torch.cat([text, text.new_zeros(most - len(text))]))
    return [_of_text(one[: int(length)]) for one, length in zip(texts, lengths, strict=True)]


def _as_text(value: Any) -> torch.Tensor:
    return torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8)


def _of_text(text: torch.Tensor) -> Any:
    return json.loads(bytes(text.tolist()))


@contextmanager
def together() -> Iterator[None]:
    """Where the block raises an error on one process, all end: none is left waiting.

    Process 0 raises its own error, or InputError with the message of the first that has one; the others end silently.
    """
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    said = of_all(None if own is None else str(own) or type(own).__name__)
    if not any(said):
        return
    if process() > 0:
        with suppress(RuntimeError):
            from_first(None)  # never sent: waiting lets process 0 end first, with its message
        raise SystemExit(LOST)
    if own is not None:
        raise own
    number = next(number for number, message in enumerate(said) if message)
    raise InputError(f"process {number} of {processes()}: {said[number]}")


def require_alike(facts: Mapping[str, Any]) -> None:
    """End all processes where one has other facts than process 0, which raises InputError naming what differs."""
    first, *others = of_all(dict(facts))  # as JSON has them, on all sides
    with together():
        for number, theirs in enumerate(others, 1):
            for name, expected in first.items():
                require(
                    theirs.get(name) == expected,
                    f"process {number} of {processes()} has other {name} than process 0: {theirs.get(name)!r}, not "
                    f"{expected!r}; start all of them alike",
                )

"""The processes that train together, which Lightning, torchrun or SLURM's srun has started."""

import os

import torch.distributed as dist


def processes() -> int:
    """The number of processes that train together; 1 if torch.distributed is not in use."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process() -> int:
    """The number of this process among them, from 0."""
    return dist.get_rank() if processes() > 1 else 0


def started_place() -> dict[str, int]:
    """The Trainer's devices and num_nodes where torchrun or srun has started several processes, else {}."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        count, devices = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    elif "SLURM_STEP_ID" in os.environ:  # a step is what srun starts; the batch script runs once
        count = int(os.environ.get("SLURM_NTASKS", "1"))
        devices = count // int(os.environ.get("SLURM_NNODES", "1"))
    else:
        return {}
    return {"devices": devices, "num_nodes": count // devices} if count > 1 else {}


def is_lost(error: BaseException) -> bool:
    """Return True if an error says that another process cannot be reached."""
    words = ("gloo", "Gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe")
    return processes() > 1 and (isinstance(error, dist.DistError) or any(word in str(error) for word in words))

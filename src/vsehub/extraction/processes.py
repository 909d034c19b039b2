"""Which of several processes this is, as torchrun tells each of them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from vsehub.checks import InputError, require

T = TypeVar("T")


class Processes(NamedTuple):
    """rank: of this process, from 0. world: how many. local: the rank on this machine, which picks the GPU."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Processes":
        """From RANK, WORLD_SIZE and LOCAL_RANK; without them there is one. Raises InputError for impossible values."""
        given = {name: environment.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        try:
            rank, world = int(given["RANK"] or 0), int(given["WORLD_SIZE"] or 1)
            local = rank if given["LOCAL_RANK"] is None else int(given["LOCAL_RANK"])
        except ValueError as error:
            raise InputError(f"the environment has {given}; expected whole numbers, as torchrun sets them") from error
        require(
            0 <= rank < world and local >= 0 and (given["RANK"] is None) == (given["WORLD_SIZE"] is None),
            f"the environment has {given}; expected RANK from 0 to WORLD_SIZE - 1, as torchrun sets them, or neither",
        )
        return cls(rank, world, local)

    def own(self, work: Sequence[T]) -> list[T]:
        """What of `work` this process does: every piece is one process's."""
        return list(work[self.rank :: self.world])

"""Print how much the installations weigh without torch and what torch brings, from what this environment has installed.

python release/sizes.py
"""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SETS = (("cpu",), ("cpu", "train"))
# The CUDA libraries are torch's, through extras of packages that name the same ones again.
OF_TORCH = ("nvidia-", "cuda-")


def distributions(name: str, *extras: str) -> set[str]:
    """The names of all that installing a package with these extras brings, in turn, itself included."""
    found: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(name, extras)]
    while waiting:
        name, own = waiting.pop()
        found.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for one in map(Requirement, lines):
            wanted = one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *own))
            needed = canonicalize_name(one.name)
            if wanted and needed not in found:
                waiting.append((needed, tuple(one.extras)))
    return found


def weight(name: str) -> int:
    """The bytes of a distribution's files without compiled modules; 0 where it is not installed."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return 0
    return sum(one.size or 0 for one in files if one.suffix != ".pyc")


def main() -> None:
    """Print a line for each set, its heaviest packages named."""
    torch = distributions("torch")
    for extras in SETS:
        names = distributions("vsehub", *extras) - torch - {"vsehub"}
        weights = {one: weight(one) / 1e6 for one in names if not one.startswith(OF_TORCH)}
        heavy = sorted(weights, key=lambda one: -weights[one])[:8]
        parts = ", ".join(f"{one} {weights[one]:.0f}" for one in heavy)
        print(f"vsehub[{','.join(extras)}]: {sum(weights.values()):.0f} MB in {len(weights)} packages: {parts}")


if __name__ == "__main__":
    main()

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
    names: set[str] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(name, extras)]
    while waiting:
        name, of_package = waiting.pop()
        names.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            wanted = requirement.marker is None or any(
                requirement.marker.evaluate({"extra": extra}) for extra in ("", *of_package)
            )
            needed = canonicalize_name(requirement.name)
            if wanted and needed not in names:
                waiting.append((needed, tuple(requirement.extras)))
    return names


def weight(name: str) -> int:
    """The bytes of a distribution's files without compiled modules; 0 where it is not installed."""
    try:
        files = metadata.files(name) or []
    except metadata.PackageNotFoundError:
        return 0
    return sum(file.size or 0 for file in files if file.suffix != ".pyc")


def main() -> None:
    """Print a line for each set, its heaviest packages named."""
    torch = distributions("torch")
    for extras in SETS:
        names = distributions("vsehub", *extras) - torch - {"vsehub"}
        weights = {name: weight(name) / 1e6 for name in names if not name.startswith(OF_TORCH)}
        heavy = sorted(weights, key=lambda name: -weights[name])[:8]
        parts = ", ".join(f"{name} {weights[name]:.0f}" for name in heavy)
        print(f"vsehub[{','.join(extras)}]: {sum(weights.values()):.0f} MB in {len(weights)} packages: {parts}")


if __name__ == "__main__":
    main()

"""Which images are ranked together (spec of the field: Karpathy's splits, COCO's 1K and 5K)."""

from dataclasses import dataclass

from vsehub.checks import require


@dataclass(frozen=True)
class Protocol:
    """Folds of consecutive images, each ranked alone; figures are means over the folds.

    name: as reports print it. fold_images: images a fold, None for the whole split. folds: how many. c1 is one fold of
    1,000, c2 the mean over five folds of 1,000 (the papers' "5k"), full5k one fold of 5,000.
    """

    name: str
    fold_images: int | None = None
    folds: int = 1

    def slices(self, images: int) -> list[slice]:
        """The folds of a split of so many images. Raises InputError where the split has too few."""
        if self.fold_images is None:
            return [slice(0, images)]
        needed = self.fold_images * self.folds
        require(
            images >= needed,
            f"protocol {self.name} needs {needed} images ({self.folds} x {self.fold_images}) but the split has "
            f"{images}; use protocol=single to rank the whole split at once",
        )
        return [slice(fold * self.fold_images, (fold + 1) * self.fold_images) for fold in range(self.folds)]

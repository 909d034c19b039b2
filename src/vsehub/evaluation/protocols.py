"""Evaluation protocols: which images are ranked together (Karpathy's splits, COCO's 1K and 5K)."""

from dataclasses import dataclass

from vsehub.checks import require, whole

# The fixed meaning of known names: (fold_images, folds).
KNOWN = {"single": (None, 1), "c1": (1000, 1), "c2": (1000, 5), "full5k": (5000, 1)}


@dataclass(frozen=True)
class Protocol:
    """Folds of consecutive images, each ranked separately; metrics are means over the folds.

    name: its name in reports. fold_images: images per fold, None for the whole split. folds: the number of folds. c1 is
    one fold of 1,000, c2 the mean over five folds of 1,000 (the papers' "5k"), full5k one fold of 5,000; other folds
    need another name. Raises InputError for folds that are not positive, and for a known name with other folds.
    """

    name: str
    fold_images: int | None = None
    folds: int = 1

    def __post_init__(self) -> None:
        whole("folds", self.folds)
        if self.fold_images is not None:
            whole("fold_images", self.fold_images)
        require(
            self.fold_images is not None or self.folds == 1,
            f"folds is {self.folds} without fold_images; give the images of a fold, protocol.fold_images=N",
        )
        sizes = self.fold_images, self.folds
        known = KNOWN.get(self.name, sizes)
        require(
            known == sizes,
            f"protocol {self.name} has fold_images and folds {known}, not {sizes}; give your protocol another name: "
            "protocol.name=NAME",
        )

    def image_count(self, total: int) -> int:
        """The number of images that are ranked of a split that has `total`."""
        return total if self.fold_images is None else self.fold_images * self.folds

    def slices(self, images: int) -> list[slice]:
        """The folds of a split with this number of images. Raises InputError if they are too few."""
        size, needed = self.fold_images or images, self.image_count(images)
        require(
            images >= needed,
            f"protocol {self.name} needs {needed} images ({self.folds} x {size}) but the split has "
            f"{images}; use protocol=single to rank the whole split at once",
        )
        return [slice(fold * size, (fold + 1) * size) for fold in range(self.folds)]

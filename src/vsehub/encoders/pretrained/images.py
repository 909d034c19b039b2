"""Pictures through a network trained elsewhere, frozen or tuned along, to the joint space (VSE++; SCAN)."""

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.encoders.features import ImageFeatures
from vsehub.encoders.images import ImageRegions
from vsehub.encoders.pretrained.networks import Backbone, PretrainedEncoder
from vsehub.sets import Encoding


class ImageBackbone(PretrainedEncoder):
    """A backbone's features, and on them the encoder that features from a file would get.

    image_shape: (3, height, width) of one image, or (crops, 3, height, width), whose features are averaged; uint8
    pixels or floats in [0, 1]. model, library, pretrained, weights: as `Backbone`. dim: D of the joint space. tune:
    train the backbone too; otherwise it stays as it is, in eval mode. learning_rate: learning rate of a tuned backbone;
    None: the optimizer's. regions: None, one vector an image, l2-normalised and mapped as by `ImageFeatures`; r: the
    last feature map as r x r regions, mapped and pooled as by `ImageRegions`. Raises InputError for other shapes.
    """

    head: ImageFeatures | ImageRegions

    def __init__(
        self,
        image_shape: tuple[int, ...],
        model: str,
        dim: int = 1024,
        library: str = "torchvision",
        pretrained: bool = True,
        weights: str | None = None,
        tune: bool = False,
        learning_rate: float | None = None,
        regions: int | None = None,
        pooling: str = "none",
    ):
        super().__init__()
        require(regions is not None or pooling == "none", f"pooling={pooling} pools regions; give regions=R with it")
        self.backbone = Backbone(image_shape, library, model, pretrained, weights)
        self.tune, self.learning_rate, self.grid = tune, learning_rate, regions
        self.backbone.requires_grad_(tune)
        if regions is None:
            self.head = ImageFeatures((self.backbone.size,), dim)
        else:
            with torch.no_grad():
                sample = self.backbone.regions(torch.zeros(1, *image_shape), regions)
            self.head = ImageRegions(tuple(sample.shape[1:]), dim, pooling)
        self.gives = self.head.gives

    def forward(self, images: Tensor) -> Encoding:
        """(N, *image_shape) -> (N, D), or N `Sets` of regions."""
        return self.head(self.features(images))

    def features(self, images: Tensor) -> Tensor:
        """The input of the head: (N, F), or (N, r * r, C) of regions; without gradient where the backbone is frozen."""
        with self.gradient():
            return self.backbone(images) if self.grid is None else self.backbone.regions(images, self.grid)

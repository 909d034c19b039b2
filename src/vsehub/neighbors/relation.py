"""Which images and texts belong together, where a text may belong to several images."""

import torch
from torch import Tensor

from vsehub.checks import require


class Relation:
    """P pairs of an image and a text, any number each way.

    pairs: (P, 2) int64, image and text. images, texts: how many of each there are. Raises InputError where a pair lies
    outside of them.
    """

    def __init__(self, pairs: Tensor, images: int, texts: int):
        require(
            pairs.ndim == 2 and pairs.shape[1] == 2 and len(pairs) > 0,
            f"pairs has shape {tuple(pairs.shape)}; expected (P, 2), image and text of each pair, at least one",
        )
        for column, (side, count) in enumerate((("images", images), ("texts", texts))):
            least, most = (int(bound) for bound in pairs[:, column].aminmax())
            require(least >= 0 and most < count, f"pairs name {side} {least} to {most}; expected rows 0 to {count - 1}")
        self.pairs, self.images, self.texts = pairs, images, texts
        self._keys = (pairs[:, 0] * texts + pairs[:, 1]).unique()

    def related(self, images: Tensor, texts: Tensor) -> Tensor:
        """Whether image and text belong together, for rows of any broadcastable shapes: boolean of their shape."""
        keys = self._on(images.device)
        asked = images * self.texts + texts
        place = torch.searchsorted(keys, asked.contiguous()).clamp(max=len(keys) - 1)
        return keys[place] == asked

    def most_related(self, images: Tensor, texts: Tensor) -> int:
        """Of entries with these images and texts (M,): the most that belong to one text, or to one image."""
        image, text = self.pairs.T.cpu()
        of_image = torch.bincount(images.cpu(), minlength=self.images)
        of_text = torch.bincount(texts.cpu(), minlength=self.texts)
        lost_by_images = torch.zeros(self.images, dtype=torch.int64).index_add_(0, image, of_text[text])
        lost_by_texts = torch.zeros(self.texts, dtype=torch.int64).index_add_(0, text, of_image[image])
        return int(max(lost_by_images.max(), lost_by_texts.max()))

    def _on(self, device: torch.device) -> Tensor:
        if self._keys.device != device:
            self._keys = self._keys.to(device)
        return self._keys

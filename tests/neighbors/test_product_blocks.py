"""Inner products: the score of a pair does not depend on what else is multiplied."""

import pytest
import torch

from vsehub.neighbors.vectors import products


@pytest.mark.parametrize("rows", [1, 3, 70])
def test_the_score_of_an_item_does_not_depend_on_the_items_beside_it(rows):
    generator = torch.Generator().manual_seed(0)
    for dimensions in (5, 33, 256, 515):
        items = torch.randn(40, dimensions, generator=generator)
        queries = torch.randn(rows, dimensions, generator=generator)
        whole = products(items)(queries, None)
        for width in (1, 2, 7, 15, 16, 17, 31):
            for start in range(0, 40, width):
                alone = products(items[start : start + width])(queries, None)
                assert torch.equal(alone, whole[:, start : start + width]), (dimensions, width, start)

import torch
from golden_arrays import CASES, golden
from looped import looped

from vsehub.losses import HAL, KNNMargin, MaxMargin, SumMargin
from vsehub.types import NeighborStats

EXACT = {"rtol": 1e-9, "atol": 1e-12}
HAL_SETTINGS = [(30, 0.3), (60, 0.7), (100, 1.0)]


def neighbors(arrays):
    k = int(arrays["k"])
    return NeighborStats(
        (arrays["image"] @ arrays["bank_caption"].T).topk(k).values,
        (arrays["caption"] @ arrays["bank_image"].T).topk(k).values,
    )


def value_and_gradients(loss, arrays, stats=None):
    image, caption = (arrays[side].clone().requires_grad_() for side in ("image", "caption"))
    value = loss(image @ caption.T, torch.eye(len(image), dtype=torch.bool), stats)["loss"]
    return value, *torch.autograd.grad(value, (image, caption))


def check(loss, arrays, key, stats=None):
    value, image_gradient, caption_gradient = value_and_gradients(loss, arrays, stats)
    torch.testing.assert_close(value, arrays[key].reshape(()), **EXACT)
    if f"{key}_grad_image" in arrays:
        torch.testing.assert_close(image_gradient, arrays[f"{key}_grad_image"], **EXACT)
        torch.testing.assert_close(caption_gradient, arrays[f"{key}_grad_caption"], **EXACT)


class TestGolden:
    @looped("case", CASES)
    def test_hinge(self, case):
        arrays = golden(case)
        check(SumMargin(0.2), arrays, "release_sum")
        check(MaxMargin(0.2), arrays, "release_max")
        keys = [key for key in arrays if key.startswith("paper_knn_margin_")]
        assert len(keys) == 4
        for key in keys:
            check(KNNMargin(0.2, int(key.rsplit("_", 1)[1])), arrays, key)

    @looped("case", CASES)
    @looped("variant", ["paper", "release"])
    @looped(("gamma", "epsilon"), HAL_SETTINGS)
    def test_hal_without_bank(self, case, variant, gamma, epsilon):
        check(HAL(gamma, epsilon, variant=variant), golden(case), f"{variant}_hal_{gamma}_{epsilon}")

    @looped("case", CASES)
    @looped("variant", ["paper", "release"])
    def test_hal_with_bank(self, case, variant):
        arrays = golden(case)
        check(HAL(30, 0.3, 40, 40, 0.2, 0.1, variant=variant), arrays, f"{variant}_halmb", neighbors(arrays))

    @looped("case", CASES)
    def test_global_weights(self, case):
        arrays = golden(case)
        weights = HAL(30, 0.3, 40, 40, 0.2, 0.1).weights(arrays["image"] @ arrays["caption"].T, neighbors(arrays))
        torch.testing.assert_close(weights, arrays["paper_W"], **EXACT)

import pytest
import torch
from golden_arrays import CASES, golden

from vsehub.metrics import hubness, k_occurrences, recall_metrics, skewness
from vsehub.metrics.ranks import Positives, rank_blocks

NAMES = ("r1", "r5", "r10", "medr", "meanr")


@pytest.mark.parametrize("case", CASES)
class TestGolden:
    def retrieval(self, case):
        arrays = golden(case)
        scores = arrays["gallery_image"] @ arrays["gallery_caption"].T
        owner = torch.arange(scores.shape[1]) // 5
        return arrays, scores, owner[None, :] == torch.arange(len(scores))[:, None]

    def test_metrics(self, case):
        arrays, scores, positives = self.retrieval(case)
        metrics = recall_metrics(scores, positives)
        for direction in ("i2t", "t2i"):
            measured = torch.tensor([metrics[f"{direction}/{name}"] for name in NAMES], dtype=torch.float64)
            torch.testing.assert_close(measured, arrays[f"{direction}_metrics"].double(), rtol=1e-9, atol=1e-12)

    def test_ranks(self, case):
        arrays, scores, positives = self.retrieval(case)
        for direction, matrix, mask in (("i2t", scores, positives), ("t2i", scores.T, positives.T)):
            ranks = rank_blocks([(0, matrix)], Positives.from_mask(mask)).ranks
            assert (ranks - 1 == arrays[f"{direction}_ranks"]).all()

    def test_occurrences_and_skew(self, case):
        arrays, scores, _ = self.retrieval(case)
        metrics = hubness(scores, (1, 5, 10))
        for direction, matrix in (("i2t", scores), ("t2i", scores.T)):
            for k, counts in k_occurrences(matrix, (1, 5, 10)).items():
                assert (counts == arrays[f"Nk_{direction}_{k}"]).all()
                skew = arrays[f"skew_{direction}_{k}"].item()
                assert skewness(counts) == pytest.approx(skew, rel=1e-9)
                assert metrics[f"{direction}/skew_{k}"] == pytest.approx(skew, rel=1e-9)
        skews = sum(arrays[f"skew_{d}_{k}"].item() for d in ("i2t", "t2i") for k in (1, 5, 10))
        assert metrics["hs_sum"] == pytest.approx(skews, rel=1e-9)

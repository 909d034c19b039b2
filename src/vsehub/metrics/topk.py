"""The k largest of each row, ties settled."""

from torch import Tensor


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns (Q, k) of each row's k largest, largest first; of equal scores the lower column comes first.

    Rows without a tie among their k + 1 largest take torch.topk's answer; only the others are sorted whole.
    """
    width = scores.shape[1]
    values, columns = scores.topk(min(k + 1, width), dim=1)
    tied = (values[:, :-1] == values[:, 1:]).any(dim=1)
    if tied.any():
        rows = tied.nonzero().squeeze(1)
        for some in rows.split(max(1, 2**24 // width)):
            order = scores[some].argsort(dim=1, descending=True, stable=True)[:, : values.shape[1]]
            columns[some] = order
            values[some] = scores[some].gather(1, order)
    return values[:, :k], columns[:, :k]

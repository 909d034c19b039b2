"""What MTEB measures with its exact search and with `CorrectedIndex`, for sentences that search for translations.

python -m experiments.benchmarks.mteb_backend FOLDER PAIR ...     needs vsehub[mteb]; prints a table

FOLDER holds PAIR.LANGUAGE.npy of two languages, row by row, and multi30k.train.LANGUAGE.npy, the reference of the last
column for multi30k.test_2016. The vectors are the model: nothing is encoded.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from vsehub.serving.mteb import CorrectedIndex


class Vectors:
    """MTEB's encoder protocol over unit vectors (n, D), float32: a text is the number of its row."""

    def __init__(self, vectors: np.ndarray, metadata):
        self.vectors, self.mteb_model_meta = torch.from_numpy(vectors), metadata

    def encode(self, inputs, **_):
        return self.vectors[[int(text) for batch in inputs for text in batch["text"]]]

    def similarity(self, queries, items):
        return torch.as_tensor(queries) @ torch.as_tensor(items).T


def measured(vectors: np.ndarray, backend: CorrectedIndex | None) -> str:
    """NDCG@10 and R@1 in %. vectors: (2n, D), n queries before the n items that answer them."""
    import mteb
    from datasets import Dataset
    from mteb.mocks.mock_tasks.retrieval import MockRetrievalTask

    names = np.arange(len(vectors)).astype(str).reshape(2, -1).tolist()
    queries, corpus = (Dataset.from_dict({"id": side, "text": side}) for side in names)
    relevant = {query: {item: 1} for query, item in zip(*names, strict=True)}
    task = MockRetrievalTask()
    task.k_values, task._top_k = (1, 10), 10
    task.dataset = {
        "default": {"test": {"queries": queries, "corpus": corpus, "relevant_docs": relevant, "top_ranked": None}}
    }
    task.data_loaded, task._eval_splits = True, ["test"]
    encoder = Vectors(vectors, mteb.models.ModelMeta.create_empty({"name": "vsehub/vectors", "revision": "1"}))
    model = mteb.models.SearchEncoderWrapper(encoder, index_backend=backend)
    result = mteb.evaluate(model, task, cache=None, co2_tracker=False, show_progress_bar=False).task_results[0]
    scores = result.scores["test"][0]
    return f"{100 * scores['ndcg_at_10']:.1f} / {100 * scores['recall_at_1']:.1f}"


def main(folder: Path, pairs: list[str]) -> None:
    """Print the rows of pairs, each in both directions."""
    print("| pair | queries | MTEB | nns | csls | csls, training queries |\n|---|---|---|---|---|---|")
    for files in (sorted(folder.glob(f"{pair}.*.npy")) for pair in pairs):
        for queries, items in (files, files[::-1]):
            vectors = np.concatenate([np.load(queries), np.load(items)]).astype(np.float32)
            training = Path(str(queries).replace("test_2016", "train"))
            cells = [measured(vectors, backend) for backend in (None, CorrectedIndex("nns"), CorrectedIndex("csls"))]
            cells.append("–" if training == queries else measured(vectors, CorrectedIndex("csls", np.load(training))))
            print(f"| {' | '.join(queries.stem.rsplit('.', 1))} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if find_spec("mteb") is None:
        sys.exit("skipped: mteb is not installed (vsehub[mteb])")
    main(Path(sys.argv[1]), sys.argv[2:])

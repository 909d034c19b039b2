"""How to search a served index without vsehub: a few lines of FAISS and numpy."""

from vsehub.neighbors.served import ServedIndex

_EFFORT = {
    "ivf": "index.nprobe = {effort}  # lists that are searched: more is slower and misses less\n",
    "hnsw": "index.hnsw.efSearch = {effort}  # candidates that are followed: more is slower and misses less\n",
}


def usage_note(index: ServedIndex, file: str = "index.faiss", queries: str = "queries.npy", k: int = 10) -> str:
    """Python that searches the index in `file` for the vectors in `queries`: `positions` and `scores`, both (Q, k)."""
    facts = index.facts
    effort = _EFFORT.get(facts.kind, "").format(effort=index.effort)
    k = min(k, facts.items)
    return f"""import faiss
import numpy as np

index = faiss.read_index({file!r})  # {facts.items:,} items
{effort}queries = np.load({queries!r}).astype("float32")  # (Q, {facts.dim}), normalised as the items were
last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking
products, positions = index.search(np.hstack([queries, last]), {k})  # best first; -1: none found
scores = {facts.scale!r} * products - {facts.mean_bias!r}  # the corrected scores; products are the plain ones
"""

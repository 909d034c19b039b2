"""Records as `vsehub rerank` and `vsehub diagnose` write them, of vectors in which hubs arise by themselves."""

import torch
from torch.nn.functional import normalize

from vsehub.criteria import CSLS, InvertedSoftmax, NearestNeighbor
from vsehub.metrics import histogram, occurrence_metrics
from vsehub.ranking.verdict import verdict

RULES = {"nns": NearestNeighbor(), "csls": CSLS(), "is": InvertedSoftmax()}
PARAMETERS = {"nns": {}, "csls": {"k": 10}, "is": {"beta": 30.0}}


def embedding_record(queries=900, items=400, criteria=("csls",), truth=True, labels=True, images=None, **changes):
    """The record of so many queries over items; `images`: a file name for each item."""
    generator = torch.Generator().manual_seed(0)
    k = max(k for k in (1, 5, 10) if k <= items)
    # All queries lie towards one side of the space, where some items happen to lie too: these become hubs.
    side = torch.ones(24) / 24**0.5
    pull = torch.randn(items, 1, generator=generator).exp() * 0.9
    vectors = normalize(torch.randn(items, 24, generator=generator) + pull * side, dim=1)
    wanted = torch.randint(items, (queries,), generator=generator)
    query_vectors = vectors[wanted] + 0.16 * torch.randn(queries, 24, generator=generator) + 0.7 * side
    query_vectors = normalize(query_vectors, dim=1)
    plain = RULES["nns"].search(query_vectors, vectors, k=k)[1]
    rankings, counted, wrong = [], [], []
    for name in ("nns", *criteria):
        lists = RULES[name].search(query_vectors, vectors, k=k)[1]
        hits = lists == wanted[:, None]
        counts = {n: torch.bincount(lists[:, :n].flatten(), minlength=items) for n in (1, 5, 10) if n <= k}
        bad = {n: counts[n] - torch.bincount(lists[:, :n][hits[:, :n]], minlength=items) for n in counts}
        stay = (plain[:, :, None] == lists[:, None]).any(dim=2).float().mean().item()
        rankings.append(
            {
                "criterion": name,
                "parameters": PARAMETERS[name],
                "reference": "none" if name == "nns" else "transductive",
                "hubness": occurrence_metrics(counts, bad if truth else None),
                "histograms": {str(n): histogram(count) for n, count in counts.items()},
                "truth": truth_figures(hits) if truth else None,
                "gain": None,
                "hubs_made": [],
                "verdict": verdict(occurrence_metrics(counts, bad if truth else None), k, queries, items),
                "changed": {"first": (plain[:, 0] != lists[:, 0]).float().mean().item(), "overlap": stay},
            }
        )
        counted.append(counts[k])
        wrong.append(bad[k])

    def entry(item):
        return {
            "item": item,
            "id": f"item-{item:04d}",
            "label": f"a picture of thing {item} beside something else" if labels else None,
            "image": images[item] if images else None,
            "occurrences": [int(count[item]) for count in counted],
            "wrong": [int(count[item]) for count in wrong] if truth else None,
            "queries": [
                {"query": query, "id": None, "label": f"what is thing {query}?" if labels else None}
                for query in (plain == item).any(dim=1).nonzero().flatten()[:3].tolist()
            ],
        }

    never = (counted[0] == 0).nonzero().squeeze(1)[:20].tolist()
    facts = {"dim": 24, "dtype": "float32", "norms": {"least": 1.0, "most": 1.0, "unit_share": 1.0, "tolerance": 1e-3}}
    return {
        "schema": 2,
        "inputs": {},
        "kind": "diagnose",
        "vsehub": "0.1.0",
        "command": "vsehub diagnose queries=q.npy items=m.npy truth=pairs.csv",
        "versions": {"torch": "2.11.0", "python": "3.11.2"},
        "git": {"sha": "0123456789abcdef", "dirty": False},
        "hardware": {"cpu": "Some CPU", "cores": 2, "gpu": None, "memory_gb": 23},
        "started": "2025-01-02T03:04:05",
        "seconds": {"look_through": 0.5, "reference": 1.25, "search": 2.5, "total": 4.75},
        "queries": facts | {"path": "q.npy", "rows": queries, "fingerprint": "ab12cd34ef56ab12"},
        "items": facts | {"path": "m.npy", "rows": items, "fingerprint": "99aa99aa99aa99aa"},
        "scores": None,
        "reference_items": None,
        "reference": {"kind": "transductive", "set": "the queries themselves", "rows": queries},
        "k": k,
        "truth": {"path": "pairs.csv", "pairs": queries, "measured_queries": queries, "queries_without": 0}
        if truth
        else None,
        "rankings": rankings,
        "hubs": [entry(item) for item in counted[0].argsort(descending=True, stable=True)[:20].tolist()],
        "antihubs": {
            "count": [int((count == 0).sum()) for count in counted],
            "examples": [entry(item) for item in never],
        },
        "index": None,
        "calibration": None,
        "choice": None,
        "verdict": verdict(rankings[0]["hubness"], k, queries, items),
    } | changes


def truth_figures(hits):
    """Figures in %, one positive a query: its mAP@R is its R@1."""
    recalls = {f"r{n}": 100 * hits[:, :n].any(dim=1).float().mean().item() for n in (1, 5, 10)}
    return recalls | {"map_r": recalls["r1"], "r_precision": recalls["r1"]}

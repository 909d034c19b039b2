"""`vsehub rerank`: somebody's embeddings, ranked anew with hubs corrected, measured before and after."""

import time
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import require
from vsehub.cli import app

if TYPE_CHECKING:
    from vsehub.cli.embeddings import Found
    from vsehub.criteria.base import Criterion, ItemBias
    from vsehub.serving.corrected import ServedIndex


def main() -> None:
    """Run the command."""
    app.run(rerank, "rerank")


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its record and its page."""
    from vsehub.cli.embeddings import FILES, PAGE, RANKING, RESULT, built, find, finish, table
    from vsehub.criteria.nns import NearestNeighbor
    from vsehub.rerank.table import write_ranking

    name = cfg.criterion_name
    criterion = built(name, cfg.criterion)
    refuse_index(cfg.index, name, criterion)
    with find(cfg, "rerank", {} if isinstance(criterion, NearestNeighbor) else {name: criterion}) as found:
        found.out.begin(FILES["rerank"] if cfg.index is not None else (RESULT, PAGE, RANKING))
        ranked, given = found.measured.rankings[-1], found.given
        write_ranking(found.out / RANKING, ranked.positions, ranked.values, given.query_names.ids, given.item_names.ids)
        files = [RANKING]
        if cfg.index is not None:
            files += write_index(cfg, criterion, found)
        files += finish(found)
    print(f"{table(found.record)}\nwritten to {cfg.out}: {', '.join(files)}")


def refuse_index(kind: str | None, name: str, criterion: "Criterion") -> None:
    """InputError for an unknown kind of index, a criterion that no inner-product index can hold, or FAISS missing."""
    if kind is None:
        return
    from vsehub.criteria.base import ItemBias
    from vsehub.neighbors.faiss import required_faiss
    from vsehub.serving.index_file import KINDS

    require(kind in KINDS, f"index is {kind!r}; choose one of {', '.join(KINDS)}, or null for none")
    require(
        isinstance(criterion, ItemBias),
        f"index: {name} does not rank by the score less a term of the item, which is all that an index can hold; "
        f"choose one of {', '.join(folding())}, or leave index out",
    )
    required_faiss(f"index={kind}", "leave index out")


def folding() -> list[str]:
    """The criteria that an index can hold."""
    from vsehub.cli.build import components
    from vsehub.criteria.base import ItemBias

    known = components()
    nodes = {name: OmegaConf.load(known.path("criterion", name)) for name in known.choices("criterion")}
    return [name for name, node in nodes.items() if issubclass(known.find("criterion", node), ItemBias)]


def write_index(cfg: DictConfig, criterion: "ItemBias", found: "Found") -> list[str]:
    """Write the index that gives the corrected ranking, and how to search it; say in the record what it is."""
    import torch

    from vsehub.cli.embeddings import INDEX, USAGE
    from vsehub.io.files import write_text
    from vsehub.serving.corrected import build_index, measured_recall

    began = time.perf_counter()
    given, ranked = found.given, found.measured.rankings[-1]
    bias = ranked.item_terms[0] if ranked.item_terms else torch.zeros(len(given.items))
    index = build_index(given.items, bias, criterion.scale, cfg.index, "building the index", cfg.seed)
    index.save(found.out / INDEX)
    recall = None
    if cfg.index != "flat":  # which is exact
        found_again = measured_recall(index, given.queries, given.items, bias, criterion.scale, cfg.k, seed=cfg.seed)
        recall = {"k": cfg.k} | found_again
    size = (found.out / INDEX).stat().st_size
    found.record["index"] = {"kind": cfg.index, "file": INDEX, "bytes": size, "recall": recall}
    found.record["seconds"]["index"] = time.perf_counter() - began
    write_text(found.out / USAGE, usage(index, found, cfg.k))
    return [INDEX, USAGE]


def usage(index: "ServedIndex", found: "Found", k: int) -> str:
    """How to search the index with FAISS and numpy alone."""
    from vsehub.cli.embeddings import INDEX
    from vsehub.serving.corrected import usage_note

    record, given = found.record, found.given
    criterion = record["rankings"][-1]
    ids = "" if given.item_names.ids is None else ", in the order of the ids"
    reference = "" if criterion["reference"] == "none" else f", its reference {record['reference']['set']}"
    return (
        f"# Searching {INDEX}\n\n"
        f"The {record['items']['rows']:,} vectors of {record['items']['path']}, ranked by {criterion['criterion']}"
        f"{reference}. FAISS and numpy are all it takes:\n\n"
        f"```python\n{usage_note(index, k=k)}```\n\n"
        f"`positions` are rows of {record['items']['path']}, counted from 0{ids}.\n"
    )

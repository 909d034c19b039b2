"""`vsehub diagnose`: measure the hubness of your own embeddings under several criteria; writes no ranking."""

import sys

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import require
from vsehub.cli.embeddings import PAGE, RESULT, finish, named_files, opened
from vsehub.cli.next_steps import next_steps
from vsehub.cli.nodes import build, components, device_named
from vsehub.io.files import Output

UNHEALTHY = 3  # the exit status where fail_on is reached
NEIGHBORS = "neighbors.parquet"


def diagnose(cfg: DictConfig) -> None:
    """Measure the plain ranking of `cfg.items` for `cfg.queries`, and the ranking under each of `cfg.criteria`."""
    fail_on, files = cfg.fail_on, named_files(cfg)
    require(fail_on in (None, "warn", "fail"), f"fail_on is {fail_on!r}; choose warn or fail, or null for neither")
    out = Output(str(cfg.out), "a diagnosis", (RESULT, PAGE, NEIGHBORS), cfg.overwrite)
    names = [str(name) for name in (cfg.criteria if isinstance(cfg.criteria, ListConfig) else [cfg.criteria])]
    known = components()
    nodes = {name: OmegaConf.load(known.path("criterion", name)) for name in names}

    from vsehub.criteria import Auto, NearestNeighbor
    from vsehub.ranking.compare import compared
    from vsehub.ranking.engines import Local
    from vsehub.ranking.neighbors import write_neighbors
    from vsehub.ranking.verdict import LEVELS
    from vsehub.report.comparison import table

    # The plain ranking is measured in any case.
    criteria = {name: build("criterion", node) for name, node in nodes.items()}
    criteria = {name: one for name, one in criteria.items() if not isinstance(one, NearestNeighbor)}
    require(
        not any(isinstance(one, Auto) for one in criteria.values()),
        "auto chooses one criterion, and diagnose compares several: name them, or run rerank with criterion=auto",
    )
    inputs = opened(files, cfg.normalize, criteria)
    with out.held():
        found = compared("diagnose", inputs, criteria, cfg.k, Local(device_named(str(cfg.device))), cfg.seed)
        found.record["next"] = next_steps(files, cfg, found.record)
        out.begin((RESULT, PAGE, NEIGHBORS))
        written = [NEIGHBORS] if write_neighbors(out / NEIGHBORS, found) else []
        written += finish(found, out)
    print(f"{table(found.record)}\nwritten to {out.shown}: {', '.join(written)}")
    if found.record["next"]:
        print("next:", *(f"  {step['command']}\n    {step['why']}" for step in found.record["next"]), sep="\n")
    level = found.record["verdict"]["level"]
    if fail_on is not None and LEVELS.index(level) >= LEVELS.index(fail_on):
        sys.exit(UNHEALTHY)

"""`vsehub diagnose`: measure the hubness of your own embeddings under several criteria; writes no ranking."""

import shlex
import sys
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig

from vsehub.checks import one_of, require
from vsehub.cli.adapt import with_interval
from vsehub.cli.embeddings import PAGE, comparison, named_files, named_lists
from vsehub.cli.nodes import build, components, require_unset
from vsehub.cli.overrides import override
from vsehub.io.files import Output
from vsehub.io.records import RESULT

UNHEALTHY = 3  # the exit status where fail_on is reached


def diagnose(cfg: DictConfig) -> None:
    """Measure the plain ranking of `cfg.items` for `cfg.queries` and those under `cfg.criteria`, or `cfg.ranking`."""
    one_of("fail_on", cfg.fail_on, (None, "warn", "fail"))
    has_lists = cfg.ranking is not None
    require_unset(cfg, ("against",), "vectors; give ranking=FILE too", unless=has_lists)
    files = named_lists(cfg) if has_lists else named_files(cfg)
    out = Output(str(cfg.out), "a diagnosis", (RESULT, PAGE), cfg.overwrite)
    names = cfg.criteria if isinstance(cfg.criteria, ListConfig) else [cfg.criteria]
    nodes = {} if has_lists else {str(name): components().node("criterion", str(name)) for name in names}
    require("auto" not in nodes, "criteria: auto chooses one criterion; name several, or run rerank criterion=auto")

    from vsehub.ranking.adapt import quick_gain
    from vsehub.ranking.verdict import LEVELS

    criteria = {name: build("criterion", dict(node)) for name, node in nodes.items()}
    with comparison("diagnose", cfg, files, out, criteria) as outcome:
        steps = [] if has_lists else next_steps(files, cfg, outcome.record)
        outcome.record.update(next=steps, map_gain=quick_gain(outcome.inputs.sides, cfg.seed))
    if gain := outcome.record["map_gain"]:
        advice = "; vsehub adapt fits one" if gain["low"] > 0 else ""
        print(
            f"quick estimate: a linear map fitted to known pairs gains {with_interval(gain)} points of R@1, each query "
            f"among a part of the items{advice}"
        )
    for step in steps:
        print(f"next, {step['why']}: {step['command']}")
    level = outcome.record["verdict"]["level"]
    if cfg.fail_on is not None and LEVELS.index(level) >= LEVELS.index(cfg.fail_on):
        sys.exit(UNHEALTHY)


def next_steps(files: Mapping[str, str], cfg: DictConfig, record: Mapping[str, Any]) -> list[dict[str, str]]:
    """The commands to run next in the same folder, as {"command", "why"}.

    There are none if the record has a warning, or if there are no hubs and no correction gains.
    """
    helps = any(ranking["gain"] is not None and ranking["gain"]["low"] > 0 for ranking in record["rankings"])
    if record["warnings"] or (record["verdict"]["level"] == "ok" and not helps):
        return []
    from vsehub.criteria.choose import FEWEST_QUERIES

    out = f"{cfg.out}-reranked"
    has_vectors, searches_itself = "scores" not in files, record["queries"].get("within")
    can_choose = not searches_itself and (record["truth"] or {}).get("measured_queries", 0) >= FEWEST_QUERIES
    settings = {name: value for name, value in files.items() if name != "reference_items"}  # the criteria take none
    settings |= {} if cfg.normalize is None else {"normalize": str(cfg.normalize).lower()}
    settings |= {"criterion": "auto" if can_choose else "csls", "out": out}
    words = [override(*setting) for setting in settings.items()]
    if can_choose and has_vectors:  # choose among criteria whose biases `vsehub add` keeps current
        words.append("criterion.among=[csls,is,nnn,dn]")
    steps = [("write the corrected ranking", ["rerank", *words])]
    result = override("result", out)
    if has_vectors:
        why = "write an index that returns it; with a database as engine, vsehub add can add items later"
        steps.append((why, ["index", result, "engine=flat"]))
    if has_vectors and not searches_itself:
        steps.append(("show the hubs and what they displace in a browser", ["serve", result]))
    return [{"command": shlex.join(["vsehub", *command]), "why": why} for why, command in steps]

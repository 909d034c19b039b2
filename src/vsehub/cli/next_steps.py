"""Commands to try after a diagnosis, ready to run."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from vsehub.cli.overrides import override

CHOSEN_FROM = 50  # least queries with answers for criterion=auto


def next_steps(files: Mapping[str, str], cfg: DictConfig, record: dict[str, Any]) -> list[dict[str, str]]:
    """{"command", "why"} of each next step with the files of a diagnosis, from the folder where it was run."""
    given = dict(files) if cfg.normalize is None else {**files, "normalize": str(cfg.normalize).lower()}
    shown = {name: value for name, value in given.items() if name != "reference_items"}
    found, scored = [], "scores" in files
    if record["verdict"]["level"] != "ok":
        taken, own, by = shown, {"criterion": "csls"}, "csls, which has no temperature to tune"
        if (record["truth"] or {}).get("measured_queries", 0) >= CHOSEN_FROM:
            taken, by = given, "the criterion that is chosen by the known answers"
            own = {"criterion": "auto"} | ({} if scored else {"criterion.indexable": "true"})
        own["out"] = _free(f"{str(cfg.out).rstrip('/')}-reranked")
        found.append(_step("rerank", taken | own, f"writes the ranking corrected by {by}"))
        if not scored:
            words = {"result": own["out"], "engine": "flat"}
            found.append(_step("index", words, "writes an index whose ordinary search returns that ranking"))
    if scored:  # `serve` cannot show scores without vectors
        return found
    if "item_images" in shown:
        shown["images"] = shown.pop("item_images")
    return [*found, _step("serve", shown, "shows the hubs and what they displace in a browser, until Ctrl-C")]


def _step(command: str, given: Mapping[str, str], why: str) -> dict[str, str]:
    words = [override(name, value) for name, value in given.items()]
    return {"command": shlex.join(["vsehub", command, *words]), "why": why}


def _free(folder: str) -> str:
    """The folder, with a number where there is one of that name."""
    number, name = 2, folder
    while Path(name).exists():
        name, number = f"{folder}-{number}", number + 1
    return name

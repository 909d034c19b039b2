"""What to try after a diagnosis, as commands that can be run as they stand."""

import shlex
from pathlib import Path
from typing import Any

from vsehub.cli.embeddings import Settings
from vsehub.cli.overrides import override

CHOSEN_FROM = 50  # queries with answers, by which criterion=auto chooses


def next_steps(settings: Settings, record: dict[str, Any]) -> list[dict[str, str]]:
    """{"command", "why"} of what to try next with the inputs of a diagnosis, from the folder where it was run."""
    given = {name: value for name, value in settings.files.items() if value is not None}
    if settings.normalize is not None:
        given["normalize"] = str(settings.normalize).lower()
    found = []
    shown = {name: value for name, value in given.items() if name != "reference_items"}
    if settings.place is None and record["verdict"]["level"] != "ok":
        if (record["truth"] or {}).get("measured_queries", 0) >= CHOSEN_FROM:
            taken, chosen, by = given, "auto", "the criterion that is chosen by the known answers"
        else:
            taken, chosen, by = shown, "csls", "csls, which has no temperature to tune"
        own, what = {"criterion": chosen}, "the ranking"
        if not settings.scored:
            own |= {"index": "flat"}
            what = "the ranking and an index for ordinary search, both"
        own |= {"out": _free(f"{settings.out.rstrip('/')}-reranked")}
        found.append(_step("rerank", taken, own, f"writes {what} corrected by {by}"))
    if settings.scored:  # of which the pages of files know nothing
        return found
    if "item_images" in shown:
        shown["images"] = shown.pop("item_images")
    if settings.place is not None:
        place = settings.place
        shown = {"index": place.engine, "index_uri": place.uri, "index_name": place.name} | {
            name: value for name, value in shown.items() if name in ("queries", "images")
        }
    return [*found, _step("serve", shown, {}, "shows the hubs and what they displace in a browser, until Ctrl-C")]


def _step(command: str, given: dict[str, str], own: dict[str, str], why: str) -> dict[str, str]:
    words = [override(name, value) for name, value in (given | own).items()]
    return {"command": shlex.join(["vsehub", command, *words]), "why": why}


def _free(folder: str) -> str:
    """The folder, with a number where there is one of that name."""
    number, name = 2, folder
    while Path(name).exists():
        name, number = f"{folder}-{number}", number + 1
    return name

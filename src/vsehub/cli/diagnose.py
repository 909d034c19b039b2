"""`vsehub diagnose`: measure the hubness of your own embeddings under several criteria; writes no ranking."""

import sys

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import require
from vsehub.cli import app
from vsehub.cli.embeddings import PAGE, RESULT, Settings, built, finish, opened
from vsehub.cli.next_steps import next_steps
from vsehub.cli.nodes import components

UNHEALTHY = 3  # the exit status where fail_on is reached


def main() -> None:
    """Run the command."""
    app.run(diagnose, "diagnose")


def diagnose(cfg: DictConfig) -> None:
    """Measure the plain ranking of `cfg.items` for `cfg.queries`, and the ranking under each of `cfg.criteria`."""
    fail_on = cfg.fail_on
    require(fail_on in (None, "warn", "fail"), f"fail_on is {fail_on!r}; choose warn or fail, or null for neither")
    place = None
    if cfg.index is not None:
        from vsehub.serving.databases.engines import placed

        place = placed(str(cfg.index), None if cfg.index_uri is None else str(cfg.index_uri), str(cfg.index_name), None)
    settings = Settings.of(cfg, "diagnose", "a diagnosis", (RESULT, PAGE), place)
    names = [str(name) for name in (cfg.criteria if isinstance(cfg.criteria, ListConfig) else [cfg.criteria])]
    require(len(set(names)) == len(names), f"criteria names a criterion twice: {', '.join(names)}")
    known = components()
    files = {name: known.path("criterion", name) for name in names}

    from vsehub.criteria import Auto, NearestNeighbor
    from vsehub.report.terminal import table as terminal
    from vsehub.rerank.compare import Job, compared
    from vsehub.rerank.verdict import LEVELS

    criteria = {name: built(name, OmegaConf.load(path)) for name, path in files.items()}
    require(
        not any(isinstance(one, Auto) for one in criteria.values()),
        "auto chooses one criterion, and diagnose compares several: name them, or run rerank with criterion=auto",
    )
    # The plain ranking is measured in any case.
    corrections = {name: one for name, one in criteria.items() if not isinstance(one, NearestNeighbor)}
    out = settings.output
    job = Job("diagnose", out, settings.local(corrections), settings.k, settings.seed)
    inputs = opened(settings, corrections)
    with compared(inputs, corrections, job) as found:
        found.record["next"] = next_steps(settings, found.record)
        out.begin(settings.written)
        written = finish(found, out)
    print(f"{terminal(found.record)}\nwritten to {settings.out}: {', '.join(written)}")
    if found.record["next"]:
        print("next:", *(f"  {step['command']}\n    {step['why']}" for step in found.record["next"]), sep="\n")
    level = found.record["verdict"]["level"]
    if fail_on is not None and LEVELS.index(level) >= LEVELS.index(fail_on):
        sys.exit(UNHEALTHY)

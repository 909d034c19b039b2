"""`vsehub report RUNS...`: compare many runs in one table and one page."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli import app
from vsehub.cli.overrides import with_texts
from vsehub.extras import require_packages


def main() -> None:
    """Run the command; bare arguments are run folders, data.KEY=VALUE changes a setting of a checkpoint's data."""
    arguments = with_texts(sys.argv[1:], "runs")
    sys.argv = [sys.argv[0], *(f"+{argument}" if argument.startswith("data.") else argument for argument in arguments)]
    app.run(report, "report")


def report(cfg: DictConfig) -> None:
    """Build the report of `cfg.runs` in `cfg.out` and print its table."""
    require_packages("a report of runs", "train", "pandas")

    from vsehub.report.runs import find_runs

    require(len(cfg.runs) > 0, "no runs were named; give run folders or a folder of them, e.g. vsehub report runs/")
    find_runs([Path(run) for run in cfg.runs])

    from vsehub.cli.examples import asked
    from vsehub.report.build import build_report, report_output

    report_output(cfg.out, cfg.overwrite)  # refused before the rankings are compared
    files = build_report([Path(run) for run in cfg.runs], cfg.out, cfg.title, asked(cfg), cfg.overwrite)
    print(files["table.txt"].read_text(encoding="utf-8"))
    print(f"page: {files['index.html']}")

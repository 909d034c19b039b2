"""`vsehub report RUNS...`: one table and one page over many runs."""

import sys
from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli import app


def main() -> None:
    """Run the command; bare arguments are run folders."""
    folders = [argument for argument in sys.argv[1:] if "=" not in argument and not argument.startswith("-")]
    rest = [argument for argument in sys.argv[1:] if argument not in folders]
    if folders:
        quoted = ",".join(f'"{folder}"' for folder in folders)
        rest.append(f"runs=[{quoted}]")
    sys.argv = [sys.argv[0], *rest]
    app.run(report, "report")


def report(cfg: DictConfig) -> None:
    """Build the report of `cfg.runs` in `cfg.out` and print its table."""
    from vsehub.report.build import build_report

    require(len(cfg.runs) > 0, "no runs were named; give run folders or a folder of them, e.g. vsehub report runs/")
    table = None if cfg.table is None else str(cfg.table)
    files = build_report([Path(run) for run in cfg.runs], Path(cfg.out), cfg.title, cfg.paper, table)
    print((files.get("published.md") or files["table.md"]).read_text())
    print(f"page: {files['index.html']}")

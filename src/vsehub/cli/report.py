"""`vsehub report RUNS...`: compare many runs in one table and one page."""

from pathlib import Path

from omegaconf import DictConfig

from vsehub.extras import require_packages


def report(cfg: DictConfig) -> None:
    """Build the report of `cfg.runs` in `cfg.out` and print its table."""
    require_packages("a report of runs", "train", "pandas")

    from vsehub.report.build import build_report

    files = build_report([Path(run) for run in cfg.runs], cfg.out, cfg.title, cfg.overwrite, cfg.columns)
    print(files["table.txt"].read_text(encoding="utf-8"))
    print(f"page: {files['index.html']}")

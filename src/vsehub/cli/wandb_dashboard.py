"""`vsehub wandb-dashboard`: build a view of a wandb project that compares losses."""

import json
from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import existing, require
from vsehub.io.files import require_writable

SCHEMA = 1


def wandb_dashboard(cfg: DictConfig) -> None:
    """Save the view in the project, or, offline, only write it to `cfg.out`; print where it is."""
    from vsehub.io.files import write_json
    from vsehub.training.wandb_view import comparison, save, sent

    out = Path(cfg.out)
    require_free(out, cfg.overwrite)
    view = comparison(cfg.entity, cfg.project, None if cfg.study is None else str(cfg.study))
    if cfg.offline:
        write_json(out, {"schema": SCHEMA, "url": None, "view": sent(view)})
        print(f"offline: nothing was sent. The view is in {out}; to send it, run this again online, overwrite=true")
        return
    url, written = save(view, None if cfg.view is None else str(cfg.view))
    write_json(out, {"schema": SCHEMA, "url": url, "view": written})
    print(f"view: {url}\nas it was sent: {out}")


def require_free(out: Path, overwrite: bool) -> None:
    """Raise InputError if `out` is a folder, not a file of vsehub, or an earlier view that must not be replaced."""
    require_writable(out.parent)
    if not out.exists():
        return
    require(existing("out", out, "Give out=FILE.json").is_file(), f"out: {out} is a folder; give out=FILE.json")
    try:
        ours = {"schema", "url", "view"} <= json.loads(out.read_text(encoding="utf-8")).keys()
    except (ValueError, AttributeError, RecursionError):
        ours = False
    require(ours, f"out: {out} is a file that vsehub did not write; give another out=FILE.json")
    require(overwrite, f"out: {out} already holds a view. Give another out=FILE.json, or overwrite=true to replace it")

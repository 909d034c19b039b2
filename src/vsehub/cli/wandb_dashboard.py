"""`vsehub wandb-dashboard`: build a view of a wandb project that compares losses."""

from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.io.files import require_writable

SCHEMA = 1


def wandb_dashboard(cfg: DictConfig) -> None:
    """Save the view in the project, or, offline, only write it to `cfg.out`; print where it is."""
    from vsehub.io.files import write_json
    from vsehub.training.wandb_view import comparison_view, content_of, save

    out = Path(cfg.out)
    require_writable(out.parent)
    require(cfg.overwrite or not out.exists(), f"out: {out} exists; give another out=FILE.json, or overwrite=true")
    view = comparison_view(cfg.entity, cfg.project, None if cfg.study is None else str(cfg.study))
    if cfg.offline:
        write_json(out, {"schema": SCHEMA, "url": None, "view": content_of(view)})
        print(f"offline: nothing was sent. The view is in {out}; to send it, run this again online, overwrite=true")
        return
    url, written = save(view)
    write_json(out, {"schema": SCHEMA, "url": url, "view": written})
    print(f"view: {url}\nas it was sent: {out}")

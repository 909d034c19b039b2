"""`vsehub wandb-dashboard`: the view of a wandb project that compares losses."""

import json
from pathlib import Path

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli import app
from vsehub.io.outputs import require_writable

SCHEMA = 1


def main() -> None:
    """Run the command."""
    app.run(dashboard, "wandb_dashboard")


def dashboard(cfg: DictConfig) -> None:
    """Save the view in the project of `cfg`, or offline write what would be sent; print where it is."""
    from vsehub.io.files import write_json
    from vsehub.training.loggers.wandb import is_offline
    from vsehub.training.loggers.wandb_view import comparison, save, sent

    out, offline = Path(cfg.out), is_offline(cfg.mode)
    require_free(out, cfg.overwrite)
    view = comparison(cfg.entity, cfg.project, None if cfg.study is None else str(cfg.study))
    if offline:
        write_json(out, {"schema": SCHEMA, "url": None, "view": sent(view)})
        print(f"offline: nothing was sent. The view: {out}; with an account, run this again with overwrite=true")
        return
    url, written = save(view, None if cfg.view is None else str(cfg.view))
    write_json(out, {"schema": SCHEMA, "url": url, "view": written})
    print(f"view: {url}\nas it was sent: {out}")


def require_free(out: Path, overwrite: bool) -> None:
    """Raise InputError if `out` is a folder, a foreign file, or an earlier view that is not to be replaced."""
    require_writable(out.parent)
    if not out.exists():
        return
    require(out.is_file(), f"out: {out} is a folder; give out=FILE.json")
    try:
        ours = {"schema", "url", "view"} <= json.loads(out.read_text(encoding="utf-8")).keys()
    except (ValueError, AttributeError, RecursionError):
        ours = False
    require(ours, f"out: {out} is a file that vsehub did not write; give another out=FILE.json")
    require(overwrite, f"out: {out} holds a view already. Give another out=FILE.json, or overwrite=true to replace it")

"""`vsehub wandb-dashboard`: the view of a wandb project that compares losses."""

from pathlib import Path

from omegaconf import DictConfig

from vsehub.cli import app


def main() -> None:
    """Run the command."""
    app.run(dashboard, "wandb_dashboard")


def dashboard(cfg: DictConfig) -> None:
    """Save the view in the project of `cfg`, or offline write what would be sent; print where it is."""
    from vsehub.files import write_json
    from vsehub.training.wandb_account import is_offline
    from vsehub.training.wandb_view import comparison, save, sent

    offline = is_offline(cfg.mode)
    view = comparison(cfg.entity, cfg.project, None if cfg.study is None else str(cfg.study))
    if offline:
        write_json(cfg.out, {"url": None, "view": sent(view)})
        print(f"offline: nothing was sent. The view: {Path(cfg.out)}; with an account, run this again")
        return
    url, written = save(view, None if cfg.view is None else str(cfg.view))
    write_json(cfg.out, {"url": url, "view": written})
    print(f"view: {url}\nas it was sent: {Path(cfg.out)}")

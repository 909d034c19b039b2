"""`vsehub diagnose`: the hubness of somebody's embeddings under several criteria; nothing is ranked for use."""

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import require
from vsehub.cli import app


def main() -> None:
    """Run the command."""
    app.run(diagnose, "diagnose")


def diagnose(cfg: DictConfig) -> None:
    """Measure the plain ranking of `cfg.items` for `cfg.queries` and that of each of `cfg.criteria`."""
    from vsehub.cli.build import components
    from vsehub.cli.embeddings import FILES, built, find, finish, table
    from vsehub.criteria.nns import NearestNeighbor

    names = list(cfg.criteria) if isinstance(cfg.criteria, ListConfig) else [cfg.criteria]
    known = components()
    files = {str(name): known.path("criterion", str(name)) for name in names}
    require(len(files) == len(names), f"criteria names one twice: {', '.join(map(str, names))}")
    criteria = {name: built(name, OmegaConf.load(path)) for name, path in files.items()}
    plain = [
        name for name, criterion in criteria.items() if isinstance(criterion, NearestNeighbor)
    ]  # measured in any case
    with find(cfg, "diagnose", {name: criterion for name, criterion in criteria.items() if name not in plain}) as found:
        found.out.begin(FILES["diagnose"])
        written = finish(found)
    print(f"{table(found.record)}\nwritten to {cfg.out}: {', '.join(written)}")

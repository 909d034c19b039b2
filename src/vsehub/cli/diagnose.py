"""`vsehub diagnose`: the hubness of somebody's embeddings under several criteria; nothing is ranked for use."""

import sys

from omegaconf import DictConfig, ListConfig, OmegaConf

from vsehub.checks import one_of, require
from vsehub.cli import app
from vsehub.cli.file_names import with_quoted_files


def main() -> None:
    """Run the command."""
    sys.argv = [sys.argv[0], *with_quoted_files(sys.argv[1:])]
    app.run(diagnose, "diagnose")


def diagnose(cfg: DictConfig) -> None:
    """Measure the plain ranking of `cfg.items` for `cfg.queries` and that of each of `cfg.criteria`."""
    from vsehub.cli.embeddings import built, find, finish
    from vsehub.cli.ranking_table import table
    from vsehub.criteria.nns import NearestNeighbor

    names = list(cfg.criteria) if isinstance(cfg.criteria, ListConfig) else [cfg.criteria]
    folder = app.conf_folder() / "criterion"
    for name in names:
        one_of("criteria", name, tuple(sorted(path.stem for path in folder.glob("*.yaml"))))
    require(len(set(names)) == len(names), f"criteria names one twice: {', '.join(names)}")
    rules = {name: built(name, OmegaConf.load(folder / f"{name}.yaml")) for name in names}
    plain = [name for name, rule in rules.items() if isinstance(rule, NearestNeighbor)]  # measured in any case
    found = find(cfg, "diagnose", {name: rule for name, rule in rules.items() if name not in plain})
    found.out.clear()
    files = finish(found)
    print(f"{table(found.record)}\nwritten to {cfg.out}: {', '.join(files)}")

"""`vsehub report ... examples=RUN`: which two rankings the page compares, by hubs and by examples."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import existing, require
from vsehub.records import RUN, read_record
from vsehub.report.comparison import Comparison
from vsehub.report.runs import find_runs

OPTIONS = ("against", "criterion", "images")
DEFAULT = {"_target_": "vsehub.criteria.csls.CSLS", "k": 10}


class Ranker(NamedTuple):
    """A run and a criterion, None for plain similarity: what ranks.

    name: short, among the two that are compared. criterion_name: as reports call it.
    """

    folder: Path
    record: dict
    criterion: DictConfig | None
    criterion_name: str
    name: str

    @property
    def checkpoint(self) -> Path:
        """The weights."""
        return self.folder / "checkpoints" / "best.safetensors"


def asked(cfg: DictConfig) -> Comparison | None:
    """The comparison that `cfg.examples` asks for, None where it asks for none.

    Without `cfg.against` a run's plain ranking is compared with the one under `cfg.criterion` (CSLS where none is
    given); with it, the ranking of the run `cfg.against` with that of `cfg.examples`, both under `cfg.criterion` (plain
    where none is given). Raises InputError where a setting has no effect, a run has no checkpoint, or the two runs'
    test data differ.
    """
    if cfg.examples in (None, False):
        useless = [name for name in OPTIONS if cfg.get(name) is not None] + ["data"] * bool(cfg.data)
        require(not useless, f"{', '.join(useless)} came without examples; give examples=RUN, or examples=true")
        return None
    from vsehub.cli.examples_ranked import compared

    folder = best_run(cfg.runs) if cfg.examples is True else run_folder("examples", cfg.examples)
    other = None if cfg.against is None else run_folder("against", cfg.against)
    return compared(cfg, *rankers(cfg, folder, other))


def run_folder(name: str, path: str) -> Path:
    """The run folder; InputError where it is none, or has no checkpoint."""
    folder = existing(name, path, "Give a run folder, as `vsehub train` wrote it")
    require((folder / "run.json").is_file(), f"{name}: {folder} is no run folder: it holds no run.json; name one run")
    require(
        (folder / "checkpoints" / "best.safetensors").is_file(),
        f"{name}: {folder} has no checkpoints/best.safetensors to rank with; name a run that kept its checkpoint",
    )
    return folder


def best_run(folders: list[str]) -> Path:
    """Of the runs that kept their checkpoint the one with the highest validation rsum.

    Raises InputError where there is none, and where they are of several data sets.
    """
    found = []
    for folder in find_runs(folders):
        record = read_record(folder / "run.json", RUN, "Name a run: examples=RUN")
        rsum = (record.get("best") or {}).get("val/rsum")
        if rsum is not None and (folder / "checkpoints" / "best.safetensors").is_file():
            found.append((rsum, folder, record["dataset"]))
    require(bool(found), "examples=true: no run has both a validation rsum and checkpoints/best.safetensors; train one")
    names = sorted({name for _, _, name in found})
    require(
        len(names) == 1,
        f"examples=true: the runs are of several data sets ({', '.join(names)}), whose rsum cannot be compared; name a "
        "run: examples=RUN",
    )
    return max(found, key=lambda one: one[0])[1]


def rankers(cfg: DictConfig, folder: Path, other: Path | None) -> tuple[Ranker, Ranker]:
    """The two that are compared, with names that tell them apart."""
    given, name = cfg.get("criterion"), cfg.criterion_name or "nns"
    if other is None:
        require(name != "nns" or given is None, "criterion=nns is what others are compared with; give another: csls")
        plain = Ranker(folder, _record(folder), None, "nns", "nns")
        if given is None:
            given, name = OmegaConf.create(DEFAULT), "csls"
        return plain, plain._replace(criterion=given, criterion_name=name, name=name)
    require(other.resolve() != folder.resolve(), f"against: {other} is the run of examples itself; name another")
    records = _record(other), _record(folder)
    labels, seeds = ([one[key] for one in records] for key in ("label", "seed"))
    names = labels
    if labels[0] == labels[1]:
        names = [f"{label} seed {seed}" for label, seed in zip(labels, seeds, strict=True)]
    if names[0] == names[1]:
        names = [one.resolve().name for one in (other, folder)]
    one, two = zip((other, folder), records, names, strict=True)
    return Ranker(*one[:2], given, name, one[2]), Ranker(*two[:2], given, name, two[2])


def _record(folder: Path) -> dict:
    return read_record(folder / "run.json", RUN, "Train the run again, or name another")

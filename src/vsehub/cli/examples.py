"""Two rankings of a split, compared, with the names, captions and thumbnails that a report's page shows."""

from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import existing, one_of, require, whole
from vsehub.cli.nodes import build, components, plain
from vsehub.cli.shown import Shown
from vsehub.criteria.base import Criterion
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.sources import SPLITS
from vsehub.evaluation.compare import Compared, compare
from vsehub.evaluation.evaluate import transductive_only
from vsehub.evaluation.measurement import REFERENCES
from vsehub.evaluation.scores import DIRECTIONS, both_directions
from vsehub.evaluation.trained import TrainedModel
from vsehub.io.files import require_no_way_out
from vsehub.io.records import RUN, read_record
from vsehub.report.pages.comparison import Direction, PageEntry, RankingComparison
from vsehub.report.runs import find_runs
from vsehub.report.tables import criterion_text

OPTIONS = ("against", "criterion", "images")
DEFAULT = {"_target_": "vsehub.criteria.CSLS", "k": 10}


class Ranker(NamedTuple):
    """A run and the criterion that ranks its scores (None: plain similarity).

    name: a short name that differs from the other ranker's. criterion_name: the criterion's name in reports.
    """

    folder: Path
    record: dict
    criterion: DictConfig | None
    criterion_name: str
    name: str

    @property
    def checkpoint(self) -> Path:
        """The file of the weights."""
        return self.folder / "checkpoints" / "best.safetensors"


def asked(cfg: DictConfig) -> RankingComparison | None:
    """The comparison that `cfg.examples` asks for, None if it asks for none.

    Without `cfg.against`, a run's plain ranking is compared with its ranking under `cfg.criterion` (default: CSLS).
    With it, the rankings of the runs `cfg.against` and `cfg.examples` are compared, both under `cfg.criterion`
    (default: plain). Raises InputError if a setting has no effect, a run has no checkpoint, or the runs' data differ.
    """
    if cfg.examples in (None, False):
        useless = [name for name in OPTIONS if cfg.get(name) is not None] + ["data"] * bool(cfg.data)
        require(not useless, f"{', '.join(useless)} has no effect without examples; give examples=RUN or examples=true")
        return None

    folder = best_run(cfg.runs) if cfg.examples is True else run_folder("examples", cfg.examples)
    other = None if cfg.against is None else run_folder("against", cfg.against)
    return compared(cfg, *rankers(cfg, folder, other))


def run_folder(name: str, path: str) -> Path:
    """The run folder at `path`. Raises InputError if it is not a run folder, or has no checkpoint."""
    folder = existing(name, path, "Give a run folder, as `vsehub train` wrote it")
    require((folder / "run.json").is_file(), f"{name}: {folder} is not a run folder, it has no run.json; name one run")
    require(
        (folder / "checkpoints" / "best.safetensors").is_file(),
        f"{name}: {folder} has no checkpoints/best.safetensors to rank with; name a run that kept its checkpoint",
    )
    return folder


def best_run(folders: list[str]) -> Path:
    """The run with the highest validation rsum among those that kept their checkpoint.

    Raises InputError if there is none, or if the runs are on several data sets.
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
        f"examples=true: the runs are on several data sets ({', '.join(names)}), whose rsum cannot be compared; name "
        "a run: examples=RUN",
    )
    return max(found, key=lambda one: one[0])[1]


def rankers(cfg: DictConfig, folder: Path, other: Path | None) -> tuple[Ranker, Ranker]:
    """The two rankers to compare, with different names."""
    given, name = cfg.get("criterion"), cfg.criterion_name or "nns"
    if other is None:
        require(name != "nns" or given is None, "criterion=nns is the plain ranking itself; give another, e.g. csls")
        plain = Ranker(folder, _record(folder), None, "nns", "nns")
        if given is None:
            given, name = OmegaConf.create(DEFAULT), "csls"
        return plain, plain._replace(criterion=given, criterion_name=name, name=name)
    require(other.resolve() != folder.resolve(), f"against: {other} is the run of examples itself; name another run")
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
    require_no_way_out(folder)
    return read_record(folder / "run.json", RUN, "Train the run again, or name another")


NEAREST = 5  # items shown of a query's list: as many thumbnails fit side by side on a phone


def compared(cfg: DictConfig, before: Ranker, after: Ranker) -> RankingComparison:
    """The comparison of two rankings of the split `cfg.split`, in both directions, for the page.

    Raises InputError if the runs' data differ, or if a criterion cannot take the reference.
    """
    whole("eval_batch_size", cfg.eval_batch_size)
    one_of("split", cfg.split, SPLITS)
    one_of("reference", cfg.reference, tuple(REFERENCES))
    criteria = [
        NearestNeighbor() if one.criterion is None else build("criterion", one.criterion) for one in (before, after)
    ]
    references = [_reference(criterion, cfg) for criterion in criteria]
    one = loaded(before, cfg)
    two = one if after.folder == before.folder else loaded(after, cfg)
    split = one.split(cfg.split)
    require(
        two is one or two.split(cfg.split).fingerprint() == split.fingerprint(),
        f"against: the {cfg.split} data of {before.folder} and {after.folder} differ; compare runs on the same data",
    )
    scores = [
        both_directions(model.encode(cfg.split), model.similarity, model.encode(reference))
        for model, reference in zip((one, two), references, strict=True)
    ]
    shown = Shown(split, cfg.images, plain=True)
    entries, directions = SplitEntries(shown), []
    for name in DIRECTIONS:
        first, second = ((own[name], criterion) for own, criterion in zip(scores, criteria, strict=True))
        directions.append(entries.direction(name, compare(first, second, shown=NEAREST)))
    shown.thumbnails.warn()
    sizes = f"{len(split.images):,} images, {len(split.captions):,} texts"
    ranked = zip((before, after), criteria, strict=True)
    facts = [
        ("ranked", f"the {cfg.split} split of {after.record['dataset']} as a whole: {sizes}"),
        *((one.name, _ranker_text(one, criterion, cfg)) for one, criterion in ranked),
        ("ties", "among equal scores, wrong items count as higher, as for R@1"),
        ("examples", "drawn with a fixed seed from single runs; the tables show the spread over seeds"),
    ]
    missing = len(set(shown.thumbnails.missing))
    return RankingComparison(facts, (before.name, after.name), directions, shown.pictured, missing)


def _reference(criterion: Criterion, cfg: DictConfig) -> str:
    """The split whose queries a criterion sees. Raises InputError if it cannot take the requested reference."""
    if cfg.reference == "queries" or not criterion.needs_reference:
        return cfg.split
    require(criterion.inductive, transductive_only(cfg.criterion_name))
    require(
        cfg.split != "train",
        "reference=train with split=train: the reference holds the queries themselves; give reference=queries",
    )
    return "train"


def loaded(ranker: Ranker, cfg: DictConfig) -> TrainedModel:
    """A run's best model."""
    return TrainedModel(ranker.checkpoint, components(cfg.trust), plain(cfg.data), cfg.eval_batch_size)


def _ranker_text(ranker: Ranker, criterion: Criterion, cfg: DictConfig) -> str:
    """Loss, seed and criterion of a ranker, and the criterion's reference, in words."""
    name = criterion_text(
        ranker.criterion_name, ", ".join(f"{key} {value}" for key, value in criterion.parameters().items())
    )
    reference = ""
    if criterion.matching is not None or criterion.needs_reference:
        kind, seen = REFERENCES["queries" if _reference(criterion, cfg) == cfg.split else "train"]
        reference = f", {kind} (reference: {seen.format(split=cfg.split).removesuffix(', fold by fold')})"
    record = ranker.record
    return f"{record['label']}, seed {record['seed']}, criterion {name}{reference}"


class SplitEntries:
    """Images and texts of a split, as the page shows them."""

    def __init__(self, shown: Shown):
        self.shown = shown
        self._thumbnails: dict[int, str | None] = {}

    def direction(self, name: str, found: Compared) -> Direction:
        """The comparison in one direction, with the entries of all rows that the page shows."""
        turned = [*found.some_gained, *found.some_lost]
        hubs = {hub.item for hub in found.hubs}
        listed = {one.item for example in turned for one in (*example.before, *example.after)}
        query, item = (self._image, self._text) if name == "i2t" else (self._text, self._image)
        queries = {example.query: query(example.query) for example in turned}
        return Direction(name, found, queries, {row: item(row, row in hubs) for row in sorted(hubs | listed)})

    def _image(self, row: int, hub: bool = False) -> PageEntry:
        """An image; a hub is labelled with its first caption."""
        label = next(iter(self.shown.captions(row)), None) if hub else None
        return PageEntry(self.shown.name(row), label, self._thumbnail(row), self.shown.pictured)

    def _text(self, row: int, hub: bool = False) -> PageEntry:
        """A text; a hub is shown with its image."""
        if not hub:
            return PageEntry(self.shown.split.text_of(row))
        image = int(self.shown.split.image_index[row])
        return PageEntry(self.shown.split.text_of(row), f"of {self.shown.name(image)}", self._thumbnail(image))

    def _thumbnail(self, row: int) -> str | None:
        if row not in self._thumbnails:
            self._thumbnails[row] = self.shown.thumbnail(row)
        return self._thumbnails[row]

"""A split encoded, ranked twice, and turned into what the page shows of it: names, captions, thumbnails."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import existing, one_of, require
from vsehub.cli.measure import REFERENCES, Encodings, encodings_of
from vsehub.cli.nodes import build
from vsehub.cli.split_search import Shown
from vsehub.criteria.base import Criterion
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.sources import SPLITS
from vsehub.evaluation.compare import Compared, Listed, Turned, compare
from vsehub.evaluation.evaluate import transductive_only
from vsehub.evaluation.scores import DIRECTIONS, both_directions
from vsehub.io.records import RUN, read_record
from vsehub.report.pages.comparison import Comparison, Entry, Example, HubEntry, Side
from vsehub.report.runs import find_runs
from vsehub.report.tables import criterion_text

OPTIONS = ("against", "criterion", "images")
DEFAULT = {"_target_": "vsehub.criteria.CSLS", "k": 10}


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


NEAREST = 5  # items of a query's list: so many thumbnails stand beside each other on a phone


def compared(cfg: DictConfig, before: Ranker, after: Ranker) -> Comparison:
    """What two rankings make of the split `cfg.split`, in both directions, as the page shows it.

    Raises InputError where the runs' data differ, or a criterion cannot take the reference.
    """
    one_of("split", cfg.split, SPLITS)
    one_of("reference", cfg.reference, tuple(REFERENCES))
    criteria = [
        NearestNeighbor() if one.criterion is None else build("criterion", one.criterion) for one in (before, after)
    ]
    references = [_reference(criterion, cfg) for criterion in criteria]
    one = encodings(before, cfg)
    two = one if after.folder == before.folder else encodings(after, cfg)
    split = one.data.load(cfg.split)[0]
    require(
        two is one or two.data.load(cfg.split)[0].fingerprint() == split.fingerprint(),
        f"against: the {cfg.split} data of {before.folder} and {after.folder} differ; compare runs on the same data",
    )
    scores = [
        both_directions(made(cfg.split), made.similarity, made(reference))
        for made, reference in zip((one, two), references, strict=True)
    ]
    shown = Shown(split, cfg.images, plain=True)
    sides = []
    for direction in DIRECTIONS:
        ranked = [(own[direction], criterion) for own, criterion in zip(scores, criteria, strict=True)]
        sides.append(SideRows(shown, direction).side(compare(*ranked, shown=NEAREST)))
    shown.thumbnails.warn()
    told = [_told(*pair, cfg) for pair in zip((before, after), criteria, strict=True)]
    sentences = [
        f"The {cfg.split} split of {after.record['dataset']} ranked as a whole: {len(split.images):,} images, "
        f"{len(split.captions):,} texts. {' '.join(told)}",
        "Of equal scores a wrong item's counts as higher, as for R@1. Examples are drawn by a fixed seed, none is "
        "chosen by hand. They show single runs; what holds over seeds is in the tables.",
    ]
    return Comparison(sentences, (before.name, after.name), sides, shown.pictured, len(set(shown.thumbnails.missing)))


def _reference(criterion: Criterion, cfg: DictConfig) -> str:
    """The split whose queries a criterion sees; InputError where it cannot take the one that is asked for."""
    if cfg.reference == "queries" or not criterion.needs_reference:
        return cfg.split
    require(criterion.inductive, transductive_only(cfg.criterion_name))
    require(
        cfg.split != "train",
        "reference=train with split=train: the reference holds the queries themselves; give reference=queries",
    )
    return "train"


def encodings(ranker: Ranker, cfg: DictConfig) -> Encodings:
    """The splits as a run's best checkpoint encodes them."""
    return encodings_of(ranker.checkpoint, cfg.data, cfg.eval_batch_size, cfg.trust)


def _told(ranker: Ranker, criterion: Criterion, cfg: DictConfig) -> str:
    """A sentence on one of the two: run, seed, criterion, and what it takes as reference."""
    name = criterion_text(
        ranker.criterion_name, ", ".join(f"{key} {value}" for key, value in criterion.parameters().items())
    )
    reference = ""
    if criterion.matching is not None or criterion.needs_reference:
        kind, seen = REFERENCES["queries" if _reference(criterion, cfg) == cfg.split else "train"]
        reference = f", {kind} (reference: {seen.format(split=cfg.split).removesuffix(', fold by fold')})"
    record = ranker.record
    return f"{ranker.name}: {record['label']}, seed {record['seed']}, criterion {name}{reference}."


class SideRows:
    """Rows of one direction's queries and items as the page's entries."""

    def __init__(self, shown: Shown, direction: str):
        self.shown, self.direction = shown, direction
        self._query, self._item = (self._image, self._text) if direction == "i2t" else (self._text, self._image)
        self._thumbnails: dict[int, str | None] = {}

    def side(self, found: Compared) -> Side:
        """What was found, in words and pictures."""
        return Side(
            direction=self.direction,
            k=found.k,
            queries=found.queries,
            items=found.items,
            hubs=[self._hub(*hub) for hub in found.hubs],
            largest=found.largest,
            never=found.never,
            answered=found.answered,
            measured=found.measured,
            gained=found.gained,
            lost=found.lost,
            some_gained=list(map(self._example, found.some_gained)),
            some_lost=list(map(self._example, found.some_lost)),
        )

    def _hub(self, row: int, occurrences: tuple[int, int], wrong: tuple[int, int]) -> HubEntry:
        """A hub: an image with its first caption, or a caption with its image."""
        image = row if self.direction == "t2i" else int(self.shown.split.image_index[row])
        name, caption = self.shown.name(image), next(iter(self._captions(row)), None)
        texts = (name, caption) if self.direction == "t2i" else (self._caption(row), f"of {name}")
        return HubEntry(*texts, self._thumbnail(image), occurrences, wrong)

    def _example(self, turned: Turned) -> Example:
        before, after = (self._entries(some) for some in (turned.before, turned.after))
        return Example(self._query(turned.query), before, after)

    def _entries(self, listed: Sequence[Listed]) -> list[Entry]:
        return [self._item(one.item)._replace(right=one.right) for one in listed]

    def _image(self, row: int) -> Entry:
        return Entry(self.shown.name(row), self.shown.pictured, self._thumbnail(row))

    def _text(self, row: int) -> Entry:
        return Entry(self._caption(row))

    def _captions(self, image: int) -> list[str]:
        return [self._caption(t) for t in (self.shown.split.image_index == image).nonzero()[0]]

    def _caption(self, row: int) -> str:
        return self.shown.split.captions[row] if self.shown.split.written else f"text {row}"

    def _thumbnail(self, row: int) -> str | None:
        if row not in self._thumbnails:
            self._thumbnails[row] = self.shown.thumbnail(row)
        return self._thumbnails[row]

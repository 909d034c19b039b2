"""Items in shards give what the engine of one machine gives."""

import shutil

import fsspec
import numpy as np
import pytest
import torch
from measuring import measure

from vsehub.checks import InputError
from vsehub.cli.nodes import components
from vsehub.criteria import CSLS, DualInvertedSoftmax, MutualProximity, RelaxedGreedyMatching
from vsehub.data.vectors.embeddings import look_through, open_vectors
from vsehub.ranking import ray
from vsehub.ranking.ray import Sharded, divide

DIM, K = 8, 12
# Of the files: fewer rows than K, as many as a shard, one row more than that, many.
FILES = (3, 37, 38, 127)


class InTurn:
    """Workers that are this process."""

    device = "cpu"

    def __init__(self):
        self.calls = []

    def share(self, array):
        return array

    def run(self, function, jobs):
        for arguments in jobs:
            self.calls.append(function.__name__)
            yield ray.carry_out(function, *arguments)


def unit(rows, seed, pull=0.3):
    generator = np.random.default_rng(seed)
    array = generator.normal(size=(rows, DIM)) + pull
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


def exact(rows, seed):
    """Rows of about unit length in steps of 1/256: their products are exact, so copies tie in blocks of any size."""
    return np.round(256 * unit(rows, seed)) / np.float32(256)


@pytest.fixture
def sides(tmp_path):
    """Queries, items in a folder of files with copies of rows in several of them, reference, reference items."""
    items = exact(sum(FILES), 0)
    items[45:60] = items[:15]
    items[-1] = items[0]
    (tmp_path / "items").mkdir()
    for number, part in enumerate(np.split(items, np.cumsum(FILES)[:-1])):
        np.save(tmp_path / "items" / f"part_{number}.npy", part)
    queries = exact(60, 1)
    queries[7] = items[0]
    return queries, open_vectors(tmp_path / "items", "items"), exact(70, 2), exact(41, 3)


def every_correction():
    """Each criterion that corrects scores of one item after another, at the settings of its yaml."""
    known = components()
    for name in known.choices("criterion"):
        criterion = known.build("criterion", known.node("criterion", name))
        shared = criterion.matching is None and not criterion.correction.query_terms_rank
        if shared and type(criterion).__name__ not in ("Auto", "NearestNeighbor"):
            yield name, criterion


def same(measured, other, criteria):
    """Equal rankings: positions; values and terms to 1e-6 of a score, of which some criteria rank a multiple."""
    for here, there in zip(measured.rankings, other.rankings, strict=True):
        least = 1e-6 * getattr(criteria.get(here.name), "scale", 1.0)
        assert torch.equal(here.positions, there.positions), here.name
        for ours, theirs in zip((here.values, *here.item_terms), (there.values, *there.item_terms), strict=True):
            assert torch.allclose(ours.double(), theirs.double(), rtol=1e-6, atol=least), here.name
        assert (here.hubness, here.histograms, here.changed) == (there.hubness, there.histograms, there.changed)


@pytest.mark.long
def test_shards_give_what_one_machine_gives(sides):
    queries, items, reference, bank = sides
    criteria = dict(every_correction())
    assert len(criteria) > 8
    for reference_rows, sizes in ((reference, (37, 5)), (None, (1000, None))):
        alone = measure(queries, items, criteria, reference_rows, K, reference_items=bank)
        for rows in sizes:
            workers = InTurn()
            options = {"reference_items": bank, "engine": Sharded(workers, rows)}
            same(alone, measure(queries, items, criteria, reference_rows, K, **options), criteria)
            assert workers.calls.count("lists") == sum(-(-n // (rows or 16_384)) for n in FILES)


def test_norms_are_those_of_the_whole(tmp_path):
    np.save(tmp_path / "good.npy", unit(205, 0))
    items = open_vectors(tmp_path / "good.npy", "items")
    norms, alone = Sharded(InTurn(), 10).look_through(items), look_through(items)
    assert (norms.least, norms.most, norms.tolerance) == (alone.least, alone.most, alone.tolerance)
    assert norms.unit_share == pytest.approx(alone.unit_share)
    bad = unit(50, 5)
    bad[33] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(InputError, match=r"bad\.npy, rows 30 to 39\): of 10 rows.*row 33 holds NaN"):
        Sharded(InTurn(), 10).look_through(open_vectors(tmp_path / "bad.npy", "items"))


def test_what_cannot_go_by_shards_is_refused(sides, tmp_path):
    class Own(CSLS):
        columnwise = False

    engine = Sharded(InTurn())
    for criterion in (RelaxedGreedyMatching(), MutualProximity(), DualInvertedSoftmax(), Own()):
        with pytest.raises(InputError, match="engine=local"):
            measure(*sides[:2], {"c": criterion}, engine=engine)
    with pytest.raises(InputError, match="must lie in files"):
        divide(open_vectors(unit(4, 0), "items"))
    changed = divide(sides[1])[0]
    np.save(changed.address, unit(2, 0))
    with pytest.raises(InputError, match=r"part_0\.npy.* has 2 rows on a worker and 3 where"):
        changed.open()


def test_workers_fetch_the_files_of_their_shards(sides, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    remote, folder = fsspec.filesystem("memory"), tmp_path / "items"
    for file in folder.iterdir():
        remote.pipe(f"/shards/{file.name}", file.read_bytes())
    items = open_vectors("memory://shards", "items")
    shards = divide(items, 40)
    assert [(shard.start, shard.stop, shard.first) for shard in shards] == [
        (shard.start, shard.stop, shard.first) for shard in divide(sides[1], 40)
    ]
    shutil.rmtree(tmp_path / "caches")
    assert torch.equal(shards[2].open().rows(0, 38), sides[1].rows(40, 78))
    assert len(list((tmp_path / "caches").rglob("*.npy"))) == 1
    criteria = {"csls": CSLS()}
    expected = measure(sides[0], sides[1], criteria, sides[2], K)
    same(expected, measure(sides[0], items, criteria, sides[2], K, engine=Sharded(InTurn())), criteria)

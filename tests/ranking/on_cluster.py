"""What is checked on a real Ray cluster, in a process of its own: Ray stays out of the tests' process.

It writes one JSON object: check -> what was found. See test_cluster.py, which starts it and asserts.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np
import ray

sys.path.insert(0, str(Path(__file__).parents[1]))

from measuring import measure

from vsehub.criteria import CSLS, DualBankSinkhorn, Sinkhorn
from vsehub.data.vectors.embeddings import open_vectors
from vsehub.ranking.ray import cluster, divide

K = 12
CRITERIA = {
    "csls": CSLS(),
    "sinkhorn": Sinkhorn(0.5, rounds=3),
    "dbsn": DualBankSinkhorn(0.05, rounds=2),
}


def equal_to_local():
    """The largest difference of values, relative to their size, and whether positions are equal, by criterion."""
    items = open_vectors("items", "items")
    sides = np.load("q.npy"), items, CRITERIA, np.load("r.npy"), K
    bank = np.load("bank.npy")
    alone = measure(*sides, reference_items=bank)
    with cluster() as engine:
        engine.shard_rows = 37
        measured = measure(*sides, reference_items=bank, engine=engine)
    return {
        ranking.name: [
            bool((ranking.positions == other.positions).all()),
            float(((ranking.values - other.values).abs() / ranking.values.abs().clamp(min=1)).max()),
        ]
        for ranking, other in zip(alone.rankings, measured.rankings, strict=True)
    }


def lost_worker():
    """How often each shard was worked on where the first worker on shard 2 is killed."""
    shards = divide(open_vectors("items", "items"), 37)
    Path("tries").mkdir()

    def dies_once(number, shard):
        tries = len(list(Path(folder).glob(f"{number}-*")))
        Path(folder, f"{number}-{tries}").touch()
        if number == 2 and not tries:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    folder = str(Path("tries").absolute())
    with cluster() as engine:
        done = list(engine.tasks.run(dies_once, list(enumerate(shards))))
    return {"done": done, "tries": len(list(Path("tries").glob("2-*")))}


if __name__ == "__main__":
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.chdir(sys.argv[1])
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    answer = {check.__name__: check() for check in (equal_to_local, lost_worker)}
    Path("answer.json").write_text(json.dumps(answer))
    ray.shutdown()

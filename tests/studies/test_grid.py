import json

from run_files import record

from experiments.grid.collect import read, results
from experiments.grid.measure import measure_runs


def test_a_trained_run_is_measured_once_and_as_the_training_measured_it(trained, tmp_path):
    measure_runs([trained], tmp_path, ("nns", "csls"))
    files = sorted(tmp_path.rglob("*.json"))
    before = [path.stat().st_mtime_ns for path in files]
    measure_runs([trained], tmp_path, ("nns", "csls"))
    assert [path.stat().st_mtime_ns for path in files] == before
    frame = results(read(tmp_path)).set_index(["criterion", "reference", "settings"])
    kinds = [("csls", side, kind) for side in ("inductive", "transductive") for kind in ("default", "tuned")]
    assert set(frame.index) == {("nns", "none", "default"), *kinds}
    assert frame.loc[("nns", "none", "default"), "rsum"] == record(trained)["metrics"]["test/rsum"]
    csls = frame.loc[("csls", "transductive", "default"), "parameters"]
    assert json.loads(csls)["k"] == 10

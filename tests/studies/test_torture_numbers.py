"""Random cases through every criterion and metric are as the oracles say, and the harness sees what is not."""

import inspect
import sys
from importlib import import_module
from pathlib import Path

import pytest
from script_modules import script_modules

from vsehub.criteria import CSLS, InvertedSoftmax, RelaxedGreedyMatching, base
from vsehub.metrics import occurrences as hubness
from vsehub.metrics import ranks

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "torture"
NAMES = ("drawing", "oracles", "criterion_cases", "metric_cases", "numeric")


@pytest.fixture(scope="module")
def numeric():
    """The script as a module, without leaving its name or its neighbour's behind."""
    with script_modules(FOLDER, NAMES) as found:
        yield found[NAMES[-1]]


def test_a_thousand_cases(numeric):
    assert numeric.run(None, 20, cases=1000) == {"cases": 1000, "wrong": []}


def test_for_some_seconds(numeric):
    result = numeric.run(0.5, 3)
    assert result["cases"] > 10
    assert result["wrong"] == []
    with pytest.raises(ValueError, match="either seconds or cases"):
        numeric.run(1.0, 0, cases=1)


def off_by_a_thousandth(monkeypatch):
    bias = CSLS.bias
    monkeypatch.setattr(CSLS, "bias", lambda self, scores: 1.001 * bias(self, scores))


def places_for_one_more(monkeypatch):
    places = RelaxedGreedyMatching.places
    monkeypatch.setattr(RelaxedGreedyMatching, "places", lambda *given: places(*given) + 1)


def ties_as_they_fall(monkeypatch):
    def unsettled(scores, k):
        return tuple(side[:, :k] for side in scores.sort(dim=1, descending=True, stable=False))

    monkeypatch.setattr(hubness, "top_k", lambda scores, k: tuple(x.flip(1) for x in unsettled(scores.flip(1), k)))


def ties_that_help(monkeypatch):
    whole = ranks.at_least
    monkeypatch.setattr(ranks, "at_least", lambda scores, least: whole(scores, least * (1 + 1e-6)))


def nothing_is_refused(monkeypatch):
    monkeypatch.setattr(base, "finite", lambda name, values: values)


def another_error(monkeypatch):
    def crash(*given):
        raise KeyError("no InputError")

    monkeypatch.setattr(InvertedSoftmax, "bias", crash)


def endless(monkeypatch):
    def hang(*given):
        while True:
            pass

    monkeypatch.setattr(CSLS, "bias", hang)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (off_by_a_thousandth, "csls"),
        (places_for_one_more, "gm"),
        (ties_as_they_fall, "hubness"),
        (ties_that_help, "rank_blocks"),
        (nothing_is_refused, "NaN or infinity"),
        (another_error, "KeyError: 'no InputError'"),
        (endless, "TimeoutError: not done after"),
    ],
)
def test_a_fault_is_found(numeric, monkeypatch, fault, said):
    monkeypatch.setattr(numeric, "SECONDS_A_CASE", 0.5)
    monkeypatch.setattr(numeric, "MOST_NAMED", 4)
    fault(monkeypatch)
    found = numeric.run(None, 0, cases=600)["wrong"]
    assert any(said in text for text in found), found
    assert all(text.startswith("seed 0 case ") for text in found)


def test_a_case_is_the_same_again(numeric, monkeypatch):
    off_by_a_thousandth(monkeypatch)
    text = numeric.run(None, 5, cases=300)["wrong"][0]
    number = int(text.split()[3].rstrip(":"))
    name, work = numeric.drawn_case(5, number, numeric.discover())
    with numeric.quiet(), pytest.raises(numeric.Wrong) as caught:
        work()
    assert text == f"seed 5 case {number}: {name}: {caught.value}"


def test_every_criterion_has_its_formula(numeric):
    files = {path.stem for path in (ROOT / "conf" / "criterion").glob("*.yaml")}
    assert {one[0].name for one in numeric.discover()} == files
    assert numeric.without_formula() == ["auto"]  # which is CSLS where nothing is chosen


class Crowded(base.ItemBias):
    """A criterion that no oracle knows; broken: its streaming form ranks otherwise than its dense one."""

    def __init__(self, broken=False):
        self.broken = broken

    def bias(self, reference_scores):
        return reference_scores.amax(dim=0)

    def over(self, queries, items, item_terms):
        return None if self.broken else super().over(queries, items, item_terms)


@pytest.mark.parametrize("broken", [False, True])
def test_a_new_criterion_joins_by_itself(numeric, monkeypatch, tmp_path, broken):
    (tmp_path / "crowded.yaml").write_text(f"_target_: {__name__}.Crowded\nbroken: {str(broken).lower()}\n")
    monkeypatch.setattr(numeric, "discover", lambda folder=tmp_path, of=numeric.discover: of(folder))
    monkeypatch.setattr(numeric, "SHARE_OF_METRICS", 0.0)
    found = numeric.run(None, 0, cases=400)["wrong"]
    assert numeric.without_formula() == ["crowded"]
    assert bool(found) == broken
    assert all("crowded" in text for text in found)


def test_every_metric_has_its_cases(numeric):
    """Each public function of the metrics is called by a case, or by what a case calls."""
    text = inspect.getsource(sys.modules["metric_cases"])
    inside = {"with_block", "with_entries", "merged", "at_r", "at_r_of_scores", "checked_positions", "skew_sum", "rsum"}
    inside |= {"entries_from", "places_of"}
    for path in (ROOT / "src" / "vsehub" / "metrics").glob("[a-z]*.py"):
        module = import_module(f"vsehub.metrics.{path.stem}")
        for name, value in inspect.getmembers(module, inspect.isfunction):
            if value.__module__ == module.__name__ and not name.startswith("_"):
                assert name in inside or f"{path.stem}.{name}" in text, name

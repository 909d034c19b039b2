"""last.ckpt: a state that the run could not have written itself is refused before any part of it is loaded."""

import contextlib
import copy
import json
import shutil
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from vsehub.checks import InputError
from vsehub.training import train
from vsehub.training.state import read_state

# Values that a state may hold in other amounts: they are bounded where they are counters, and not compared.
FREE = ("seconds", "val/", "train/", "bank/", "foreach", "fused", "capturable", "score", "kth_value", ".lr", "message")

ALIKE = ("validate_loop", "test_loop", "predict_loop")  # as the loop within fit_loop


def leaves(value, path=()):
    """The path of each entry of a state, and the entry; of tensors and history only one or two of a kind."""
    if path:
        yield path, value
    if isinstance(value, Mapping):
        tensors = isinstance(next(iter(value.values()), None), Tensor) and path[-1:] != ("state",)
        for key in [one for one in value if one not in ALIKE][: 1 if tensors and path[0] != "callbacks" else None]:
            if path[-2:] != ("config", "data"):
                yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for place, one in enumerate(value[-1:], max(0, len(value) - 1)):
            yield from leaves(one, (*path, place))


def others(path, value):
    """Values that cannot stand in the place of `value`."""
    name = ".".join(map(str, path))
    yield "text" if not isinstance(value, str) else 3
    if isinstance(value, Tensor):
        yield torch.zeros(*value.shape, 2, dtype=value.dtype)
        yield value.to(torch.float16 if value.dtype != torch.float16 else torch.float32)
        yield value.to_sparse()
    elif isinstance(value, bool):
        yield None
    elif isinstance(value, int) and "loader" not in path:
        yield from (-1, 1 << 62, float(value), True)
    elif isinstance(value, float) and not any(one in name for one in FREE):
        yield from (-1.0, float("nan"))
    elif isinstance(value, list | tuple) and "seen" not in path and "loader" not in path:
        yield from ([*value, *value[:1], 1], value[1:] if len(value) else [1])
        if len(value) > 1 and path[-1] in ("params", "base_lrs", "rows") and value[0] != value[1]:
            yield [value[1], value[0], *value[2:]]
    elif isinstance(value, Mapping) and "rows" not in path and path[-1] not in ("data", "loader"):
        yield {**value, "another": 1}


@pytest.fixture
def stopped(trained, tmp_path):
    """A copy of a run that can go on."""
    run = shutil.copytree(trained, tmp_path / "run")
    record = json.loads((run / "run.json").read_text()) | {"status": "stopped"}
    record["config"] |= {"run_folder": str(run)}
    (run / "run.json").write_text(json.dumps(record))
    return run


@pytest.mark.long
def test_every_part_of_a_state_is_checked_before_it_is_loaded(stopped, run_here, monkeypatch):
    accepted, tried = [], 0

    def all_refused(path, lightning, module, folder):
        nonlocal tried
        whole = read_state(path, lightning, module, folder)
        for place, value in list(leaves(whole)):
            *above, last = place
            for other in (*others(place, value), KeyError):
                state = copy.copy(whole)
                node = state
                for key in above:
                    node[key] = copy.copy(node[key])
                    node = node[key]
                if other is not KeyError:
                    node[last] = other
                elif isinstance(node, Mapping) and above[-2:-1] != ["rows"] and above[-1:] != ["state"]:
                    del node[last]
                else:
                    continue
                monkeypatch.setattr(torch, "load", lambda *_, state=state, **__: state)
                tried += 1
                with contextlib.suppress(InputError):
                    read_state(path, lightning, module, folder)
                    accepted.append((".".join(map(str, place)), str(other)[:60]))
        raise InputError("all tried")

    monkeypatch.setattr(train, "read_state", all_refused)
    before = (stopped / "csv" / "version_0" / "metrics.csv").read_bytes()
    assert "all tried" in run_here("train", f"resume={stopped}", "trainer.max_epochs=5", status=2)
    allowed = [one for one in accepted if "loader" not in one[0] and not any(free in one[0] for free in FREE)]
    assert not allowed
    assert tried > 500
    assert (stopped / "csv" / "version_0" / "metrics.csv").read_bytes() == before

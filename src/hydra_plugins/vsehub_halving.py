"""Random search with successive halving, as a sweeper of Hydra: `hydra/sweeper=halving` (docs/sweeps.md).

Hydra takes sweepers only from the namespace package `hydra_plugins`.
"""

import math
import shlex
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from vsehub.checks import require, whole
from vsehub.io.files import write_text
from vsehub.io.spreadsheet import csv_text

TABLE = "halving.csv"


class Halving(Sweeper):
    """Draws settings at random, trains all of them briefly, and the best of them again, for longer each time.

    What the command line or `params` sweeps (`loss=sum,hal`) makes groups; each group has a search of its own, with the
    same draws and the same budget. The first trial of a group leaves all settings as they are. A draw depends only on
    the seed, the trial's number and the setting's name, so that more trials, or one more setting, leave the others as
    they were: the runs of an earlier, smaller search are found again.

    epochs: of each round (`trainer.max_epochs`), rising. trials: how many are trained in each round, falling: the best
    of the round before by the job's value, best validation rsum. space: setting -> what it may be, in Optuna's
    notation: `interval(a,b)`, `tag(log,interval(a,b))`, `range(a,b)` or `a,b,c`. spaces: a choice, "loss=hal" -> the
    further settings of groups that have it. Writes `halving.csv` into the sweep's folder: the trials of each round, the
    best first. Raises InputError for rounds that do not fit each other.
    """

    def __init__(
        self,
        epochs: Sequence[int],
        trials: Sequence[int],
        seed: int = 0,
        params: Mapping[str, Any] | None = None,
        space: Mapping[str, Any] | None = None,
        spaces: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        for number in (*epochs, *trials):
            whole("hydra.sweeper.epochs and trials", number)
        require(
            len(epochs) == len(trials) > 0 and list(epochs) == sorted(epochs) and list(trials) == sorted(trials)[::-1],
            f"hydra.sweeper.epochs is {list(epochs)} and trials {list(trials)}; expected as many epochs as trials, the "
            "epochs rising and the trials falling",
        )
        self.rounds = list(zip(epochs, trials, strict=True))
        self.seed = seed
        self.params, self.space = dict(params or {}), dict(space or {})
        self.spaces = {choice: dict(own) for choice, own in (spaces or {}).items()}
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before `sweep`."""
        self.hydra_context, self.config = hydra_context, config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> list[dict[str, Any]]:
        """Run all rounds; the rows of `halving.csv`."""
        assert self.config is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        alive = {group: self.drawn(group) for group in self.groups(arguments)}
        rows: list[dict[str, Any]] = []
        first = 0
        for epochs, trials in self.rounds:
            jobs = [(group, settings) for group, kept in alive.items() for settings in kept[:trials]]
            values = self.launched(first, [(*group, *own, f"trainer.max_epochs={epochs}") for group, own in jobs])
            first += len(jobs)
            found: dict[tuple[str, ...], list[tuple[float, tuple[str, ...]]]] = {group: [] for group in alive}
            for (group, settings), value in zip(jobs, values, strict=True):
                found[group].append((value, settings))
            for group, results in found.items():
                results.sort(key=lambda result: -result[0])
                alive[group] = [settings for value, settings in results if value > -math.inf]
                rows += [row(group, epochs, *result) for result in results]
            write_text(folder / TABLE, csv_text(rows[0], rows))
        for group, kept in alive.items():
            print(chosen(group, kept[0], epochs) if kept else f"all trials of {shlex.join(group)} failed")
        print(f"all trials: {folder / TABLE}")
        return rows

    def groups(self, arguments: Sequence[str]) -> list[tuple[str, ...]]:
        """The combinations of what is swept, with the fixed overrides; what is given is not drawn."""
        given: dict[str, Override] = {}
        for override in self.parsed([*(f"{key}={value}" for key, value in self.params.items()), *arguments]):
            given[override.get_key_element()] = override
        require(
            "trainer.max_epochs" not in given,
            "the rounds have their epochs: give hydra.sweeper.epochs, e.g. [4,8,15], instead of trainer.max_epochs",
        )
        for space in (self.space, *self.spaces.values()):
            for key in given:
                space.pop(key, None)
        combined: list[tuple[str, ...]] = [()]
        for key, override in given.items():
            if override.is_sweep_override():
                require(override.is_discrete_sweep(), f"{override.input_line}: an interval is drawn, not swept")
                values = [f"{key}={value}" for value in override.sweep_string_iterator()]
            else:
                values = [f"{key}={override.get_value_element_as_str()}"]
            combined = [(*group, value) for group in combined for value in values]
        return combined

    def drawn(self, group: Sequence[str]) -> list[tuple[str, ...]]:
        """The settings of a group's trials: those of the space that its configuration has, such as no word dropout
        where texts are vectors, and those of the spaces of its choices.
        """
        assert self.hydra_context is not None
        assert self.config is not None
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(group))
        space = {key: value for key, value in self.space.items() if has(config, key)}
        for choice, own in self.spaces.items():
            if choice in group:
                space |= own
        overrides = self.parsed([f"{key}={value}" for key, value in space.items()])
        return [
            tuple(f"{one.get_key_element()}={self.draw(one, trial)}" for one in overrides) if trial else ()
            for trial in range(self.rounds[0][1])
        ]

    def draw(self, override: Override, trial: int) -> str:
        """A setting's value in a trial; numbers of intervals have three digits."""
        key = override.get_key_element()
        random = np.random.default_rng([self.seed, trial, zlib.crc32(key.encode())])
        value = override.value()
        if isinstance(value, IntervalSweep):
            low, high = float(value.start or 0), float(value.end or 0)
            if "log" in value.tags:
                return f"{math.exp(random.uniform(math.log(low), math.log(high))):.3g}"
            return f"{random.uniform(low, high):.3g}"
        if override.is_sweep_override():
            choices = list(value.range()) if isinstance(value, RangeSweep) else list(override.sweep_string_iterator())
            return str(choices[random.integers(len(choices))])
        return str(override.get_value_element_as_str())

    def launched(self, first: int, jobs: Sequence[Sequence[str]]) -> list[float]:
        """The jobs' values; -inf of a job that failed."""
        assert self.launcher is not None
        batch = [list(job) for job in jobs]
        self.validate_batch_is_legal(batch)
        returned = [done.return_value for done in self.launcher.launch(batch, initial_job_idx=first)]
        return [-math.inf if value is None else float(value) for value in returned]

    def parsed(self, lines: Sequence[str]) -> list[Override]:
        """Overrides, checked against the configuration's groups."""
        assert self.hydra_context is not None
        return OverridesParser.create(config_loader=self.hydra_context.config_loader).parse_overrides(list(lines))


def has(config: DictConfig, key: str) -> bool:
    """Whether a configuration has a setting, whatever its value."""
    parent, _, name = key.rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    return isinstance(node, DictConfig) and name in node


def chosen(group: Sequence[str], settings: Sequence[str], epochs: int) -> str:
    """The line that names a group's best trial: the command that trains it and measures it on the test split."""
    fixed = [one for one in group if not one.startswith(("sweep=", "final_split="))]  # a sweep's file is for -m only
    own = [f"trainer.max_epochs={epochs}", "final_split=test"]
    return f"chosen: vsehub train {shlex.join([*fixed, *settings, *own])}"


def row(group: Sequence[str], epochs: int, value: float, settings: Sequence[str]) -> dict[str, Any]:
    """A trial's row of `halving.csv`."""
    return {
        "group": shlex.join(group),
        "epochs": epochs,
        "val_rsum": "failed" if value == -math.inf else round(value, 4),
        "settings": shlex.join(settings) or "as they are",
    }
